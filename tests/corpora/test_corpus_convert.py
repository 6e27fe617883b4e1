"""Test the function `convert`: output files, reports, language detection, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import spacy
from conversion import convert
from spacy.tokens import Doc
from spacy.training import Corpus

from spacy_tener.corpora.annotation import CorpusError, Event
from spacy_tener.corpora.convert import detect_language
from spacy_tener.corpora.docs import read_docs
from spacy_tener.errors import UserError

COLUMNS = "高 B-NAME\n勇 E-NAME\n， O\n\n中 B-CONT\n国 M-CONT\n籍 E-CONT\n\n李 M-NAME\n"
ENGLISH = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nleft VBD O\n\nPeter NNP B-PER\n\n-DOCSTART- -X- O\n\nUN NNP B-ORG\n"
JSONL = """
{"text": "高勇在New York.", "label": [[0, 2, "PER"], [3, 11, "LOC"]]}
{"text": "in Newcastle", "label": [[3, 6, "X"]]}
"""

WriteFile = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def file(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return file


def docs(path: Path) -> list[Doc]:
    return list(read_docs(path))


def ents(found: list[Doc]) -> list[tuple[str, str]]:
    return [(entity.text, entity.label_) for doc in found for entity in doc.ents]


def test_column_corpus_becomes_doc_per_sentence(write: WriteFile, tmp_path: Path) -> None:
    (report,) = convert([write("train.char.bmes", COLUMNS)], tmp_path / "out")
    found = docs(tmp_path / "out" / "train.spacy")
    assert [doc.text for doc in found] == ["高勇，", "中国籍", "李"]
    assert ents(found) == [("高勇", "NAME"), ("中国籍", "CONT"), ("李", "NAME")]
    assert report.output == tmp_path / "out" / "train.spacy"
    assert (report.format, report.scheme) == ("columns", "BMES")
    assert (report.docs, report.tokens) == (3, 7)
    assert (report.entities, report.labels) == (3, {"NAME": 2, "CONT": 1})
    assert report.notes.counts == {Event.REPAIRED: 2}


def test_spacy_corpus_reader_aligns_converted_docs(write: WriteFile, tmp_path: Path) -> None:
    convert([write("a.txt", COLUMNS)], tmp_path)
    examples = list(Corpus(tmp_path / "a.spacy")(spacy.blank("zh")))
    assert [example.get_aligned_ner()[:2] for example in examples] == [
        ["B-NAME", "L-NAME"],
        ["B-CONT", "I-CONT"],
        ["U-NAME"],
    ]


def test_conll_2003_becomes_doc_per_sentence(write: WriteFile, tmp_path: Path) -> None:
    (report,) = convert([write("eng.txt", ENGLISH)], tmp_path, lang="en")
    found = docs(tmp_path / "eng.spacy")
    assert [doc.text for doc in found] == ["EU left ", "Peter ", "UN "]
    assert report.docs == 3
    assert ents(found) == [("EU", "ORG"), ("Peter", "PER"), ("UN", "ORG")]


@pytest.mark.parametrize(("lang", "text"), [("zh", "ab"), ("en", "a b "), ("xx", "a b ")])
def test_spaces_between_tokens_depend_on_language(write: WriteFile, tmp_path: Path, lang: str, text: str) -> None:
    convert([write("a.txt", "a O\nb O\n")], tmp_path, lang=lang)
    assert docs(tmp_path / "a.spacy")[0].text == text


def test_jsonl_texts_are_unchanged_and_misaligned_spans_reported(write: WriteFile, tmp_path: Path) -> None:
    (report,) = convert([write("a.jsonl", JSONL)], tmp_path, lang="en")
    found = docs(tmp_path / "a.spacy")
    assert [doc.text for doc in found] == ["高勇在New York.", "in Newcastle"]
    assert (report.format, report.scheme) == ("jsonl", None)
    assert report.docs == 2
    assert report.notes.counts == {Event.MISALIGNED: 3}
    assert (report.entities, report.missing) == (0, 3)
    (report,) = convert([tmp_path / "a.jsonl"], tmp_path)
    assert ents(docs(tmp_path / "a.spacy")) == [("高勇", "PER"), ("New York", "LOC"), ("New", "X")]
    assert (report.notes.counts.total(), report.missing) == (0, 0)


def test_conversion_is_deterministic(write: WriteFile, tmp_path: Path) -> None:
    convert([write("a.txt", COLUMNS)], tmp_path / "1")
    convert([tmp_path / "a.txt"], tmp_path / "2")
    convert([tmp_path / "a.txt"], tmp_path / "1")
    first, second = (docs(tmp_path / name / "a.spacy") for name in "12")
    assert [doc.to_bytes() for doc in first] == [doc.to_bytes() for doc in second]


def test_invalid_line_leaves_only_finished_outputs(write: WriteFile, tmp_path: Path) -> None:
    good, bad, late = write("a.txt", COLUMNS), write("b.txt", COLUMNS + "坏\n"), write("c.txt", COLUMNS)
    with pytest.raises(CorpusError, match=r"b\.txt:10: the line has one column"):
        convert([good, bad, late], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.spacy"]
    assert len(docs(tmp_path / "out" / "a.spacy")) == 3


def test_invalid_line_leaves_existing_output_unchanged(write: WriteFile, tmp_path: Path) -> None:
    convert([write("a.txt", COLUMNS)], tmp_path)
    before = (tmp_path / "a.spacy").read_bytes()
    write("a.txt", "坏\n")
    with pytest.raises(CorpusError):
        convert([tmp_path / "a.txt"], tmp_path)
    assert (tmp_path / "a.spacy").read_bytes() == before


def test_unwritable_output_error_names_the_file(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "out" / "a.spacy").mkdir(parents=True)
    (tmp_path / "file").touch()
    source = write("a.txt", COLUMNS)
    with pytest.raises(UserError, match=r"a\.spacy: cannot be written: Is a directory"):
        convert([source], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.spacy"]
    with pytest.raises(UserError, match=r"a\.spacy: cannot be written"):
        convert([source], tmp_path / "file" / "out")


@pytest.mark.parametrize("text", ["", "\n\n \n", "-DOCSTART- O\n\n", "[]"])
def test_file_without_sentences_raises_error(write: WriteFile, tmp_path: Path, text: str) -> None:
    with pytest.raises(CorpusError, match=r"a\.txt: contains no annotated sentence or text"):
        convert([write("a.txt", text)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_file_without_annotated_records_raises_error(write: WriteFile, tmp_path: Path) -> None:
    record = json.dumps({"text": "a", "spans": [], "answer": "reject"})
    with pytest.raises(CorpusError, match=r"no record is annotated\. Records left out .*: 1\. Annotate at least one"):
        convert([write("a.jsonl", record)], tmp_path)


def test_very_long_sentence_and_token_are_converted(write: WriteFile, tmp_path: Path) -> None:
    (report,) = convert([write("a.txt", "字 O\n" * 10_000 + "x" * 400_000 + " B-X\n")], tmp_path)
    assert (report.docs, report.tokens, report.entities, report.lang) == (1, 10_001, 1, "xx")


def test_unsupported_language_raises_error(write: WriteFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tokenizer for the language 'qqq'"):
        convert([write("a.txt", COLUMNS)], tmp_path, lang="qqq")


def test_language_is_detected_by_letters(write: WriteFile, tmp_path: Path) -> None:
    (english,) = convert([write("a.txt", "Jane B-PER\nsang O\n")], tmp_path)
    (chinese,) = convert([write("b.txt", COLUMNS)], tmp_path)
    (texts,) = convert([write("c.jsonl", '{"text": "Dr. Jane (12) sang.", "label": [[4, 8, "PER"]]}')], tmp_path)
    assert [report.lang for report in (english, chinese, texts)] == ["en", "zh", "en"]
    assert docs(tmp_path / "a.spacy")[0].text == "Jane sang "
    assert [token.text for token in docs(tmp_path / "c.spacy")[0]][:2] == ["Dr.", "Jane"]
    with pytest.raises(ValueError, match=r"language cannot be detected.*--lang"):
        convert([write("d.txt", "Привет B-X\n")], tmp_path)
    assert convert([tmp_path / "d.txt"], tmp_path, lang="ru")[0].docs == 1


@pytest.mark.parametrize(
    ("text", "lang"),
    [("京" + "x" * 19, "zh"), ("京" + "x" * 20, "en"), ("\U00020000 12, x", "zh"), ("яя" + "x" * 98, "en")],
)
def test_language_detection_uses_proportions_of_scripts(text: str, lang: str) -> None:
    assert detect_language([text]) == detect_language([text[:1], text[1:]]) == lang
    with pytest.raises(UserError, match="cannot be detected"):
        detect_language([text, "я" * 3])


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        (
            "Die Bewerberin hat gute Kenntnisse in Excel und sucht für das Frühjahr eine Stelle in Köln und Umland. ",
            "xx",
        ),
        (
            "Le maire de la ville a été élu hier, mais il ne viendra pas à la fête de son voisin à côté de l'école. ",
            "xx",
        ),
        (
            "The mayor of the town was elected yesterday, but he will not be at the party of his neighbours in York. ",
            "en",
        ),
    ],
    ids=["German", "French", "English"],
)
def test_only_english_texts_are_detected_as_english(text: str, lang: str, write: WriteFile, tmp_path: Path) -> None:
    columns = "".join(f"{word} O\n" for word in text.split()) + "\n"
    (report,) = convert([write("a.txt", columns)], tmp_path)
    assert detect_language([text]) == report.lang == lang


@pytest.mark.parametrize("texts", [["12 345"], ["!?", ""], []])
def test_language_detection_requires_letters(texts: list[str]) -> None:
    with pytest.raises(UserError, match=r"cannot be detected from the characters\. Set the language"):
        detect_language(texts)


def test_stray_file_in_directory_is_skipped_with_warning(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write("in/train.txt", COLUMNS)
    write("in/README.txt", "This is a corpus.\n\nIts files are in columns.\n")
    write("in/package.json", '{"name": "corpus"}')
    write("in/empty.txt", "")
    reports = convert([tmp_path / "in"], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.spacy"]
    stray = {Path(report.source).name: report.notes for report in reports if not report.docs}
    assert set(stray) == {"README.txt", "package.json", "empty.txt"}
    assert all(notes.counts == {Event.NOT_A_CORPUS: 1} for notes in stray.values())
    assert "README.txt:1: " in stray["README.txt"].examples[Event.NOT_A_CORPUS][0]


def test_stray_file_raises_error_if_named_or_alone(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write("in/README.txt", "This is no corpus.\n")
    with pytest.raises(CorpusError, match=r"README\.txt:1: 'corpus\.' is not a tag"):
        convert([path], tmp_path / "out")
    with pytest.raises(CorpusError, match=r"no corpus was found.*README\.txt:1"):
        convert([tmp_path / "in"], tmp_path / "out")


def test_corpus_with_invalid_line_is_not_skipped(write: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write("in/train.txt", COLUMNS + "\n坏\n")
    with pytest.raises(CorpusError, match=r"train\.txt:11: the line has one column"):
        convert([tmp_path / "in"], tmp_path / "out")
