"""What every figure has in common: panels, colours, a legend, and how it is saved. It knows nothing of runs.

matplotlib is an extra of this package, so it is imported where a figure is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import RemedyError
from ...files import write_file

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
_SETTINGS: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "savefig.dpi": 150,
    "svg.hashsalt": "spacy_tener",
}
_PANEL_WIDTH = 5.6
_MAX_COLUMNS = 3
Contents = TypeVar("Contents")


@dataclass(frozen=True)
class Style:
    """How one series is drawn, the same in all panels."""

    color: str
    linestyle: str
    marker: str


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name, in the order of their first mention. Colours come first; where they are used up, lines
    differ."""
    return {
        name: Style(
            color=COLOURS[place % len(COLOURS)],
            linestyle=_LINES[place // len(COLOURS) % len(_LINES)],
            marker=_MARKERS[place % len(_MARKERS)],
        )
        for place, name in enumerate(dict.fromkeys(names))
    }


def draw(
    path: Path, panels: Mapping[str, Contents], paint: Callable[[Axes, Contents], object], *, height: float
) -> Figure:
    """A figure with panels side by side in rows and one legend below them, saved in the format that the path's ending
    names, and with the same bytes every time.

    panels: What is drawn in each, by its title.
    paint: Draws the contents of a panel.
    height: Of a panel, in inches.
    """
    if path.suffix not in ENDINGS:
        raise RemedyError(f"{path}: figures are {' or '.join(ENDINGS)}", "Choose another ending.")
    if not panels:
        raise RemedyError("There is nothing to draw", "Finish a run first.")
    try:
        import matplotlib
        from matplotlib import font_manager
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RemedyError("Figures need matplotlib", "pip install 'spacy_tener[plot]'") from error
    installed = {font.name for font in font_manager.fontManager.ttflist}
    fonts = ["DejaVu Sans", *(name for name in _CHINESE if name in installed)]
    with matplotlib.rc_context({**_SETTINGS, "font.family": fonts}):
        columns = min(math.ceil(math.sqrt(len(panels))) if len(panels) > _MAX_COLUMNS else len(panels), _MAX_COLUMNS)
        rows = math.ceil(len(panels) / columns)
        figure = Figure(figsize=(_PANEL_WIDTH * columns, height * rows), layout="constrained")
        axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
        for unused in axes[len(panels) :]:
            unused.remove()
        for axis, (title, contents) in zip(axes, panels.items(), strict=False):
            axis.set_title(title, fontsize="medium")
            paint(axis, contents)
        _add_legend(figure)
        # A date would make the file another one every time.
        kind = path.suffix.removeprefix(".")
        metadata = {"Date": None} if kind == "svg" else None
        write_file(path, lambda file: figure.savefig(file, format=kind, metadata=metadata))
    return figure


def _add_legend(figure: Figure) -> None:
    """One legend below all panels, each name once."""
    named: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label}
    if named:
        room = int(figure.get_size_inches()[0] * 11 / (max(map(len, named)) + 6))
        columns = max(1, min(len(named), room))
        figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False)
