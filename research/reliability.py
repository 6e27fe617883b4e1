"""Draw reliability diagrams of calibrated probabilities. `research/benchmarks/calibration.py` uses this file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spacy_tener.evaluation.calibration import Series, bins, errors

from .canvas import figure, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_reliability(path: Path, panels: Mapping[str, Series]) -> Figure:
    """Draw one panel for each set of texts. The closer a curve is to the diagonal, the better its probabilities are
    calibrated."""
    looks = styles(name for series in panels.values() for name in series)
    with figure(path, panels, height=4.6) as drawn:
        for axis, series in zip(drawn.axes, panels.values(), strict=True):
            axis.plot([0.0, 1.0], [0.0, 1.0], color="#999999", linewidth=0.8)
            for name, (probability, right) in series.items():
                parts = bins(probability, right)
                means, shares = [part.probability for part in parts], [part.right for part in parts]
                axis.plot(means, shares, label=name, **vars(looks[name]))
            values = "\n".join(f"{name}: ECE {errors(*pair).ece:.3f}" for name, pair in series.items())
            axis.text(0.03, 0.97, values, transform=axis.transAxes, va="top", fontsize="small")
            axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that is right", aspect="equal")
            axis.grid(True)
    return drawn
