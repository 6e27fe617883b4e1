"""How fast trained pipelines predict in batches of several sizes, as times one of them one by one.

FLAT-ATSSA's Figure 4 and MECT's Figure 6: what a batch gains, beside what an architecture costs.
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

Speeds = Mapping[str, Mapping[int, float]]
"""Characters a second by pipeline and batch size."""


def measure_speeds(
    pipelines: Mapping[str, Language], texts: Sequence[str], batch_sizes: Sequence[int], *, rounds: int
) -> Speeds:
    """Measure `nlp.pipe` from raw text: medians over rounds in which all take turns, after one that does not count.

    Time is CPU time, which leaves out waiting on a busy machine.
    """
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
    """Draw a bar for each pipeline and batch size, as times the first pipeline with the first batch size."""
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
