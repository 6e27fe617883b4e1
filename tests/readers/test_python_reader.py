"""The reader for Python without spaCy finds in an exported file what the pipeline finds: entities and probabilities."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tener_reader
from exported import SYSTEMS, exported_cases

MARGIN = 1e-4
Entities = list[dict[str, Any]]


def load_cases(system: str) -> tuple[tener_reader.Reader, list[str], list[Entities]]:
    """Return a reader of a system's file, the texts of its cases, and their entities."""
    folder = exported_cases()
    part = json.loads((folder / "cases.json").read_text(encoding="utf8"))[system]
    texts, entities = zip(*((case["text"], case["entities"]) for case in part["cases"]), strict=True)
    return tener_reader.load(folder / part["file"], threads=1), list(texts), list(entities)


def check(found: Entities, expected: Entities) -> None:
    without = [[{**entity, "probability": None} for entity in entities] for entities in (found, expected)]
    assert without[0] == without[1]
    for entity, other in zip(found, expected, strict=True):
        assert entity["probability"] == (other["probability"] and pytest.approx(other["probability"], abs=MARGIN))


@pytest.mark.parametrize("system", SYSTEMS)
def test_entities_and_probabilities_are_the_pipelines(system):
    reader, texts, expected = load_cases(system)
    assert sum(map(len, expected)) > 60
    for alone, together, entities in zip(map(reader.entities, texts), reader.batch(texts), expected, strict=True):
        check(alone, entities)
        check(together, entities)
