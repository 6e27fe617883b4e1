"""The reliability diagram: how many are right of those that are given a probability."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...types import BoolArray
from ..report.canvas import figure, styles
from .measures import Probabilities, bins, measures

Series = Mapping[str, tuple[Probabilities, BoolArray]]
"""Probabilities and what came true, by the name in the legend."""


def draw_reliability(path: Path, panels: Mapping[str, Series]) -> None:
    """Draw one panel for each set of texts. On the diagonal, probabilities are what they say."""
    looks = styles(name for series in panels.values() for name in series)

    with figure(path, panels, height=4.6) as drawn:
        for axis, series in zip(drawn.axes, panels.values(), strict=True):
            axis.plot([0.0, 1.0], [0.0, 1.0], color="#999999", linewidth=0.8)
            for name, (probability, right) in series.items():
                parts, look = bins(probability, right), looks[name]
                shown, came_true = [part.probability for part in parts], [part.right for part in parts]
                axis.plot(shown, came_true, label=name, **vars(look))
            errors = "\n".join(f"{name}: ECE {measures(*pair).ece:.3f}" for name, pair in series.items())
            axis.text(0.03, 0.97, errors, transform=axis.transAxes, va="top", fontsize="small")
            axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that is right", aspect="equal")
            axis.grid(True)
