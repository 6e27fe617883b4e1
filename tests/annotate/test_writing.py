"""Test that output files contain the input records with entities added."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from archives import read_output
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_tener.annotate import AnnotateSettings
from spacy_tener.annotate.arrow import rows_of_table, schema_of_rows, table_of_rows
from spacy_tener.annotate.encoding import dump_json, dump_jsonl
from spacy_tener.annotate.local import annotate_locally
from spacy_tener.errors import UserError

ROWS = [
    {"text": "王小明去了上海", "key": "007", "more": {"a": [1]}},
    {"text": "", "key": "008", "tags": ["x"]},
    {"text": "王\ud800", "key": "0\udfff", "number": 1},
    {"key": None},
    {"text": 5, "key": "京", "number": 2},
]

TEXTS = ["王小明去了上海", "李华去了上海", "吴重阳在中国银行工作。", "李华和张伟去了南京大学", "北京大学在北京"]


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_output_has_input_columns_and_entities(tmp_path, archive, run, format) -> None:
    total = run([archive], tmp_path / "out", format, probability=True)
    assert (total.texts, total.errors) == (5, 3)
    rows = read_output(tmp_path / "out")
    assert len(rows) == 5
    assert total.entities == sum(len(row["entities"]) for row in rows) > 0
    assert [bool(row["error"]) for row in rows] == [False, False, True, True, True]
    assert [row["key"] for row in rows][:2] == ["007", "008"]
    assert {"start", "end", "label", "text", "probability"} == set(rows[0]["entities"][0])
    assert [row.get("number") for row in rows] == [None, None, 1, None, 2]


@Language.component("fails_at_hua")
def fail_at_hua(doc):
    if "华" in doc.text:
        raise ValueError("华")
    return doc


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_component_failure_is_written_to_error_column(tmp_path, make_job, saved, format) -> None:
    (tmp_path / "in.jsonl").write_text(dump_jsonl({"text": text, "id": i} for i, text in enumerate(TEXTS)))
    job = make_job([tmp_path / "in.jsonl"], tmp_path / "out", format, part_size=3)
    nlp = spacy.load(saved["tener"])
    nlp.add_pipe("fails_at_hua")
    job.annotator.use(nlp)
    total = annotate_locally(job, lambda *_: None)
    assert (total.texts, total.errors) == (len(TEXTS), 2)
    rows = read_output(tmp_path / "out")
    assert [(row["text"], row["id"]) for row in rows] == list(zip(TEXTS, range(len(TEXTS)), strict=True))
    assert ["ValueError: 华" in (row["error"] or "") for row in rows] == ["华" in text for text in TEXTS]
    assert all(bool(row["entities"]) != bool(row["error"]) for row in rows)


def test_text_longer_than_max_length_is_annotated(tmp_path, run, nlp, monkeypatch) -> None:
    (tmp_path / "in.txt").write_text("王小明去了上海")
    monkeypatch.setattr(nlp, "max_length", 3)
    total = run([tmp_path / "in.txt"], tmp_path / "out")
    assert (total.errors, total.entities) == (0, 2)


def test_jsonl_output_appends_columns_to_input_records(tmp_path, archive, run) -> None:
    run([archive], tmp_path / "out")
    rows = read_output(tmp_path / "out")
    assert [{name: row[name] for name in row if name not in ("entities", "error")} for row in rows] == ROWS
    assert (tmp_path / "out" / "part-00000.jsonl").read_text(encoding="utf8").startswith('{"text": "王小明去了上海"')


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_output_can_be_annotated_again(tmp_path, archive, run, format) -> None:
    run([archive], tmp_path / "out", format, prefix="a_")
    again = run([tmp_path / "out"], tmp_path / "again", prefix="b_")
    assert again.texts == 5
    found = read_output(tmp_path / "again")
    assert found[0]["a_entities"] == found[0]["b_entities"]
    assert [row["text"] for row in found[:2]] == ["王小明去了上海", ""]


WITHOUT_PANDAS = """
import sys
from importlib.machinery import ModuleSpec
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == "pandas" else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        raise ImportError(module.__name__)
sys.meta_path.insert(0, NoPandas())
import pyarrow.parquet as pq
from spacy_tener.annotate.arrow import rows_of_table
print(rows_of_table(pq.read_table(sys.argv[1])))
"""


def test_nanosecond_timestamps_do_not_depend_on_pandas(tmp_path) -> None:
    times = pa.array([1, None, 10**18], pa.timestamp("ns"))
    nested = pa.array([[{"at": 1}], None, []], pa.list_(pa.struct([("at", pa.timestamp("ns"))])))
    columns = {"at": times, "coded": times.dictionary_encode(), "nested": nested}
    pq.write_table(pa.table({**columns, "ago": pa.array([1, 2, 3], pa.duration("ns"))}), tmp_path / "in.parquet")
    rows = rows_of_table(pq.read_table(tmp_path / "in.parquet"))
    expected = ["1970-01-01 00:00:00.000000001", None, "2001-09-09 01:46:40.000000000"]
    assert [row["at"] for row in rows] == [row["coded"] for row in rows] == expected
    assert [row["nested"] for row in rows] == [[{"at": expected[0]}], None, []]
    assert [row["ago"] for row in rows] == [1, 2, 3]
    command = [sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path / "in.parquet")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == str(rows)


def test_parquet_output_keeps_column_types(tmp_path, run) -> None:
    table = pa.table(
        {
            "when": pa.array([datetime(2026, 1, 1)] * 3, pa.timestamp("ns")),
            "text": pa.array(["京", "上海", None], pa.large_string()),
            "id": pa.array([1, 2, 3], pa.uint16()),
            "nested": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
            "raw": [b"\xff", b"", None],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    run([tmp_path / "in.parquet"], tmp_path / "out", "parquet", part_size=2)
    found = pq.read_table(tmp_path / "out")
    assert found.select(table.column_names).equals(table)
    assert found.column_names == [*table.column_names, "entities", "error"]
    assert [path.name for path in sorted((tmp_path / "out").glob("part*"))] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    run([tmp_path / "in.parquet"], tmp_path / "lines")
    assert read_output(tmp_path / "lines")[0] | {"entities": 0} == {
        **table.slice(0, 1).to_pylist()[0],
        "when": "2026-01-01 00:00:00.000000000",
        "raw": "/w==",
        "entities": 0,
        "error": None,
    }


def test_parquet_parts_share_schema_with_other_values_in_rest(tmp_path, run) -> None:
    lines = [
        {"text": "京", "n": 1},
        {"text": "京", "n": 2, "s": "x"},
        {"text": "京", "n": "two"},
        {"text": "京", "new": [None]},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pq.write_table(pa.table({"text": ["京"]}), tmp_path / "table.parquet")  # This table has its own schema.
    run([tmp_path / "table.parquet", tmp_path / "in.jsonl"], tmp_path / "out", "parquet", part_size=2)
    _, first, second = (pq.read_table(path) for path in sorted((tmp_path / "out").glob("part*")))
    assert first.schema.equals(second.schema)
    assert first["n"].to_pylist() == [1, 2]
    assert first["rest"].to_pylist() == [None, None]
    assert [(json.loads(row["rest"]), row["n"]) for row in second.to_pylist()] == [
        ({"n": "two"}, None),
        ({"new": [None]}, None),
    ]


def test_columns_with_mixed_types_become_json() -> None:
    rows = [
        {"text": "x", "mixed": 1, "d": {"a": "\ud800"}, "l": [[1], [{}]], "big": 2**70, "none": None},
        {"mixed": "1"},
    ]
    settings = AnnotateSettings()
    schema = schema_of_rows(rows, settings)
    assert schema.names == ["text", "mixed", "d", "l", "big", "none"]
    assert {str(field.type) for field in schema} == {"string"}
    table = table_of_rows([{**row, "entities": [], "error": None} for row in rows], schema, settings)
    assert table.to_pylist()[0] == {
        "text": "x",
        "mixed": "1",
        "d": '{"a": "\\\\ud800"}',
        "l": "[[1], [{}]]",
        "big": str(2**70),
        "none": None,
        "entities": [],
        "error": None,
        "rest": None,
    }
    assert dump_json({"x": "\ud800京"}) == '{"x": "\\ud800\\u4eac"}'


@pytest.mark.parametrize(
    ("first", "later", "written"),
    [
        ([1, 0], [0.87, -0.5, True, 3, None, 2**70, "x", [1]], [None, None, None, 3, None, None, None, None]),
        ([0.5, 1], [2, 2**53 + 1, False, float("inf"), 1e300], [2.0, None, None, float("inf"), 1e300]),
        ([0.5], [True, 2], [None, 2.0]),
        ([True], [False, 1, "true"], [False, None, None]),
        (["a"], ["b", 5, None, ["c"]], ["b", None, None, None]),
        ([[1, 2]], [[3], [0.5], [], 4, [True], [None]], [[3], None, [], None, None, [None]]),
        ([None], ["x", 1], ["x", None]),
    ],
)
def test_value_of_other_type_is_written_to_rest_column(first, later, written) -> None:
    schema = schema_of_rows([{"text": "x", "n": value} for value in first], AnnotateSettings())
    rows = [{"text": "x", "n": value, "entities": [], "error": None} for value in later]
    table = table_of_rows(rows, schema, AnnotateSettings()).to_pylist()
    assert [row["n"] for row in table] == written
    for value, row in zip(later, table, strict=True):
        if row["n"] is None and value is not None:
            assert repr(json.loads(row["rest"])["n"]) == repr(value)
        else:
            assert row["rest"] is None


def test_input_column_named_rest_requires_prefix(tmp_path, run) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "x", "rest": 1}\n')
    with pytest.raises(UserError, match=r"already have columns named rest.*--prefix"):
        run([tmp_path / "in.jsonl"], tmp_path / "out", "parquet")
    run([tmp_path / "in.jsonl"], tmp_path / "out", "parquet", prefix="a_")
    (row,) = read_output(tmp_path / "out")
    assert (row["rest"], row["a_rest"]) == (1, None)
    run([tmp_path / "in.jsonl"], tmp_path / "lines")


def test_surrogates_in_parquet_column_names_are_escaped(tmp_path, run) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "x", "a\\ud800": 1, "b": {"\\udfff": 2}}\n')
    run([tmp_path / "in.jsonl"], tmp_path / "parquet", "parquet")
    assert read_output(tmp_path / "parquet")[0]["a\\ud800"] == 1
    run([tmp_path / "in.jsonl"], tmp_path / "jsonl", "jsonl")
    assert "a\ud800" in read_output(tmp_path / "jsonl")[0]


def test_string_store_does_not_grow(tmp_path, run, nlp) -> None:
    (tmp_path / "in.txt").write_text("".join(f"新词{chr(0x4E00 + n)}{n}\n" for n in range(300)), encoding="utf8")
    before = len(nlp.vocab.strings)
    run([tmp_path / "in.txt"], tmp_path / "out")
    assert len(nlp.vocab.strings) < before + 50


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_arbitrary_user_data_is_written(tmp_path, run, nlp, format) -> None:
    doc = Doc(nlp.vocab, ["上海"], spaces=[False])
    doc.user_data |= {"scores": np.array([0.5, 1.5]), "n": np.float64(2.5), "pairs": {("a", 1): 2}, "京": {"京": 1}}
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "in.spacy")
    run([tmp_path / "in.spacy"], tmp_path / "out", format)
    (row,) = read_output(tmp_path / "out")
    pairs, inner = (json.loads(row[name]) if format == "parquet" else row[name] for name in ("pairs", "京"))
    assert (list(row["scores"]), row["n"], inner) == ([0.5, 1.5], 2.5, {"京": 1})
    assert list(pairs.values()) == [2]


@pytest.mark.parametrize("text", ["王小明去了上海", "今天天气很好"])
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_name_conflict_in_later_record_is_error_of_that_record(tmp_path, run, format, text) -> None:
    first, later = {"text": text}, {"text": text, "entities": "mine"}
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(later)}\n")
    assert run([tmp_path / "in.jsonl"], tmp_path / "out", format, part_size=1).errors == 1
    fine, overwritten = read_output(tmp_path / "out")
    assert "the field entities of the record was overwritten" in overwritten["error"]
    assert (overwritten["text"], overwritten["entities"]) == (fine["text"], fine["entities"])


@pytest.mark.parametrize(
    ("name", "options"),
    [("in.parquet", {}), ("in.jsonl", {"format": "parquet"})],
)
def test_missing_pyarrow_raises_error_only_for_parquet(tmp_path, archive, make_job, monkeypatch, name, options) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "in.parquet")
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    make_job([archive], tmp_path / "out")
    with pytest.raises(UserError, match=r"Parquet requires pyarrow.*pip install pyarrow"):
        make_job([tmp_path / name], tmp_path / "out", **options)


def test_table_with_duplicate_column_names_raises_error(tmp_path, run) -> None:
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array([1]), pa.array([2])], names=["text", "a", "a"])
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(UserError, match="several columns named a"):
        run([tmp_path / "in.parquet"], tmp_path / "out", "parquet")


def test_column_conflicts_are_detected_before_writing(tmp_path, run) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"text": ["x"], "error": [1]}), tmp_path / "2.parquet")
    with pytest.raises(UserError, match="already have columns named error"):
        run([tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path / "out", "parquet", part_size=1)
    assert not (tmp_path / "out").exists()
    run([tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path / "out", "parquet", part_size=1, prefix="a_")
    assert [row.get("error") for row in read_output(tmp_path / "out")] == [None, 1]
