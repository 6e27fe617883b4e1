"""Panels of figures."""

from __future__ import annotations

import numpy as np

from spacy_tener.explain.explanation import Evidence, ExplainedEntity, ExplainedText, HeatMap, Passage
from spacy_tener.explain.figures import _map_panels, panels


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
    assert [*found] == ["what entities rest on (drop of log-odds)", "relations"]
    assert evidence.values.tolist() == [[1.5, 0.0, -2.0]]
    assert (evidence.rows, evidence.columns) == (["b X 50%"], ["a", "b", "c"])
    assert (relations.values.tolist(), relations.rows) == ([[3.0, 4.0, 5.0]], ["b"])
