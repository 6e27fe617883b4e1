"""Test all corpus formats with variants of the same file.

Insignificant differences don't change the texts and entities. Damaged records raise an error with the line number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus_formats
import pytest
from conversion import convert
from corpus_formats import SENTENCES, Sentence

from spacy_tener.corpora.docs import read_docs
from spacy_tener.corpora.reader import CorpusOptions, CorpusReader
from spacy_tener.errors import InputError

Texts = list[tuple[str, list[tuple[str, str]]]]

EDGE_CASES: list[Sentence] = [
    (list("😀张三😀在😀👩‍👩‍👧店😀"), [(1, 3, "PER"), (5, 12, "ORG")]),
    (list("e\u0301l去上\u0301海\u0301"), [(0, 3, "PER"), (4, 8, "LOC")]),
    (list("𠮷"), [(0, 1, "LOC")]),
]
CORPUS = [*SENTENCES, *EDGE_CASES]
WITH_OFFSETS: dict[str, Callable[..., str]] = {
    write.__name__: write
    for write in (
        corpus_formats.doccano,
        corpus_formats.prodigy,
        corpus_formats.spacy2,
        corpus_formats.label_studio,
        corpus_formats.cluener,
    )
}
WITHOUT_OFFSETS: dict[str, Callable[..., str]] = {
    **corpus_formats.COLUMNS,
    **{write.__name__: write for write in (corpus_formats.hugging_face,)},
}
FORMATS = {"conll2003": "columns", "numbered": "columns", "doccano": "jsonl", "prodigy": "jsonl", "spacy2": "jsonl"}
FORMATS |= {"label_studio": "labelstudio", "hugging_face": "tokens"}
BYTE_ORDER_MARK = "\ufeff".encode()


def unchanged(data: bytes) -> bytes:
    return data


def with_byte_order_mark(data: bytes) -> bytes:
    return BYTE_ORDER_MARK + data


def with_crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def without_final_newline(data: bytes) -> bytes:
    return data.rstrip(b"\n")


def with_blank_lines(data: bytes) -> bytes:
    return b"\n\n" + data + b"\n \n"


def write(folder: Path, name: str, change: Callable[[bytes], bytes], corpus: list[Sentence] = CORPUS) -> Path:
    """Write a corpus in a format, and return the path."""
    path = folder / f"{name}.txt"
    path.write_bytes(change({**WITH_OFFSETS, **WITHOUT_OFFSETS}[name](corpus).encode()))
    return path


EXPECTED: Texts = [
    (text, [(entity, label) for *_, label, entity in spans]) for text, spans in map(corpus_formats.text_of, CORPUS)
]


def read_texts(path: Path, options: CorpusOptions) -> Texts:
    texts = []
    for item in CorpusReader(path, options):
        units: Any = item.tokens if hasattr(item, "tokens") else item.text
        texts.append((item.text, [("".join(units[span.start : span.end]), span.label) for span in item.spans]))
    return texts


@pytest.mark.parametrize("is_explicit", [False, True], ids=["detected", "explicit"])
@pytest.mark.parametrize(
    "change", [unchanged, with_byte_order_mark, with_crlf, without_final_newline, with_blank_lines]
)
@pytest.mark.parametrize("name", [*WITH_OFFSETS, *WITHOUT_OFFSETS])
def test_bom_line_ends_and_blank_lines_are_ignored(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], is_explicit: bool
) -> None:
    options = CorpusOptions(format=FORMATS.get(name, name) if is_explicit else "auto")
    assert read_texts(write(tmp_path, name, change), options) == EXPECTED


DAMAGE = {
    "columns": ("B-ORG", "X-ORG"),
    "conll2003": ("\tB-ORG", ""),
    "numbered": ("\t_\tB-ORG", "\tB-ORG"),
    "weibo": ("𠮷1", "𠮷"),
    "doccano": ('"ORG"', "5"),
    "prodigy": ('"ORG"', "null"),
    "spacy2": ('"ORG"', '""'),
    "label_studio": ('"ORG"', "5"),
    "cluener": ('{"ORG": ', '{"ORG": 5, "X": '),
    "hugging_face": ('"B-ORG"', '"ORG"'),
}


def damage_record(name: str, old: str, new: str) -> tuple[Callable[[bytes], bytes], list[int]]:
    """Return a function that damages one record, and a list to which it appends the line number of the damage."""
    lines: list[int] = []

    def change(data: bytes) -> bytes:
        text = data.decode()
        before, _, behind = text.partition(old)
        assert behind
        number = before.count("\n")
        if name in ("spacy2", "label_studio"):  # Records have several lines.
            starts = [n for n, line in enumerate(text.split("\n")) if line in (" {", " [")]
            number = max(start for start in starts if start <= number)
        lines.append(number + 1)
        return (before + new + behind).encode()

    return change, lines


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_record_raises_error_with_line_number(tmp_path: Path, name: str) -> None:
    change, lines = damage_record(name, *DAMAGE[name])
    path = write(tmp_path, name, change)
    with pytest.raises(InputError, match=rf"{path.name}:\d+: ") as caught:
        convert([path], tmp_path / "out.spacy", options=CorpusOptions(format=FORMATS.get(name, name)))
    assert caught.value.line == lines[0]
    assert not (tmp_path / "out.spacy").exists()


NESTED: list[Sentence] = [(list("在北京大学医学院"), [(1, 3, "LOC"), (1, 5, "ORG"), (1, 8, "ORG")]), (list("好"), [])]


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_overlapping_entities_are_stored_in_doc_spans(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, unchanged, NESTED)
    with pytest.raises(InputError, match=r"overlap.*--overlap spans"):
        convert([path], tmp_path / "out.spacy", lang="zh")
    (report,) = convert([path], tmp_path / "out.spacy", options=CorpusOptions(overlap="spans"), lang="zh")
    first, *rest = read_docs(tmp_path / "out.spacy")
    assert [(span.text, span.label_) for span in first.spans["sc"]] == [
        ("北京", "LOC"),
        ("北京大学", "ORG"),
        ("北京大学医学院", "ORG"),
    ]
    assert [(ent.text, ent.label_) for ent in first.ents] == [("北京大学医学院", "ORG")]
    assert all(token.ent_iob for token in first)
    # A text without entities has an empty span group, since it is annotated.
    assert [len(doc.spans["sc"]) for doc in rest] == [0]
    assert (report.entities, report.overlapping, report.notes.counts) == (3, 2, {})


@pytest.mark.parametrize("name", corpus_formats.COLUMNS)
def test_column_formats_store_entities_in_doc_spans(tmp_path: Path, name: str) -> None:
    convert([write(tmp_path, name, unchanged)], tmp_path / "out.spacy", options=CorpusOptions(overlap="spans"))
    docs = list(read_docs(tmp_path / "out.spacy"))
    assert sum(len(doc.ents) for doc in docs) > 5
    assert all(list(doc.spans["sc"]) == list(doc.ents) for doc in docs)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("name", [*WITH_OFFSETS, "hugging_face"])
def test_nan_and_infinity_raise_error_in_used_json_fields(tmp_path: Path, name: str, constant: str) -> None:
    """Python writes them to JSON. They are ignored in unused fields, such as a score."""
    old = DAMAGE[name][0]
    change, lines = damage_record(name, old, f'{{"X": {constant}, "ORG": ' if name == "cluener" else constant)
    with pytest.raises(InputError) as caught:
        read_texts(write(tmp_path, name, change), CorpusOptions(format=FORMATS.get(name, name)))
    assert caught.value.line == lines[0]
    if name != "spacy2":
        path = write(tmp_path, name, lambda data: data.replace(b'{"', f'{{"score": {constant}, "'.encode(), 1))
        assert read_texts(path, CorpusOptions()) == EXPECTED


@pytest.mark.parametrize("content", [b"", BYTE_ORDER_MARK, b"\n \r\n"], ids=["empty", "mark", "blank"])
@pytest.mark.parametrize("format", ["auto", *dict.fromkeys(FORMATS.get(name, name) for name in DAMAGE)])
def test_empty_file_raises_error_with_file_name(tmp_path: Path, format: str, content: bytes) -> None:
    path = tmp_path / "nothing.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"nothing\.txt"):
        convert([path], tmp_path / "out.spacy", options=CorpusOptions(format=format), lang="zh")
