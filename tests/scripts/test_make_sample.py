"""The bundled sample corpora, and the script that wrote them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import make_sample
import pytest

from spacy_tener.workbench.corpus.columns import TagReader

SAMPLE = Path(__file__).parent.parent.parent / "assets" / "sample"
LABELS = {"PER", "LOC", "ORG", "DATE", "TITLE", "PRODUCT", "LAW", "MED"}
PARTS = [(language, part) for language in make_sample.SCHEMES for part in make_sample.PARTS]


def sentences(language: str, part: str) -> list[list[tuple[str, str]]]:
    path = SAMPLE / language / f"{part}.{make_sample.SCHEMES[language].suffix}"
    blocks = path.read_text(encoding="utf8").strip("\n").split("\n\n")
    return [[(line.split(" ")[0], line.split(" ")[1]) for line in block.split("\n")] for block in blocks]


def text_of(sentence: list[tuple[str, str]]) -> str:
    return " ".join(token for token, _ in sentence)


def test_making_the_sample_again_gives_the_same_bytes(tmp_path: Path) -> None:
    make_sample.main(["--output", str(tmp_path)])
    for language, part in PARTS:
        name = Path(language) / f"{part}.{make_sample.SCHEMES[language].suffix}"
        assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes(), name


def test_another_seed_gives_another_sample() -> None:
    grammar, scheme = SAMPLE / "grammar" / "en.txt", make_sample.SCHEMES["en"]
    assert make_sample.make_corpus(grammar, scheme, 1) != make_sample.make_corpus(grammar, scheme, 2)


@pytest.mark.parametrize(("language", "part"), PARTS)
def test_sentences_are_distinct_and_as_many_as_promised(language: str, part: str) -> None:
    texts = {text_of(sentence) for sentence in sentences(language, part)}
    assert len(texts) == len(sentences(language, part)) == make_sample.PARTS[part]


@pytest.mark.parametrize("language", make_sample.SCHEMES)
def test_no_sentence_is_in_two_parts(language: str) -> None:
    counts = Counter(text_of(sentence) for part in make_sample.PARTS for sentence in sentences(language, part))
    assert max(counts.values()) == 1


@pytest.mark.parametrize(("language", "part"), PARTS)
def test_every_label_occurs_and_some_sentences_have_no_entity(language: str, part: str) -> None:
    counts = Counter(tag[2:] for sentence in sentences(language, part) for _, tag in sentence if tag[0] in "BS")
    assert set(counts) == LABELS
    assert min(counts.values()) >= 10
    assert any(all(tag == "O" for _, tag in sentence) for sentence in sentences(language, part))


@pytest.mark.parametrize(("language", "part"), PARTS)
def test_tags_are_well_formed(language: str, part: str) -> None:
    """BMES over single characters in Chinese, IOB2 in English."""
    reader = TagReader("BMES" if language == "zh" else "IOB2")
    for sentence in sentences(language, part):
        reader.read([tag for _, tag in sentence])
        assert language == "en" or all(len(token) == 1 and not token.isspace() for token, _ in sentence)
    assert reader.repairs.counts.total() == 0


@pytest.mark.parametrize("part", ["dev", "test"])
@pytest.mark.parametrize("language", make_sample.SCHEMES)
def test_most_entities_of_dev_and_test_are_not_in_train(language: str, part: str) -> None:
    in_train = set(make_sample.entities(sentences(language, "train")))
    mentions = make_sample.entities(sentences(language, part))
    new = sum(mention not in in_train for mention in mentions) / len(mentions)
    assert 0.8 < new < 0.95
    per_label = {label: [m not in in_train for m in mentions if m[1] == label] for label in LABELS - {"DATE"}}
    assert all(sum(flags) / len(flags) > 0.7 for flags in per_label.values())


@pytest.mark.parametrize("language", make_sample.SCHEMES)
def test_many_words_are_entities_of_several_kinds_or_of_none(language: str) -> None:
    everything = [sentence for part in make_sample.PARTS for sentence in sentences(language, part)]
    labels: dict[str, set[str]] = {}
    for text, label in make_sample.entities(everything):
        labels.setdefault(text, set()).add(label)
    outside = " ".join(" ".join(token for token, tag in sentence if tag == "O") for sentence in everything)
    assert sum(len(found) > 1 for found in labels.values()) >= 10
    assert sum(len(text) > 1 and f" {text} " in outside for text in labels) >= 10


def test_readme_of_the_sample_states_its_true_numbers() -> None:
    readme = (SAMPLE / "README.md").read_text(encoding="utf8")
    for language in make_sample.SCHEMES:
        parts = [sentences(language, part) for part in make_sample.PARTS]
        tokens = sum(len(sentence) for part in parts for sentence in part)
        mentions = sum(len(make_sample.entities(part)) for part in parts)
        in_train = set(make_sample.entities(parts[0]))
        test = make_sample.entities(parts[2])
        new = sum(mention not in in_train for mention in test) / len(test)
        assert f"| {tokens:,} " in readme
        assert f"| {mentions:,} |" in readme
        assert f"{100 * new:.0f} % ({'Chinese' if language == 'zh' else 'English'})" in readme


@pytest.mark.parametrize("language", make_sample.SCHEMES)
def test_grammar_has_no_dangling_or_unused_section(language: str) -> None:
    sections = make_sample.read_grammar(SAMPLE / "grammar" / f"{language}.txt")
    slots = {slot[1] for s in sections.values() for text in s.alternatives for slot in make_sample.SLOT.finditer(text)}
    assert slots == {name for name, section in sections.items() if section.mark != "#"}


@pytest.mark.parametrize("language", make_sample.SCHEMES)
def test_no_name_of_a_disjoint_list_is_listed_twice(language: str) -> None:
    sections = make_sample.read_grammar(SAMPLE / "grammar" / f"{language}.txt")
    for name, section in sections.items():
        assert section.mark == "=" or len(set(section.alternatives)) == len(section.alternatives), name
