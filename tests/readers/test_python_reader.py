"""The Python reader, which does not need spaCy, predicts the same entities and probabilities as the pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import tener_reader
from exported import SYSTEMS, exported, find_cases
from small_systems import UNSEEN

pytestmark = pytest.mark.integration

TOLERANCE = 1e-4
Entities = list[dict[str, Any]]


def load_cases(system: str, n_generated: int) -> tuple[tener_reader.Reader, list[str], list[Entities]]:
    """Return a reader of an exported system, and the texts of its test cases with their entities."""
    cases = find_cases(system, n_generated)
    texts, entities = zip(*((case["text"], case["entities"]) for case in cases), strict=True)
    return tener_reader.load(exported(system), threads=1), list(texts), list(entities)


def check(found: Entities, expected: Entities) -> None:
    without = [[{**entity, "probability": None} for entity in entities] for entities in (found, expected)]
    assert without[0] == without[1]
    for entity, other in zip(found, expected, strict=True):
        assert entity["probability"] == (other["probability"] and pytest.approx(other["probability"], abs=TOLERANCE))


@pytest.mark.parametrize("n_generated", [60, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("system", SYSTEMS)
def test_reader_predicts_same_entities_as_pipeline(system: str, n_generated: int) -> None:
    reader, texts, expected = load_cases(system, n_generated)
    assert sum(map(len, expected)) > n_generated
    for alone, together, entities in zip(map(reader.entities, texts), reader.batch(texts), expected, strict=True):
        check(alone, entities)
        check(together, entities)


def test_model_is_loaded_from_path_or_bytes() -> None:
    path = exported("tener")
    readers = [tener_reader.load(source) for source in (path, str(path), path.read_bytes())]
    assert [reader.about["labels"] for reader in readers] == [["B-ORG", "GPE", "PER"]] * 3
    found = [reader.entities(UNSEEN) for reader in readers]
    assert found[0] == found[1] == found[2] != []
    assert readers[0].batch([]) == []


@pytest.mark.parametrize("system", ["tener", "encoders", "lac-alone"])
def test_lone_surrogate_is_unknown_character(system: str) -> None:
    reader = tener_reader.load(exported(system))
    for text in ("王小明\ud800去了上海", "\udfff", "北京\ud83d大学", "\ude00" * 30 + UNSEEN):
        unknown = "".join("\ufffe" if 0xD800 <= ord(character) < 0xE000 else character for character in text)
        expected = [{**entity, "text": text[entity["start"] : entity["end"]]} for entity in reader.entities(unknown)]
        assert reader.entities(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("system", ["tener", "lac-alone"])
def test_text_of_one_million_characters_is_supported(system: str) -> None:
    line = UNSEEN + "。\n"
    reader = tener_reader.load(exported(system))
    few, many = (reader.entities(line * count) for count in (100, 50_500))
    assert len(line * 50_500) > 1_000_000
    assert [{**entity, "probability": None} for entity in few[:-20]] == [
        {**entity, "probability": None} for entity in many[: len(few) - 20]
    ]
    assert len(many) == pytest.approx(len(few) * 505, rel=0.01)


def edit_metadata(**changes: Any) -> bytes:
    """Return an exported file with changed metadata. Without changes, the metadata are removed."""
    model = onnx.load(exported("tener"))
    [entry] = model.metadata_props
    del model.metadata_props[:]
    if changes:
        model.metadata_props.add(key="tener", value=json.dumps({**json.loads(entry.value), **changes}))
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Path("missing.onnx"),
            "missing.onnx cannot be loaded as an ONNX model: .*exist.* Export .*tener export",
        ),
        (lambda: b"", "The model cannot be loaded as an ONNX model: "),
        (lambda: b"<html>404</html>", "The model cannot be loaded as an ONNX model: "),
        (lambda: exported("tener").read_bytes()[:30_000], "The model cannot be loaded as an ONNX model: "),
        (edit_metadata, "The model was not exported by spacy_tener. Export "),
        (
            lambda: edit_metadata(format=2),
            "by a newer version of spacy_tener: it has the format 2, but this reader only supports the format 1. Use "
            "the reader from",
        ),
    ],
)
def test_invalid_model_file_raises_error(make: Callable[[], Path | bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        tener_reader.load(make())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", [None, 3, b"text", ["text"]])
def test_non_string_text_raises_error(text: Any) -> None:
    reader = tener_reader.load(exported("tener"))
    with pytest.raises(TypeError, match=f"A text must be a string, but got {type(text).__name__} at index 0"):
        reader.entities(text)
    with pytest.raises(TypeError, match="at index 1"):
        reader.batch(["text", text])
    with pytest.raises(TypeError, match="Texts must be a list of strings, but got a single string"):
        reader.batch("text")
