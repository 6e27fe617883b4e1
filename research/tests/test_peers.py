"""Tests of the comparison with other packages: scoring, missing packages, and rows from other pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import spacy
from spacy.tokens import DocBin

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@pytest.fixture(scope="module")
def peers() -> Iterator[ModuleType]:
    """The script `peers.py`. Its directory has to be in the path, since it imports other scripts."""
    sys.path.insert(0, str(ROOT / "research" / "benchmarks"))
    import peers

    yield peers
    sys.path.pop(0)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    doc = spacy.blank("zh")("张三和李四在北京的中国银行")
    doc.ents = [
        doc.char_span(start, end, label)
        for start, end, label in [(0, 2, "PER.NAM"), (3, 5, "PER.NAM"), (6, 8, "GPE.NAM"), (9, 13, "ORG.NOM")]
    ]
    DocBin(docs=[doc]).to_disk(tmp_path / "test.spacy")
    return tmp_path / "test.spacy"


def test_an_entity_is_right_if_its_edges_and_its_label_are(peers: ModuleType, part: Path) -> None:
    found = [(0, 2, "PER"), (2, 5, "PER"), (6, 8, "ORG"), (9, 13, "ORG")]
    assert peers.score(lambda texts: [found for _ in texts], part, ["PER", "LOC", "ORG"]) == [
        *["3", "25.0", "33.3", "28.6"],
        *["50.0", "0.0", "0.0"],
    ]


def test_labels_of_spacy_pipelines_are_mapped_and_other_labels_are_left_out(peers: ModuleType, part: Path) -> None:
    found = [(0, 2, "PERSON"), (3, 5, "NORP"), (6, 8, "GPE"), (9, 13, "DATE")]
    assert peers.score(lambda texts: [found for _ in texts], part, ["PER", "LOC", "ORG"])[1:4] == [
        "100.0",
        "66.7",
        "80.0",
    ]


def test_labels_that_mean_something_else_in_a_corpus_do_not_count(peers: ModuleType, part: Path) -> None:
    found = [(0, 2, "PER"), (3, 5, "PER"), (9, 13, "ORG")]
    assert peers.score(lambda texts: [found for _ in texts], part, ["PER"])[:4] == ["2", "100.0", "100.0", "100.0"]


def test_a_package_that_is_not_there_is_a_line_and_no_error(peers: ModuleType) -> None:
    def load_absent() -> None:
        import no_such_package  # noqa: F401

    def load_offline() -> None:
        raise OSError("weights could not be fetched")

    made = {name: peers.Peer([name], "", "", load) for name, load in [("a", load_absent), ("b", load_offline)]}
    assert peers.load(made) == (
        {},
        [
            "a could not be run: No module named 'no_such_package'.",
            "b could not be run: weights could not be fetched.",
        ],
    )


def test_words_are_placed_in_order_and_those_that_are_not_in_the_text_passed_over(peers: ModuleType) -> None:
    words = [("北京", "ns"), ("[UNK]", "ns"), ("在", "p"), ("北京", "ns")]
    assert peers.place("北京😀在北京", words, {"ns": "LOC"}) == [(0, 2, "LOC"), (4, 6, "LOC")]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),
        ("I-PER I-LOC B-LOC", [(0, 1, "PER"), (1, 2, "LOC"), (2, 3, "LOC")]),
        ("O O", []),
    ],
)
def test_tags_are_spans(peers: ModuleType, tags: str, spans: list[tuple[int, int, str]]) -> None:
    assert list(peers.spans_of_tags(tags.split())) == spans


def test_what_a_package_needs_is_followed_through_its_requirements(peers: ModuleType) -> None:
    assert {"spacy", "thinc", "numpy"} <= peers.needed(["spacy"])
    assert "torch" not in peers.needed(["spacy_tener[lac]"])
    assert "torch" in peers.needed(["spacy_tener[train]"])


def test_rows_of_other_pages_have_their_numbers(peers: ModuleType) -> None:
    for name, *cells, pages in peers.SAME:
        texts = [(ROOT / "research" / "results" / f"{page}.md").read_text(encoding="utf8") for page in pages.split()]
        measured = {number for text in texts for number in NUMBER.findall(text)}
        for cell in (cell for cell in cells if re.match(r"[\d*]|of a beam|exact:", cell)):
            assert set(NUMBER.findall(cell)) <= measured, f"{name}: {cell}"


def test_the_papers_with_bert_are_rows_too(peers: ModuleType) -> None:
    rows = {row[0]: row for row in peers.same_sentences()}
    assert [row[1:3] for name, row in rows.items() if "BERT" in name and "E5" not in name] == [
        ["68.55", "95.86"],
        ["70.43", "95.98"],
        ["72.53", "96.73"],
    ]
