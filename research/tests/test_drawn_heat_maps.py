"""Panels of figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spacy
from matplotlib.figure import Figure
from research_commands import run_research

from research.heat_maps import Panel, _map_panels, paint, panels, percent
from spacy_tener.explain.explanation import Evidence, ExplainedEntity, ExplainedText, HeatMap, Passage


def test_layers_and_streams_of_one_head_have_a_panel_each() -> None:
    weights = np.ones((1, 2, 2), dtype=np.float32)
    maps = [HeatMap("attention", layer, stream, weights) for layer in (1, 2) for stream in ("lattice", "radicals")]
    found = [each for own in maps for each in _map_panels(own, "京海", [], [0])]
    streams = ("lattice", "radicals")
    assert [title for title, _ in found] == [
        f"attention, {name}, layer {n}, head 1" for n in (1, 2) for name in streams
    ]
    assert all((list(panel.rows), panel.unit) == (["京", "海"], "attention") for _, panel in found)


def test_relations_have_rows_of_entities_and_maps_of_one_head_only_their_kind() -> None:
    weights = np.arange(9, dtype=np.float32).reshape(1, 3, 3)
    entity = ExplainedEntity(1, 2, "X", 0.5, [], [Evidence(0, 1, 1.5), Evidence(2, 3, -2.0)])
    passage = Passage(0, 3, [(0, 1), (1, 2), (2, 3)], [], [HeatMap("relations", 1, "", weights)])
    found = panels(ExplainedText("abc", [entity], [], [], [passage]))
    evidence, relations = found.values()
    assert [*found] == ["what entities rest on", "relations"]
    assert evidence.values.tolist() == [[1.5, 0.0, -2.0]]
    assert (evidence.rows, evidence.columns) == (["b X 50 %"], ["a", "b", "c"])
    assert (relations.values.tolist(), relations.rows, relations.unit) == ([[3.0, 4.0, 5.0]], ["b"], "strength")
    without = panels(ExplainedText("abc", [], [], [], [passage]))
    assert {title: panel.rows for title, panel in without.items()} == {"relations": ["a", "b", "c"]}


def test_passages_are_numbered_where_several_have_something_to_show() -> None:
    places = [(0, 1), (1, 2), (2, 3)]
    passages = [Passage(start, end, [(start, end)]) for start, end in places]
    first, _, last = [ExplainedEntity(start, end, "X", 0.5, [], [Evidence(start, end, 1.0)]) for start, end in places]
    title = "what entities rest on"
    assert [*panels(ExplainedText("abc", [last], [], [], passages))] == [title]
    assert [*panels(ExplainedText("abc", [first, last], [], [], passages))] == [f"passage {n}: {title}" for n in (1, 2)]
    assert panels(ExplainedText("abc", [replace(first, evidence=[])], [], [], passages)) == {}


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


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_text_becomes_a_figure(ending: str, tmp_path: Path) -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner").add_label("PER")
    nlp.initialize()
    nlp.to_disk(tmp_path / "model")
    ran = run_research("heat-maps", tmp_path / "model", "Anna", "-o", tmp_path / f"figure.{ending}")
    assert ran.code == 0, ran.text
    assert (tmp_path / f"figure.{ending}").stat().st_size > 1000
