"""Measure how fast trained pipelines predict with several batch sizes, relative to one pipeline and batch size.

Reproduces FLAT-ATSSA's Figure 4 and MECT's Figure 6, which compare the cost of architectures and the speedup of
batches. `python -m research speed` uses this file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from spacy.language import Language

from .canvas import COLOURS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Characters per second, by pipeline and batch size.
Speeds = Mapping[str, Mapping[int, float]]


def measure_speeds(
    pipelines: Mapping[str, Language], texts: Sequence[str], batch_sizes: Sequence[int], *, rounds: int
) -> Speeds:
    """Measure `nlp.pipe` on raw texts, and return the median speed over several rounds. All pipelines run once in each
    round, and the first round is a warm-up. CPU time is measured instead of wall time, so that other processes do not
    distort the result."""
    seconds: dict[tuple[str, int], list[float]] = {(name, size): [] for name in pipelines for size in batch_sizes}
    for turn in range(rounds + 1):
        for (name, size), measured in seconds.items():
            start = time.process_time()
            for _ in pipelines[name].pipe(texts, batch_size=size):
                pass
            if turn:
                measured.append(time.process_time() - start)
    characters = sum(map(len, texts))
    return {name: {size: characters / median(seconds[name, size]) for size in batch_sizes} for name in pipelines}


def draw_relative_speeds(speeds: Speeds, path: Path) -> Figure:
    """Draw a bar for each pipeline and batch size. The unit is the first pipeline with the first batch size."""
    (baseline, first), sizes = next(iter(speeds.items())), list(next(iter(speeds.values())))
    height = 0.8 / len(sizes)
    with figure(path, ["Prediction"], height=1.6 + 0.3 * len(sizes) * len(speeds)) as drawn:
        (axis,) = drawn.axes
        for number, size in enumerate(sizes):
            times = [speed[size] / first[sizes[0]] for speed in speeds.values()]
            places = [place + height * (number - (len(sizes) - 1) / 2) for place in range(len(speeds))]
            bars = axis.barh(places, times, height=0.9 * height, color=COLOURS[number], label=f"batches of {size}")
            axis.bar_label(bars, [f"×{value:.2f}" for value in times], padding=4, fontsize="small")
        axis.set_yticks(range(len(speeds)), list(speeds))
        axis.invert_yaxis()
        axis.grid(True, axis="x")
        axis.margins(x=0.15)
        axis.set_xlabel(f"Speed, times that of {baseline} in batches of {sizes[0]}")
    return drawn
