"""Test the reader of JSON corpora: formats of annotation tools, character offsets, and invalid records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spacy_tener.corpora.annotation import AnnotatedText, CorpusError, EntitySpan, Event, Sentence
from spacy_tener.corpora.reader import CorpusOptions, CorpusReader

TEXT = "高勇，男，中国国籍，在北京😂的清华大学任教。"
SPANS = [(0, 2, "NAME"), (11, 13, "LOC"), (15, 19, "ORG")]
ENTITIES = tuple(EntitySpan(*span) for span in SPANS)


def region(start: int, end: int, label: str, **keys: Any) -> dict[str, Any]:
    value = {"start": start, "end": end, "labels": [label], **keys}
    return {"id": "x", "type": "labels", "from_name": "label", "to_name": "text", "value": value}


def task(annotations: Sequence[dict[str, Any]], text: str = TEXT) -> dict[str, Any]:
    return {"id": 1, "data": {"text": text}, "annotations": list(annotations), "predictions": []}


def annotation(spans: Sequence[tuple[int, int, str]] = SPANS, **keys: Any) -> dict[str, Any]:
    return {"id": 1, "was_cancelled": False, "ground_truth": False, "result": [region(*span) for span in spans], **keys}


JSON_MIN = [{"start": s, "end": e, "labels": [x], "text": TEXT[s:e]} for s, e, x in SPANS]
FLAT_RECORDS = {
    "doccano labels": {"text": TEXT, "labels": SPANS},
    "doccano data": {"id": 7, "data": TEXT, "label": SPANS},
    "doccano relations": {
        "text": TEXT,
        "relations": [{"id": 0, "from_id": 0, "to_id": 1, "type": "works_at"}],
        "entities": [{"id": i, "start_offset": s, "end_offset": e, "label": x} for i, (s, e, x) in enumerate(SPANS)],
    },
    "entities": {"text": TEXT, "entities": SPANS},
    "blanks around labels": {"text": TEXT, "entities": [[start, end, f" {label}\n"] for start, end, label in SPANS]},
    "types": {"text": TEXT, "entities": [{"start": s, "end": e, "type": x} for s, e, x in SPANS]},
    "spans as pairs": {
        "curid": "7",
        "text": TEXT,
        "entities": [{"name": TEXT[s:e], "span": [s, e], "type": x} for s, e, x in SPANS],
    },
    "json-min": {"text": TEXT, "annotation_id": 3, "label": JSON_MIN},
}
CLUENER = {
    "text": "浙商银行企业信贷部叶老桂博士则从另一个角度",
    "label": {"name": {"叶老桂": [[9, 11]]}, "company": {"浙商银行": [[0, 3]]}},
}


def reader_of(folder: Path, records: Sequence[Any], **options: Any) -> CorpusReader:
    path = folder / "a.jsonl"
    path.write_text("\n".join(json.dumps(record, ensure_ascii=False) for record in records), encoding="utf-8")
    return CorpusReader(path, CorpusOptions(**options))


def texts(folder: Path, records: Sequence[Any], **options: Any) -> list[AnnotatedText]:
    return list(reader_of(folder, records, **options))


def spans_of(folder: Path, text: str, spans: Sequence[Any], **options: Any) -> tuple[EntitySpan, ...]:
    return texts(folder, [{"text": text, "label": list(spans)}], **options)[0].spans


@pytest.mark.parametrize("shape", FLAT_RECORDS)
def test_flat_record_variants_are_parsed(tmp_path: Path, shape: str) -> None:
    reader = reader_of(tmp_path, [FLAT_RECORDS[shape]])
    assert list(reader) == [AnnotatedText(TEXT, ENTITIES, (), 1)]
    assert (reader.format, reader.scheme, reader.notes.counts.total()) == ("jsonl", None, 0)


@pytest.mark.parametrize(
    ("record", "spans"),
    [
        # Older exports of Label Studio, and texts under other keys.
        ({"data": {"review": TEXT, "id": 3}, "completions": [annotation()]}, SPANS),
        ({"text": "京东京东jd", "label": {"X": {"京东": [[0, 1], [2, 3]]}}}, [(0, 2, "X"), (2, 4, "X")]),
        (task([{"result": [region(0, 5, "X", text="a b\\nc")]}], text="a\u3000b\nc"), [(0, 5, "X")]),
        # Tokens with offsets are not entities. Records that are marked as done need no list of entities.
        ({"text": TEXT, "tokens": [{"text": "高", "start": 0, "end": 1, "id": 0}], "spans": []}, []),
        ({"text": "a", "answer": "accept"}, []),
        ({"text": "b", "annotation_id": 1}, []),
        *(
            ({"text": TEXT, empty: [], filled: SPANS}, SPANS)
            for empty, filled in (("spans", "entities"), ("entities", "label"), ("labels", "ner"))
        ),
        *(({"text": TEXT, name: SPANS}, SPANS) for name in ("ner", "Entity-labels", "实体")),
        *(({"text": TEXT, "sentiment": "x", name: JSON_MIN}, SPANS) for name in ("ner", "Entity-labels", "实体")),
    ],
)
def test_entities_are_found_in_other_record_structures(tmp_path: Path, record: Any, spans: list[Any]) -> None:
    assert texts(tmp_path, [record])[0].spans == tuple(EntitySpan(*span) for span in spans)


def test_unannotated_records_are_skipped_and_counted(tmp_path: Path) -> None:
    records = [task([]), task([annotation(was_cancelled=True)]), task([annotation([])]), {"data": {"text": "abc"}}]
    reader = reader_of(tmp_path, records)
    assert [text.spans for text in reader] == [()]
    assert reader.notes.counts == {Event.LEFT_OUT: 3, Event.NO_ENTITIES: 1}
    reader = reader_of(tmp_path, [{"text": "a", "spans": [], "answer": x} for x in ("reject", "accept", "ignore")])
    assert [text.line for text in reader] == [2]
    assert reader.notes.examples[Event.LEFT_OUT] == ["line 1: its answer is 'reject'", "line 3: its answer is 'ignore'"]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_list_records_have_line_numbers(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n" + json.dumps([task([annotation()])] * 3, indent=indent) + "\n", encoding="utf-8")
    found = list(CorpusReader(path))
    assert [text.spans for text in found] == [ENTITIES] * 3
    starts = [number for number, line in enumerate(path.read_text().splitlines(), 1) if line == "  {"]
    assert [text.line for text in found] == (starts or [2, 2, 2])


@pytest.mark.parametrize("text", [" 在北京", "[在北京", "在{北京\n"])
def test_lines_with_text_entities_pair_are_parsed_as_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(f"{json.dumps([text, {'entities': [[2, 4, 'LOC']]}])}\n" * 2)
    assert [(found.text, len(found.spans)) for found in CorpusReader(path)] == [(text, 1)] * 2


def test_whitespace_at_span_boundaries_is_trimmed_and_counted(tmp_path: Path) -> None:
    record = {"text": " 北京\u3000\n 上海  ", "label": [[0, 4, "LOC"], [6, 8, "LOC"], [8, 10, "LOC"]]}
    reader = reader_of(tmp_path, [record])
    assert [text.spans for text in reader] == [(EntitySpan(1, 3, "LOC"), EntitySpan(6, 8, "LOC"))]
    assert reader.notes.counts == {Event.TRIMMED: 1, Event.BLANK: 1}


def test_duplicate_spans_are_removed_and_counted(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, [{"text": "abcdef", "label": [[4, 6, "B"], [0, 2, "A"], [4, 6, "B"]]}])
    assert [text.spans for text in reader] == [(EntitySpan(0, 2, "A"), EntitySpan(4, 6, "B"))]
    assert reader.notes.counts == {Event.DUPLICATE: 1}


@pytest.mark.parametrize("spans", [[[0, 2, "X"], [1, 3, "Y"]], [[0, 5, "X"], [1, 2, "Y"]], [[0, 2, "X"], [0, 2, "Y"]]])
def test_overlapping_spans_raise_error(tmp_path: Path, spans: list[Any]) -> None:
    with pytest.raises(CorpusError, match=r"a\.jsonl:1: X 0-\d '\w+' and Y \d-\d '\w+' overlap.*--overlap longest"):
        spans_of(tmp_path, "abcdef", spans)


def test_overlap_longest_selects_longest_spans(tmp_path: Path) -> None:
    record = {"text": "abcdefghij", "label": [[0, 2, "A"], [1, 5, "B"], [4, 6, "C"], [6, 8, "D"], [6, 8, "E"]]}
    reader = reader_of(tmp_path, [record], overlap="longest")
    (text,) = reader
    assert isinstance(text, AnnotatedText)
    assert text.spans == (EntitySpan(1, 5, "B"), EntitySpan(6, 8, "D"))
    assert text.missing == ((0, 2), (4, 6), (6, 8))
    assert reader.notes.counts == {Event.OVERLAP: 3}


def test_span_with_different_quoted_text_raises_error(tmp_path: Path) -> None:
    record = task([{"result": [region(16, 20, "ORG", text="清华大学")]}])
    with pytest.raises(CorpusError, match=r"covers '华大学任' but the file quotes '清华大学'.*not bytes"):
        texts(tmp_path, [record])
    with pytest.raises(CorpusError, match="covers '商银行企' but the file quotes '浙商银行'"):
        texts(tmp_path, [{**CLUENER, "label": {"company": {"浙商银行": [[1, 4]]}}}])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"text": "abc", "label": [[0, 4, "X"]]}, "span 0-4 is empty or outside of the text, which has 3 characters"),
        ({"text": "abc", "label": [[-1, 2, "X"]]}, "span -1-2 is empty or outside"),
        ({"text": "abc", "label": [[2, 2, "X"]]}, "span 2-2 is empty or outside"),
        ({"text": "abc", "label": [[2, 1, "X"]]}, "span 2-1 is empty or outside"),
        ({"text": "", "label": [[0, 1, "X"]]}, "span 0-1 is empty or outside"),
        ({"text": "abc", "label": [[0, 1, ""]]}, "span 0-1 has an empty label"),
        ({"text": "abc", "label": [[0, 1, " "]]}, "span 0-1 has an empty label"),
        ({"text": "abc", "label": [[0, 1, None]]}, "span 0-1 has an empty label"),
        ({"text": "abc", "spans": [{"start": 0, "end": 1}]}, "span 0-1 has an empty label"),
        ({"text": "abc", "label": [[0, 1, 5]]}, "a label is not a string: 5"),
        ({"text": "abc", "label": [["0", 1, "X"]]}, 'an offset is not an integer: "0"'),
        ({"text": "abc", "label": [[0, 1.0, "X"]]}, "an offset is not an integer: 1.0"),
        ({"text": "abc", "label": [[0, True, "X"]]}, "an offset is not an integer: true"),
        ({"text": "abc", "label": [{"label": "X"}]}, "an offset is not an integer: missing"),
        (
            {
                "text": "abc",
                "answer": "accept",
                "spns": [{"end": 1, "label": "X"}, {"start": 1, "end": 2, "label": "X"}],
            },
            "an offset is not an integer: missing",
        ),
        ({"text": "abc", "label": [[0, 1]]}, "an entity is not [start, end, label]: [0, 1]"),
        ({"text": "abc", "label": ["X"]}, 'an entity is not [start, end, label]: "X"'),
        ({"text": "abc", "label": "X"}, "no list of entities under any of: spans, entities, labels, label"),
        ({"text": "abc"}, "no list of entities under any of"),
        ({"label": []}, "'text' is not a string: missing"),
        ({"text": ["abc"], "label": []}, "'text' is not a string: [\"abc\"]"),
        ({"text": "a\ud83d", "label": []}, r"the record contains a lone surrogate (\ud83d)"),
        ({"text": "a", "label": [[0, 1, "\ud83d"]]}, "the record contains a lone surrogate"),
        ({"tokens": ["\ud83d"], "tags": ["O"]}, "the record contains a lone surrogate"),
        ({"text": "abc", "label": {"X": []}}, "'X' is not an object such as {\"entity\": [[first, last]]}: []"),
        ({"text": "abc", "label": {"X": {"ab": [0, 1]}}}, "'ab' has offsets that are not [first, last]: 0"),
        ({"text": "abc", "label": {"X": {"ab": 0}}}, "'ab' is not a list of [first, last] pairs: 0"),
        ({"data": {}, "annotations": [{"result": []}]}, "'data' has no key 'text'; the keys of its texts are []"),
        (
            {"data": {"a": "b", "c": "d"}, "annotations": [{"result": []}]},
            "'data' has no key 'text'; the keys of its texts are [\"a\", \"c\"]",
        ),
        ({"data": {"text": "abc"}, "annotations": 1}, "'annotations' is not a list: 1"),
        ({"data": {"text": "abc"}, "annotations": ["x"]}, 'an annotation is not an object: "x"'),
        ({"data": {"text": "abc"}, "annotations": [{}]}, "'result' is not a list: missing"),
        (
            task([{"result": [{"type": "hypertextlabels"}]}]),
            "offsets of regions with the type 'hypertextlabels' don't refer to the plain text",
        ),
        (
            task([{"result": [{"type": "paragraphlabels"}]}]),
            "offsets of regions with the type 'paragraphlabels' don't refer to the plain text",
        ),
        (task([{"result": ["x"]}]), 'a region is not an object: "x"'),
        (["text"], "the record is not a JSON object"),
        (5, "the record is not a JSON object"),
        (
            {"tokens": ["a", "b"], "ner_tags": ["O"]},
            "the number of tags (1) differs from the number of tokens (2)",
        ),
        ({"tokens": ["a"]}, "the record has tokens, but no list of tags"),
        ({"tokens": ["a"], "ner_tags": [1.5]}, "a tag is neither a string nor a number: 1.5"),
        ({"tokens": ["a", ""], "ner_tags": ["O", "O"]}, "'tokens' is not a list of strings"),
        ({"tokens": ["a"], "ner_tags": ["PER"]}, "'PER' is not a tag"),
    ],
)
def test_invalid_record_error_names_the_line(tmp_path: Path, record: Any, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    shape = record if isinstance(record, dict) else {}
    good: dict[str, Any] = {"text": "x", "label": []}
    if isinstance(shape.get("data"), dict):
        good = task([])
    elif isinstance(shape.get("label"), dict):
        good = {"text": "x", "label": {}}
    elif "tokens" in shape:
        good = {"tokens": ["x"], "ner_tags": ["O"]}
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(record)}\n", encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        list(CorpusReader(path))
    assert caught.value.line == 3
    assert caught.value.reason.startswith(reason)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"text": "a", "label": []}\n{"text": "b", "label": [}\n', 2, "not valid JSON: Expecting value at column 25"),
        ('{"text": "a", "label": []}\n{"text": "b"\n', 2, "not valid JSON"),
        ('{"text": "a", "label": []} {"text": "b"}\n', 1, "no list of entities"),
        ('[{"text": "a", "label": []},\n{"text": "b" "label": []}]', 2, "not valid JSON: Expecting ',' delimiter"),
        ('[{"text": "a", "label": []},\n\n{"text": "b", "label": []}\n', 3, "the JSON list has no closing bracket"),
        ('[{"text": "a", "label": []}]\n\n{"text": "b"}', 1, "the JSON list has no closing bracket"),
        ('{"text": "a", "id": ' + "9" * 5000 + "}", 1, "not valid JSON: a number of more than"),
        ('{"text": "a", "label": ' + "[" * 100_000, 1, "not valid JSON: nested too deeply"),
    ],
)
def test_invalid_json_error_names_the_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CorpusError) as caught:
        list(CorpusReader(tmp_path / "a.json"))
    assert caught.value.line == line
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("record", "format", "message"),
    [
        ({"text": "x", "label": []}, "auto", r"a\.jsonl:2: .*\"label\": {}"),
        (CLUENER, "jsonl", "no list of entities"),
        (CLUENER, "columns", "is not a tag"),
    ],
)
def test_records_of_other_format_raise_error(tmp_path: Path, record: Any, format: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        texts(tmp_path, [CLUENER, record], format=format)


# Keys and structures of annotation tools


def test_multiple_entity_lists_are_merged_with_note(tmp_path: Path) -> None:
    """`tener annotate` adds its entities to the export of an annotation tool under another key."""
    path = tmp_path / "a.jsonl"
    found = {"entities": [{"start": s, "end": e, "label": x, "text": TEXT[s:e]} for s, e, x in SPANS[1:]]}
    path.write_text(json.dumps({"text": TEXT, "label": SPANS[:1], **found}))
    reader = CorpusReader(path)
    assert [text.spans for text in reader] == [ENTITIES]
    assert reader.notes.examples[Event.LISTS] == ["line 1: label, entities"]


def test_label_studio_regions_are_assigned_by_text_name(tmp_path: Path) -> None:
    labels = annotation([(0, 2, "PER")])
    record = {"data": {"title": "高勇", "body": "在北京", "url": "x"}, "annotations": [labels]}
    labels["result"] = [
        {**region(0, 2, "PER"), "to_name": "title"},
        {**region(1, 3, "LOC"), "to_name": "body"},
        {"type": "relation", "from_id": "x", "to_id": "y"},
    ]
    assert [(text.text, text.spans) for text in texts(tmp_path, [record])] == [
        ("高勇", (EntitySpan(0, 2, "PER"),)),
        ("在北京", (EntitySpan(1, 3, "LOC"),)),
    ]
    record["data"] = {"text": "高勇在北京"}
    with pytest.raises(CorpusError, match=r"entities refer to several texts \(title, body\)"):
        texts(tmp_path, [record])


def test_label_studio_regions_are_assigned_by_quoted_text(tmp_path: Path) -> None:
    first = {**region(0, 2, "PER", text="高勇"), "to_name": "text-1"}
    second = {**region(1, 3, "LOC", text="北京"), "to_name": "text-2"}
    data = {"title": "高勇", "article": {"body": "在北京"}, "text": "无关", "tags": ["a"]}
    record = {"data": data, "annotations": [{"result": [first, second]}, {"result": []}]}
    found = [(text.text, text.spans) for text in texts(tmp_path, [record])]
    assert found == [("高勇", (EntitySpan(0, 2, "PER", None),)), ("在北京", (EntitySpan(1, 3, "LOC", None),))]


def test_label_studio_texts_can_be_specified(tmp_path: Path) -> None:
    labels = annotation([(0, 2, "PER")])
    labels["result"][0]["to_name"] = "title"
    data = {"title": "高勇", "article": {"body": "在北京"}, "url": "x"}
    records = [{"data": data, "annotations": [labels]}, {"data": data, "annotations": [annotation([])]}]
    with pytest.raises(
        CorpusError,
        match=r"a\.jsonl:2: 'data' has no key 'text'; the keys of its texts are .*article\.body.*--texts title,body",
    ):
        texts(tmp_path, records)
    reader = reader_of(tmp_path, records, texts=("title", "article.body", "absent"))
    assert [(text.text, len(text.spans)) for text in reader] == [("高勇", 1), ("在北京", 0), ("高勇", 0), ("在北京", 0)]
    # Texts with annotated regions are also read. If no task contains any of the given keys, an error is raised.
    reader = reader_of(tmp_path, records, texts=("url",))
    assert [(text.text, len(text.spans)) for text in reader] == [("x", 0), ("高勇", 1), ("x", 0)]
    with pytest.raises(CorpusError, match="'data' contains none of the keys titel; the keys"):
        list(reader_of(tmp_path, records, texts=("titel",)))


def test_label_studio_text_prefers_top_level_strings(tmp_path: Path) -> None:
    deep: dict[str, Any] = {"id": "x"}
    for _ in range(300):
        deep = {"a": deep}
    record = {"data": {"review": "高勇", "meta": {"source": "y", **deep}}, "annotations": [annotation([])]}
    assert [text.text for text in texts(tmp_path, [record])] == ["高勇"]


def test_tag_names_option_maps_numeric_tags(tmp_path: Path) -> None:
    records = [{"tokens": ["EU", "of", "x"], "ner_tags": [1, 0, -100]}]
    expected = [Sentence(("EU", "of", "x"), (EntitySpan(0, 1, "ORG"),), (2,), 1)]
    with pytest.raises(CorpusError, match=r"tag 1 has no name \(0 names given\).*--tag-names"):
        list(reader_of(tmp_path, records))
    assert list(reader_of(tmp_path, records, tag_names=("O", "B-ORG"))) == expected
