"""The recipe of Prodigy's, with a stand-in for the three functions of Prodigy's that it calls: `recipe`, which keeps
the arguments, `prefer_uncertain`, which keeps half of the texts, and `set_hashes`. Prodigy itself is not on PyPI."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import spacy
from spacy.language import Language

from spacy_tener.errors import RemedyError
from spacy_tener.pipeline.confidence import Parse
from spacy_tener.pipeline.entities import FoundEntity
from spacy_tener.workbench.corpus.reader import CorpusReader

MODULE = "spacy_tener.workbench.suggestions.prodigy_recipe"
TEXTS = ["王小明去了上海", "今天天气很好", "李雷和韩梅梅在京海路", ""]


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    arguments: dict[str, Any] = {}

    def register(name: str, **annotated: Any) -> Callable[[Any], Any]:
        arguments[name] = annotated
        return lambda function: function

    def prefer_uncertain(scored: Iterable[tuple[float, Any]]) -> Iterator[Any]:
        pairs = list(scored)
        assert all(0 <= score <= 1 for score, _ in pairs)
        yield from (each for _, each in sorted(pairs, key=lambda pair: abs(pair[0] - 0.5))[: len(pairs) // 2])

    def set_hashes(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "_input_hash": hash(record["text"]), "_task_hash": hash(json.dumps(record))}

    modules = {name: ModuleType(name) for name in ("prodigy", "prodigy.components", "prodigy.util")}
    modules["prodigy.components.sorters"] = ModuleType("sorters")
    modules["prodigy"].recipe = register  # type: ignore[attr-defined]
    modules["prodigy.components.sorters"].prefer_uncertain = prefer_uncertain  # type: ignore[attr-defined]
    modules["prodigy.util"].set_hashes = set_hashes  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    module = importlib.import_module(MODULE)
    module.arguments = arguments  # type: ignore[attr-defined]
    yield module
    del sys.modules[MODULE]


@pytest.fixture
def asked(tmp_path: Path, train: Callable[..., Language], recipe: ModuleType) -> Callable[..., dict[str, Any]]:
    """Calls the recipe on raw text, with a trained pipeline."""
    train().to_disk(tmp_path / "model")
    (tmp_path / "raw.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf8")

    def call(**options: Any) -> dict[str, Any]:
        return recipe.tener_correct("mine", str(tmp_path / "model"), str(tmp_path / "raw.txt"), **options)

    return call


def test_questions_are_filled_in_with_the_best_reading_and_show_others(
    asked: Callable[..., dict[str, Any]], recipe: ModuleType
) -> None:
    found = asked(all_texts=True, k_best=3)
    assert (found["dataset"], found["view_id"], found["exclude"]) == ("mine", "ner_manual", None)
    assert (found["config"]["lang"], found["config"]["labels"]) == ("zh", ["GPE", "ORG", "PER"])
    records = list(found["stream"])
    assert [record["text"] for record in records] == [text for text in TEXTS if text]
    first = records[0]
    assert [(span["start"], span["end"], span["label"]) for span in first["spans"]] == [(0, 3, "PER"), (5, 7, "GPE")]
    assert all(0 < span["score"] <= 1 for span in first["spans"])
    assert set(first["meta"]) == {"probability", "reading 2", "reading 3"}
    # A reading's line begins with its probability, and no later one is more probable.
    lines = [float(first["meta"][f"reading {place}"].partition(" ")[0]) for place in (2, 3)]
    assert first["meta"]["probability"] >= lines[0] >= lines[1]
    entities = [FoundEntity(0, 3, "PER", 0.5), FoundEntity(5, 6, "GPE", 0.25)]
    assert recipe.describe(TEXTS[0], Parse(0.0625, entities, -2.8)) == "0.062 | 王小明 PER | 上 GPE"
    assert {"_input_hash", "_task_hash", "tokens"} <= set(first)


def test_uncertain_texts_are_preferred(
    asked: Callable[..., dict[str, Any]], recipe: ModuleType, tmp_path: Path
) -> None:
    texts = [record["text"] for record in asked()["stream"]]
    recogniser = recipe.Recogniser.of(spacy.load(tmp_path / "model"))
    scored = list(recipe.score_records(recogniser, str(tmp_path / "raw.txt"), ["PER"], 1))
    least = min(scored, key=lambda pair: pair[0])[1]["text"]
    assert texts == [least]
    for score, record in scored:
        two = recogniser.ner.k_best(recogniser.read([record["text"]]), 2)[0]
        assert score == pytest.approx(0.5 + (two[0].probability - two[1].probability) / 2, abs=1e-5)
        assert set(record["meta"]) == {"probability"}


def test_only_the_labels_that_are_asked_for_are_filled_in(asked: Callable[..., dict[str, Any]]) -> None:
    found = asked(label="GPE, ORG", all_texts=True, exclude="old,older")
    assert found["config"]["labels"] == ["GPE", "ORG"]
    assert found["exclude"] == ["old", "older"]
    assert {span["label"] for record in found["stream"] for span in record["spans"]} == {"GPE"}
    with pytest.raises(RemedyError, match="--k-best 0"):
        asked(k_best=0)


def test_answers_come_back_as_annotation(asked: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    answers = [{**record, "answer": "accept"} for record in asked(all_texts=True)["stream"]]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers), encoding="utf8")
    first, *_ = CorpusReader(path)
    assert [(span.start, span.end, span.label) for span in first.spans] == [(0, 3, "PER"), (5, 7, "GPE")]


def test_prodigy_finds_the_recipe_and_each_of_its_arguments(recipe: ModuleType) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf8"))["project"]
    assert project["entry-points"]["prodigy_recipes"] == {"tener.correct": f"{MODULE}:tener_correct"}
    assert list(recipe.arguments["tener.correct"]) == list(inspect.signature(recipe.tener_correct).parameters)
