"""Panels of figures."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from spacy_tener.explain.explanation import Evidence, ExplainedEntity, ExplainedText, HeatMap, Passage
from spacy_tener.explain.figures import Panel, _map_panels, paint, panels, percent


def test_layers_and_streams_of_one_head_have_a_panel_each() -> None:
    weights = np.ones((1, 2, 2), dtype=np.float32)
    maps = [HeatMap("attention", layer, stream, weights) for layer in (1, 2) for stream in ("lattice", "radicals")]
    titles = [title for each in maps for title, _ in _map_panels(each, "京海", [], [0])]
    assert len(set(titles)) == 4


def test_relations_have_rows_of_entities_and_maps_of_one_head_only_their_kind() -> None:
    weights = np.arange(9, dtype=np.float32).reshape(1, 3, 3)
    entity = ExplainedEntity(1, 2, "X", 0.5, [], [Evidence(0, 1, 1.5), Evidence(2, 3, -2.0)])
    passage = Passage(0, 3, [(0, 1), (1, 2), (2, 3)], [], [HeatMap("relations", 1, "", weights)])
    found = panels(ExplainedText("abc", [entity], [], [], [passage]))
    evidence, relations = found.values()
    assert [*found] == ["what entities rest on", "relations"]
    assert evidence.values.tolist() == [[1.5, 0.0, -2.0]]
    assert (evidence.rows, evidence.columns) == (["b X 50 %"], ["a", "b", "c"])
    assert (relations.values.tolist(), relations.rows) == ([[3.0, 4.0, 5.0]], ["b"])


def test_a_bar_says_what_colours_mean() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    paint(left, Panel(np.array([[0.25, 0.5]]), ["a"], ["b", "c"], "attention"))
    paint(right, Panel(np.array([[-3.0, 1.0]]), ["a"], ["b", "c"], "drop of log-odds", signed=True))
    bars = figure.axes[2:]
    assert [bar.get_ylabel() for bar in bars] == ["attention", "drop of log-odds"]
    assert [bar.get_ylim() for bar in bars] == [(0.0, 0.5), (-3.0, 3.0)]


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
