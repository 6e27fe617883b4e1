"""Panels of figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spacy
from matplotlib.figure import Figure
from research_commands import run_research

from research.heat_maps import Panel, paint, panels, percent
from research.maps import HeatMap
from spacy_tener.explain import Evidence, ExplainedEntity, ExplainedText


def explained(entities: list[ExplainedEntity], text: str = "abc") -> ExplainedText:
    return ExplainedText(text, entities, [], [])


UNITS = [(0, 1), (1, 2), (2, 3)]


def test_layers_and_streams_of_one_head_have_a_panel_each() -> None:
    weights = np.ones((1, 2, 2), dtype=np.float32)
    streams = ("lattice", "radicals")
    maps = [HeatMap("attention", layer, stream, weights) for layer in (1, 2) for stream in streams]
    found = panels(explained([], "京海"), UNITS[:2], maps)
    assert [*found] == [f"attention, {name}, layer {n}, head 1" for n in (1, 2) for name in streams]
    assert all((list(panel.rows), panel.unit) == (["京", "海"], "attention") for panel in found.values())


def test_relations_have_rows_of_entities_and_maps_of_one_head_only_their_kind() -> None:
    maps = [HeatMap("relations", 1, "", np.arange(9, dtype=np.float32).reshape(1, 3, 3))]
    entity = ExplainedEntity(1, 2, "X", 0.5, [], [Evidence(0, 1, 1.5), Evidence(2, 3, -2.0)])
    found = panels(explained([entity]), UNITS, maps)
    evidence, relations = found.values()
    assert [*found] == ["what entities rest on", "relations"]
    assert evidence.values.tolist() == [[1.5, 0.0, -2.0]]
    assert (evidence.rows, evidence.columns) == (["b X 50 %"], ["a", "b", "c"])
    assert (relations.values.tolist(), relations.rows, relations.unit) == ([[3.0, 4.0, 5.0]], ["b"], "strength")
    without = panels(explained([]), UNITS, maps)
    assert {title: panel.rows for title, panel in without.items()} == {"relations": ["a", "b", "c"]}
    assert panels(explained([replace(entity, evidence=[])]), UNITS, []) == {}


def test_a_bar_says_what_colours_mean() -> None:
    figure = Figure()
    values = [[0.25, 0.5], [0.25, 0.5], [-3.0, 1.0], [-0.1, 0.2]]
    units = ["attention", "strength", "drop of log-odds", "drop of log-odds"]
    axes = figure.subplots(1, 4)
    for axis, row, unit in zip(axes, values, units, strict=True):
        paint(axis, Panel(np.array([row]), ["a"], ["b", "c"], unit, signed=unit == units[-1]))
    bars = figure.axes[4:]
    assert [bar.get_ylabel() for bar in bars] == units
    assert [bar.get_ylim() for bar in bars] == [(0.0, 0.5), (0.25, 0.5), (-3.0, 3.0), (-0.5, 0.5)]


def test_rows_and_columns_have_their_names_and_those_of_columns_are_narrow() -> None:
    axes = Figure().subplots()
    paint(axes, Panel(np.zeros((2, 3)), ["上海 GPE", "b"], ["上海", "bc", "d"], "attention"))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["上海 GPE", "b"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["上\n海", "bc", "d"]


@pytest.mark.parametrize(
    ("probability", "written"),
    [
        (None, "–"),
        (0.9995, "> 99.9 %"),
        (0.9751, "97.5 %"),
        (0.625, "63 %"),
        (0.1, "10.0 %"),
        (0.0625, "6.3 %"),
        (0.0005, "0.1 %"),
        (0.0001, "< 0.1 %"),
    ],
)
def test_probabilities_are_written_as_on_the_page(probability: float | None, written: str) -> None:
    assert percent(probability) == written


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner").add_label("PER")
    nlp.initialize()
    path = tmp_path_factory.mktemp("model")
    nlp.to_disk(path)
    return path


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_text_becomes_a_figure(ending: str, model: Path, tmp_path: Path) -> None:
    ran = run_research("heat-maps", model, "Anna", "-o", tmp_path / f"figure.{ending}")
    assert ran.code == 0, ran.text
    assert (tmp_path / f"figure.{ending}").stat().st_size > 1000


def test_of_a_text_that_no_figure_has_room_for_a_sentence_is_wanted(model: Path, tmp_path: Path) -> None:
    ran = run_research("heat-maps", model, "Anna" * 100, "-o", tmp_path / "figure.png")
    assert ran.code == 1
    assert "a figure has room for 64" in ran.text
    assert "Give a shorter sentence" in ran.text
