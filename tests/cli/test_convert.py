"""Test the command `convert`: inputs, options, output files and the report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import spacy
from command_line import run_tener
from spacy.tokens import Doc

from spacy_tener.corpora.docs import read_docs, read_examples
from spacy_tener.pipeline.entities import read_entities
from spacy_tener.pipeline.tokenizer import make_char_tokenizer

COLUMNS = "高 B-NAME\n勇 I-NAME\n\n李 I-NAME\n四 I-NAME\n\n王 I-NAME\n" + "\n张 B-NAME\n" * 3
convert = partial(run_tener, "convert")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text(COLUMNS, encoding="utf-8")
    return path


def docs(path: Path) -> list[Doc]:
    return list(read_docs(path))


def test_file_is_converted_and_counts_are_reported(corpus: Path, tmp_path: Path) -> None:
    result = convert(corpus, "-o", tmp_path / "out", "--from", "auto", "--scheme", "auto")
    assert result.code == 0
    counted = {"Format columns", "Tag scheme IOB2", "Docs written 6", "Tokens 8"}
    assert counted | {"Tokens with missing annotation 0", "Entities 6", "NAME 6"} <= set(result.lines)
    assert "Language: zh, detected from the characters in the texts" in result.text
    assert "Tags repaired: 2" in result.text
    for number in (4, 7):
        assert f"line {number}: I-NAME at the start of a sentence begins an entity" in result.text
    assert len(docs(tmp_path / "out" / "train.spacy")) == 6


def test_standard_input_is_converted(tmp_path: Path) -> None:
    result = convert("-", "-o", tmp_path / "dev.spacy", stdin=b"\xef\xbb\xbf" + COLUMNS.replace("\n", "\r\n").encode())
    assert result.code == 0
    assert [doc.text for doc in docs(tmp_path / "dev.spacy")] == ["高勇", "李四", "王", "张", "张", "张"]


def test_files_and_directories_are_converted_together(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "x.train").write_text("科0\tB-ORG\n技1\tI-ORG\n", encoding="utf-8")
    (tmp_path / "in" / "sub" / "x.jsonl").write_text('{"text": "北京", "label": [[0, 2, "LOC"]]}', encoding="utf-8")
    (tmp_path / "in" / "README.md").touch()
    result = convert(corpus, tmp_path / "in", "-o", tmp_path / "out")
    assert result.code == 0
    assert "Skipped files: 1 README.md" in result.text
    written = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.spacy"))
    assert written == ["sub/x.spacy", "train.spacy", "x.train.spacy"]
    assert [line for line in result.lines if line.startswith("Format")] == [
        "Format columns",
        "Format jsonl",
        "Format weibo",
    ]


def test_overlapping_entities_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "北京大学", "label": [[0, 2, "LOC"], [0, 4, "ORG"]]}))
    result = convert(tmp_path / "a.jsonl", "-o", tmp_path, "--overlap", "longest")
    assert "Entities that overlap a longer entity, left out: 1" in result.text
    result = convert(tmp_path / "a.jsonl", "-o", tmp_path, "--overlap", "spans", "--force")
    assert {"Entities 2", "Entities that overlap a longer one 1", "LOC 1", "ORG 1"} <= set(result.lines)


def test_accepted_and_rejected_spans_are_counted(tmp_path: Path) -> None:
    record = {"text": "北京大学", "spans": [{"start": 0, "end": 2, "label": "LOC"}], "_is_binary": True}
    answers = [{**record, "answer": answer} for answer in ("accept", "reject", "ignore")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, answers)))
    result = convert(tmp_path / "a.jsonl", "-o", tmp_path)
    assert "Records with accepted or rejected spans; the rest of their texts gets missing annotation: 2" in result.text
    assert {"Docs written 2", "Tokens with missing annotation 6", "Rejected spans 1", "Entities 1"} <= set(result.lines)
    assert "--components.tener_ner.incorrect_spans_key incorrect_spans" in result.text
    _, rejected = docs(tmp_path / "a.spacy")
    assert [(span.text, span.label_) for span in rejected.spans["incorrect_spans"]] == [("北京", "LOC")]


@pytest.mark.parametrize(
    "text",
    [
        '\n{"tokens": ["in", "der", "Bonn", " "], "ner_tags": ["O", "O", "B-LOC", "I-LOC"]}',
        "# id = 1\nin O\nder O\nStadt O\nBonn B-LOC\n\u3000 I-LOC\n",
        "# text = in   der  Bonn \u3000 an\nin O\nder O\nBonn B-LOC\n\u3000 I-LOC\nan O\n",
    ],
    ids=["JSON", "columns", "text comment"],
)
def test_line_of_trimmed_entity_is_first_line_of_its_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf8")
    result = convert(tmp_path / "a.txt", "-o", tmp_path, "--lang", "de")
    assert "Entities with whitespace at their boundaries, which is removed: 1 line 2: LOC 'Bonn" in result.text


GERMAN = [
    ("Er hat gute Excelkenntnisse.", [(12, 17, "SKILL")]),
    ("Sie sucht Javakenntnisse, kein Wissen.", [(10, 14, "SKILL")]),
    ("Nötig: Führerschein der Klasse B.", [(7, 32, "LICENCE")]),
    ("Nötig: Führerschein der Klasse C", [(7, 32, "LICENCE")]),
]


def write_german(path: Path) -> Path:
    records = ({"text": text, "label": entities} for text, entities in GERMAN)
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def entities_of_docs(path: Path) -> list[list[str]]:
    return [[ent.text for ent in doc.ents] for doc in docs(path)]


def test_warning_names_option_that_keeps_entities_inside_words(tmp_path: Path) -> None:
    result = convert(write_german(tmp_path / "a.jsonl"), "-o", tmp_path, "--lang", "de")
    assert "Entities whose boundaries are not token boundaries; their tokens get missing annotation: 2" in result.text
    assert 'use `--tokens characters`, and train with `view = "characters"` of tener_ner' in result.text
    licences = [[GERMAN[2][0][7:32]], [GERMAN[3][0][7:32]]]
    assert entities_of_docs(tmp_path / "a.spacy") == [[], [], *licences]
    result = convert(tmp_path / "a.jsonl", "-o", tmp_path / "c.spacy", "--lang", "de", "--tokens", "characters")
    assert "missing annotation 0" in result.text
    assert entities_of_docs(tmp_path / "c.spacy") == [["Excel"], ["Java"], *licences]
    (tmp_path / "a.txt").write_text("Excel B-X\n")
    result = convert(tmp_path / "a.txt", "-o", tmp_path / "b.spacy", "--lang", "de", "--tokens", "characters")
    assert "--tokens had no effect" in result.text


@pytest.mark.parametrize("splits_text", [True, False], ids=["character tokenizer", "character view"])
def test_entities_inside_words_are_learned_from_characters(
    tmp_path: Path, tiny_model: dict[str, Any], splits_text: bool
) -> None:
    path = tmp_path / "a.spacy"
    convert(write_german(tmp_path / "a.jsonl"), "-o", path, "--lang", "de", "--tokens", "characters")
    nlp = spacy.blank("de")
    if splits_text:
        nlp.tokenizer = make_char_tokenizer()(nlp)
    view = "tokens" if splits_text else "characters"
    nlp.add_pipe("tener_ner", config={"model": tiny_model, "view": view})
    examples = read_examples(nlp, path)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(60):
        nlp.update(examples, sgd=optimizer)
    scores = nlp.evaluate(read_examples(nlp, path))
    assert (scores["ents_f"], scores["ents_per_type"].keys()) == (1.0, {"SKILL", "LICENCE"})
    for text, entities in GERMAN:
        assert [entity.offsets for entity in read_entities(nlp(text))] == entities


def test_unknown_language_is_reported_with_option(tmp_path: Path) -> None:
    text = (
        "Die Bewerberin hat gute Kenntnisse in Excel und sucht eine Stelle als Leiterin im Vertrieb. Sie lebt in Bonn."
    )
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "label": [[36, 41, "SKILL"]]}))
    result = convert(tmp_path / "a.jsonl", "-o", tmp_path)
    assert (
        "Language: unknown, but not English. The texts were tokenized with language-independent rules (xx)"
        in result.text
    )
    assert "Set the language, for example with --lang de" in result.text
    assert "Language:" not in convert(tmp_path / "a.jsonl", "-o", tmp_path, "--lang", "de", "--force").text


def test_misaligned_and_trimmed_spans_are_reported(tmp_path: Path) -> None:
    records = [{"text": "in Newcastle ", "label": [[3, 6, "X"]]}, {"text": "in York ", "label": [[3, 8, "LOC"]]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    result = convert(tmp_path / "a.jsonl", "-o", tmp_path, "--lang", "en")
    assert "Entities whose boundaries are not token boundaries; their tokens get missing annotation: 1" in result.text
    assert "line 1: X 'New'" in result.text
    assert "Entities with whitespace at their boundaries, which is removed: 1" in result.text
    assert {"Tokens with missing annotation 1", "Entities 1", "LOC 1"} <= set(result.lines)
    assert not any(line.startswith("Tag scheme") for line in result.lines)


def test_options_without_effect_are_reported(corpus: Path, tmp_path: Path) -> None:
    options = ("--tag-column", "2", "--texts", "title", "--tag-names", "O,B-PER")
    result = convert(corpus, "-o", tmp_path / "out", *options)
    assert result.code == 0
    assert "--texts had no effect It applies only to the formats labelstudio, not to columns." in result.text
    assert "--tag-names had no effect It applies only to the formats tokens, not to columns." in result.text
    assert "--tag-column" not in result.text
    (tmp_path / "task.jsonl").write_text(json.dumps({"text": "高勇", "label": []}))
    mixed = convert(corpus, tmp_path / "task.jsonl", "-o", tmp_path / "mixed", "--overlap", "longest")
    assert mixed.code == 0
    assert "had no effect" not in mixed.text
