"""Panels of figures."""

from __future__ import annotations

import numpy as np

from spacy_tener.explain.explanation import HeatMap
from spacy_tener.explain.figures import _map_panels


def test_layers_and_streams_of_one_head_have_a_panel_each() -> None:
    weights = np.ones((1, 2, 2), dtype=np.float32)
    maps = [HeatMap("attention", layer, stream, weights) for layer in (1, 2) for stream in ("lattice", "radicals")]
    titles = [title for each in maps for title, _ in _map_panels(each, "京海", [], [0])]
    assert len(set(titles)) == 4
