"""What every figure has in common: panels, colours, a legend, and how it is saved. It knows nothing of runs.

matplotlib is an extra of this package, so it is imported where a figure is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_file
from .errors import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg")
# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Fonts with Chinese characters, where the machine has one of them.
_CHINESE = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
)
_PANEL_WIDTH = 5.6
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class Style:
    """How one series is drawn, the same in all panels."""

    color: str
    linestyle: str
    marker: str


def styles(names: Sequence[str]) -> dict[str, Style]:
    """A style for each name. Colours come first; where they are used up, lines differ."""
    return {
        name: Style(
            color=COLOURS[place % len(COLOURS)],
            linestyle=_LINES[place // len(COLOURS) % len(_LINES)],
            marker=_MARKERS[place % len(_MARKERS)],
        )
        for place, name in enumerate(names)
    }


def settings() -> AbstractContextManager[None]:
    """The settings under which figures are drawn and saved: plain, and the same bytes every time."""
    matplotlib = _matplotlib()
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return matplotlib.rc_context(  # type: ignore[no-any-return]
        {
            "font.family": ["DejaVu Sans", *(name for name in _CHINESE if name in installed)],
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.color": "#dddddd",
            "grid.linewidth": 0.7,
            "savefig.dpi": 150,
            "svg.hashsalt": "spacy_tener",
        }
    )


def panels(titles: Sequence[str], *, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each title, side by side in rows.

    height: Of one panel, in inches.
    """
    _matplotlib()
    from matplotlib.figure import Figure

    columns = len(titles) if len(titles) <= _MAX_COLUMNS else min(math.ceil(math.sqrt(len(titles))), _MAX_COLUMNS)
    rows = math.ceil(len(titles) / columns)
    figure = Figure(figsize=(_PANEL_WIDTH * columns, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for unused in axes[len(titles) :]:
        unused.remove()
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize="medium")
    return figure, axes[: len(titles)]


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend below all panels, each name once."""
    named: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label}
    if named:
        longest = max(map(len, named))
        room = int(figure.get_size_inches()[0] * 11 / (longest + 6))
        columns = max(1, min(len(named), room))
        figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False)


def draw(path: Path, make: Callable[[], Figure]) -> Figure:
    """Make a figure and save it in the format that the path's ending names."""
    if path.suffix not in ENDINGS:
        raise ReportError(f"{path}: figures are {' or '.join(ENDINGS)}", "Choose another ending.")
    with settings():
        figure = make()
        ending = path.suffix.removeprefix(".")
        # A date would make the file another one every time.
        metadata = {"Date": None} if ending == "svg" else None
        write_file(path, lambda file: figure.savefig(file, format=ending, metadata=metadata))
    return figure


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ReportError("Figures need matplotlib", "pip install 'spacy_tener[plot]'") from error
    return matplotlib
