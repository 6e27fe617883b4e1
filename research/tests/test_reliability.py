"""Tests of reliability diagrams."""

from __future__ import annotations

import numpy as np

from research.reliability import draw_reliability


def test_each_series_is_drawn_with_its_share_that_is_right_beside_the_diagonal(tmp_path):
    right = np.array([False, True, True, True])
    before, after = (np.array([0.2, 0.2, 0.9, 0.9]), right), (np.array([0.0, 1.0, 1.0, 1.0]), right)
    panels = {"dev": {"before": before, "after": after}, "test": {"before": before}}
    dev, test = draw_reliability(tmp_path / "figure.png", panels).axes
    assert (dev.get_title(), test.get_title()) == ("dev", "test")
    assert (dev.get_xlim(), dev.get_ylim()) == ((0, 1), (0, 1))
    diagonal, *lines = ([*zip(*line.get_data(), strict=True)] for line in dev.lines)
    assert diagonal == [(0.0, 0.0), (1.0, 1.0)]
    assert lines == [[(0.2, 0.0), (0.2, 1.0), (0.9, 1.0), (0.9, 1.0)], [(0.0, 0.0), *[(1.0, 1.0)] * 3]]
    assert dev.get_legend_handles_labels()[1] == ["before", "after"]
    assert dev.lines[1].get_color() == test.lines[1].get_color() != dev.lines[2].get_color()
    assert [text.get_text() for text in dev.texts] == ["before: ECE 0.300\nafter: ECE 0.000"]
