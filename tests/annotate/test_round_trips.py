"""Test with random data that annotation in all pairs of formats keeps every value, in its column or in `rest`."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_corpora
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin

from spacy_tener.annotate import AnnotateSettings, Annotator
from spacy_tener.annotate.encoding import encodable
from spacy_tener.annotate.local import annotate_locally
from spacy_tener.annotate.output import AnnotationJob
from spacy_tener.annotate.records import ReadOptions, find_sources

Row = dict[str, Any]
ADDED = {"entities", "error", "rest"}
TEXT = st.text(st.sampled_from("去上海 a\"'\\,;\t\n\r\u2028😂\ud800\udfff\ufeff1"), max_size=6)
TEXT = TEXT.map(lambda text: text.replace("\ud800\udfff", ""))  # JSON parsers combine the pair to one character.
UTF8_TEXT = TEXT.map(encodable)
INTEGERS = st.one_of(st.integers(-3, 3), st.integers(-(2**70), 2**70), st.sampled_from([2**53 + 1, 2**63, -(2**63)]))
FLOATS = st.one_of(st.sampled_from([0.5, 1.0, -0.0, math.nan, math.inf]), st.floats(width=64))
SCALARS: list[st.SearchStrategy[Any]] = [INTEGERS, FLOATS, st.booleans(), TEXT, st.none()]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(SCALARS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=2)),
    max_leaves=4,
)
NUMBERS = st.one_of(st.integers(-3, 3), FLOATS)
VALUE_STRATEGIES = [
    *SCALARS,
    NUMBERS,
    st.lists(INTEGERS, max_size=2),
    st.lists(NUMBERS, max_size=2),
    st.lists(TEXT, max_size=2),
    JSON,
]


@st.composite
def rows_of_json(draw: st.DrawFn) -> list[Row]:
    """Draw rows whose value types change after the first part, which determines the types of the columns."""
    names = ["a", "b", "c", "d", draw(TEXT.filter(lambda name: name not in {*ADDED, *"abcd", "text"}))]
    strategies = [[draw(st.sampled_from(VALUE_STRATEGIES)) for _ in names] for _ in range(2)]
    rows = []
    for row_strategies in [*strategies[:1] * draw(st.integers(0, 2)), *strategies[1:] * draw(st.integers(1, 3))]:
        values = {
            name: draw(st.one_of(strategy, strategy, st.just(...)))
            for name, strategy in zip(names, row_strategies, strict=True)
        }
        rows.append({"text": draw(TEXT), **{name: value for name, value in values.items() if value is not ...}})
    return rows


def jsonl(rows: Sequence[Row]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def docs(rows: Sequence[Row]) -> bytes:
    data = DocBin(store_user_data=True)
    for row in rows:
        doc = Doc(spacy.blank("zh").vocab, list(row["text"]), spaces=[False] * len(row["text"]))
        doc.user_data.update({name: value for name, value in row.items() if name != "text"})
        data.add(doc)
    return data.to_bytes()


def loads(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=pytest.fail)  # NaN is not valid JSON.


def read(content: bytes, format: str) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of an output part, and the metadata of its columns."""
    if format == "jsonl":
        return [loads(line) for line in content.splitlines()], {}
    table = pq.read_table(io.BytesIO(content))
    return table.to_pylist(), {field.name: field.metadata for field in table.schema}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, spacy.Language]:
    nlp = small_corpora.rule_pipeline(GPE="上海")
    nlp.to_disk(path := tmp_path_factory.mktemp("rules") / "model")
    return path, nlp


@pytest.fixture
def annotated(rules: tuple[Path, spacy.Language], tmp_path: Path) -> Callable[[bytes, str, str], list[Row]]:
    """Return a function that annotates a file and returns its rows, with JSON columns and `rest` decoded."""
    (tmp_path / "in").mkdir()

    def run(content: bytes, ending: str, format: str) -> list[Row]:
        path, nlp = rules
        (tmp_path / "in" / f"a.{ending}").write_bytes(content)
        annotator = Annotator(path, AnnotateSettings())
        annotator.use(nlp)
        sources, _ = find_sources([str(tmp_path / "in" / f"a.{ending}")])
        annotate_locally(
            AnnotationJob(annotator, sources, tmp_path / "out", ReadOptions(part_size=2), format), lambda *_: None
        )
        rows: list[Row] = []
        for part in sorted((tmp_path / "out").glob("part-*")):
            found, metadata = read(part.read_bytes(), format)
            for row in found:
                rest = loads(row.pop("rest", None) or "{}")
                as_json = {key for key, data in metadata.items() if data and b"format" in data and row[key] is not None}
                rows.append({key: loads(value) if key in as_json else value for key, value in row.items()} | rest)
        shutil.rmtree(tmp_path / "out")
        return rows

    return run


def same(a: Any, b: Any) -> bool:
    """Return whether values are equal. Tuples equal lists, integers equal floats, and NaN equals NaN."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b or (a != a and b != b))


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinities with None, as in JSON."""
    if isinstance(value, (list, tuple)):
        return [replace_nonfinite(item) for item in value]
    if isinstance(value, dict):
        return {name: replace_nonfinite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def large_integers_to_strings(value: Any) -> Any:
    """Convert integers that msgpack cannot represent to strings."""
    if isinstance(value, (list, tuple)):
        return [large_integers_to_strings(item) for item in value]
    if isinstance(value, dict):
        return {name: large_integers_to_strings(item) for name, item in value.items()}
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


FUZZ = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@FUZZ
@given(rows=rows_of_json())
def test_json_rows_round_trip_without_loss(annotated: Any, format: str, rows: list[Row]) -> None:
    check(annotated(jsonl(rows), "jsonl", format), rows, format)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@FUZZ
@given(rows=rows_of_json())
def test_docs_round_trip_without_loss(annotated: Any, format: str, rows: list[Row]) -> None:
    rows = [large_integers_to_strings(encodable(row)) for row in rows]
    check(annotated(docs(rows), "spacy", format), rows, format)


TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): UTF8_TEXT,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): FLOATS,
    pa.bool_(): st.booleans(),
    pa.list_(pa.string()): st.lists(UTF8_TEXT, max_size=2),
    pa.struct([("a", pa.int64())]): st.fixed_dictionaries({"a": st.integers(0, 9)}),
}
TABLE_ROWS = st.lists(st.tuples(UTF8_TEXT, *(st.none() | value for value in TYPES.values())), min_size=1, max_size=7)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@FUZZ
@given(rows=TABLE_ROWS)
def test_tables_round_trip_without_loss(annotated: Any, format: str, rows: list[tuple[Any, ...]]) -> None:
    columns = {"text": pa.array([row[0] for row in rows], pa.string())}
    columns |= {str(type): pa.array([row[n] for row in rows], type) for n, type in enumerate(TYPES, 1)}
    pq.write_table(pa.table(columns), file := io.BytesIO())
    check(annotated(file.getvalue(), "parquet", format), pa.table(columns).to_pylist(), format)


def check(found: list[Row], rows: list[Row], format: str) -> None:
    assert len(found) == len(rows)
    for row, written in zip(rows, found, strict=True):
        expected = row if format == "jsonl" else encodable(row)
        unknown = {name: value for name, value in written.items() if name not in {*expected, "entities", "error"}}
        assert not any(value is not None for value in unknown.values()), unknown
        for name, value in expected.items():
            forms = {"jsonl": [replace_nonfinite(value)], "parquet": [value, replace_nonfinite(value)]}[format]
            assert any(same(written.get(name), form) for form in forms), (name, value, written)
        readable = row["text"] == encodable(row["text"])
        assert (written["error"] is None) == readable
        assert [(entity["start"], entity["end"]) for entity in written["entities"]] == [
            (start, start + 2)
            for start in range(len(row["text"]))
            if readable and row["text"][start : start + 2] == "上海"
        ]
