"""What GLiNER is trained on, and spacy-llm's examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spacy_tener.workbench.corpus.options import CorpusOptions
from spacy_tener.workbench.corpus.reader import CorpusReader
from spacy_tener.workbench.corpus.records import AnnotatedText, CorpusError, EntitySpan, Event

TOKENS = ("Steve", "Jobs", "founded", "Apple", "Inc.")
SPANS = (EntitySpan(0, 2, "person"), EntitySpan(3, 5, "company"))


def gliner(*entities: Any, tokens: Any = TOKENS) -> dict[str, Any]:
    return {"tokenized_text": tokens, "ner": list(entities), "ner_labels": ["person", "company"]}


def llm(**entities: Any) -> dict[str, Any]:
    return {"text": "Jack and Jill", **entities}


def reader_of(folder: Path, records: Any, **options: Any) -> CorpusReader:
    path = folder / "records.json"
    path.write_text(json.dumps(records, ensure_ascii=False), encoding="utf8")
    return CorpusReader(path, CorpusOptions(**options))


def test_of_gliners_overlapping_entities_the_longest_can_be_kept(tmp_path: Path) -> None:
    record = gliner([0, 1, "person"], [1, 3, "x"], [1, 1, "y"], [0, 1, "person"])
    reader = reader_of(tmp_path, [record], overlap="longest")
    (sentence,) = reader
    assert sentence.spans == (EntitySpan(1, 4, "x"),)
    assert sentence.missing == (0,)
    assert reader.notes.counts == {Event.OVERLAP: 2, Event.DUPLICATE: 1}
    with pytest.raises(CorpusError, match=r"person 0-1 'Steve Jobs' and y 1-1 'Jobs' overlap.*--overlap longest"):
        list(reader_of(tmp_path, [record]))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (gliner([3, 5, "company"]), "entity 3-5 is empty or past the tokens, of which there are 5"),
        (gliner([2, 1, "company"]), "entity 2-1 is empty or past the tokens, of which there are 5"),
        (gliner([-1, 1, "company"]), "entity -1-1 is empty or past the tokens"),
        (gliner([0, 1, " "]), "entity 0-1 has an empty label"),
        (gliner([0, 1]), "an entity is not [first, last, label]: [0, 1]"),
        (gliner([0, "1", "company"]), 'an offset is not a whole number: "1"'),
        (gliner([0, 1, None]), "a label is not a string: missing"),
        (gliner(tokens=["a", ""]), "'tokenized_text' is not a list of strings"),
        (gliner(tokens=None), "'tokenized_text' is not a list of strings: missing"),
        ({"tokenized_text": ["a"]}, "'ner' is not a list of [first, last, label]: missing"),
        (llm(entities={"PER": ["Jim"]}), "'Jim' is not in the text"),
        (llm(entities={"PER": [""]}), "'' is not in the text"),
        (llm(entities={"PER": "Jack"}), "'PER' is not a list of strings"),
        (llm(entities={"PER": ["Jack"], "X": ["Jack and"]}), "PER 0-4 'Jack' and X 0-8 'Jack and' overlap"),
        (
            llm(spans=[{"text": "Jill", "is_entity": True, "label": "P"}] * 2),
            "'Jill' is not in the text after character 13",
        ),
        (llm(spans=[{"text": "Jill", "is_entity": True}]), "a label is not a string: missing"),
    ],
)
def test_bad_records_are_refused_with_their_place(tmp_path: Path, record: Any, reason: str) -> None:
    good = [gliner()] if "tokenized_text" in record else []
    with pytest.raises(CorpusError) as caught:
        list(reader_of(tmp_path, [*good, record]))
    assert caught.value.reason[: len(reason)] == reason
    assert caught.value.line == 1


def test_spacy_llm_names_entities_by_their_strings(tmp_path: Path) -> None:
    text = "Jack and Jill saw Jack."
    jack, jill, again = EntitySpan(0, 4, "PER"), EntitySpan(9, 13, "PER"), EntitySpan(18, 22, "PER")
    reader = reader_of(tmp_path, [{"text": text, "entities": {"PER": ["Jill", "Jack"], "LOC": []}}])
    assert list(reader) == [AnnotatedText(text, (jack, jill, again))]
    assert reader.format == "llm"
    spans = [{"text": name, "is_entity": name != "saw", "label": "PER", "reason": "a name"} for name in ("Jill", "saw")]
    behind = {"text": "Jack", "is_entity": True, "label": "PER", "reason": "a name"}
    assert list(reader_of(tmp_path, [{"text": text, "spans": [*spans, behind]}])) == [
        AnnotatedText(text, (jill, again))
    ]
