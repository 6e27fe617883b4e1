"""Dividing a corpus that has no development part."""

from __future__ import annotations

from pathlib import Path

import hold_out
import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.vocab import Vocab


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Twenty Docs, every other one of them with an entity."""
    nlp = spacy.blank("zh")
    docs = DocBin(attrs=["ENT_IOB", "ENT_TYPE", "SENT_START"])
    for number in range(20):
        doc = nlp.make_doc(f"第{number}句")
        doc.set_ents([Span(doc, 0, 1, f"L{number}")] if number % 2 else [], default="outside")
        docs.add(doc)
    docs.to_disk(tmp_path / "all.spacy")
    return tmp_path / "all.spacy"


def read(path: Path) -> list[Doc]:
    return list(DocBin().from_disk(path).get_docs(Vocab()))


def described(doc: Doc) -> tuple[str, list[int], list[tuple[str, str]]]:
    return doc.text, [token.ent_iob for token in doc], [(ent.text, ent.label_) for ent in doc.ents]


def divide(source: Path, *arguments: str) -> tuple[list[Doc], list[Doc]]:
    train, dev = source.parent / "out" / "train.spacy", source.parent / "out" / "dev.spacy"
    hold_out.main([str(source), str(train), str(dev), *arguments])
    return read(train), read(dev)


@pytest.mark.parametrize(("share", "last"), [((), 2), (("--share", "0.25"), 5)])
def test_the_last_docs_are_held_out_and_none_is_lost(source: Path, share: tuple[str, ...], last: int) -> None:
    train, dev = divide(source, *share)
    assert len(dev) == last
    assert [described(doc) for doc in (*train, *dev)] == [described(doc) for doc in read(source)]


def test_annotation_is_kept(source: Path) -> None:
    _, dev = divide(source)
    assert [doc.text for doc in dev] == ["第18句", "第19句"]
    assert described(dev[0])[1:] == ([2, 2, 2, 2], [])
    assert described(dev[1])[1:] == ([3, 2, 2, 2], [("第", "L19")])


def test_the_source_may_be_one_of_the_outputs(source: Path) -> None:
    before = [doc.text for doc in read(source)]
    hold_out.main([str(source), str(source), str(source.parent / "dev.spacy")])
    assert [doc.text for doc in read(source)] == before[:18]


@pytest.mark.parametrize("share", ["0", "0.01", "1"])
def test_an_empty_part_is_refused_and_not_written(source: Path, share: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        divide(source, "--share", share)
    assert "leaves nothing to one of the parts" in capsys.readouterr().out
    assert not (source.parent / "out").exists()


def test_a_source_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        hold_out.main([str(tmp_path / "x.spacy"), "train.spacy", "dev.spacy"])
    assert "There is no data at" in capsys.readouterr().out
