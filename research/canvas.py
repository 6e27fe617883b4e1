"""Shared parts of all figures: the grid of panels, colours, the legend, and saving to a file.

matplotlib is an optional dependency, so it is imported only when a figure is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy_tener.errors import UserError
from spacy_tener.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".webp", ".svg")
# The palette of Okabe and Ito, which is safe for colour-blind readers. Its yellow is left out, since it is too pale for
# lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Fonts with Chinese characters. The installed fonts among them are used.
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


@dataclass(frozen=True)
class Style:
    """Colour, line style and marker of one series, the same in all panels."""

    color: str
    linestyle: str
    marker: str


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each name, in order of first occurrence. When all colours are used, the line style changes."""
    return {
        name: Style(
            color=COLOURS[place % len(COLOURS)],
            linestyle=_LINES[place // len(COLOURS) % len(_LINES)],
            marker=_MARKERS[place % len(_MARKERS)],
        )
        for place, name in enumerate(dict.fromkeys(names))
    }


@contextmanager
def figure(path: Path, titles: Iterable[str], *, height: float) -> Iterator[Figure]:
    """Make a figure with one panel for each title, and yield it for drawing. When the block ends, add a legend below
    the panels and save the figure. The output is reproducible.

    path: File to write. Its suffix controls the format.
    titles: Titles of the panels, in the order of `figure.axes`.
    height: Height of a panel in inches.
    """
    check_ending(path)
    titles = list(titles)
    if not titles:
        raise UserError("There is nothing to draw", "Finish a run first.")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("Figures need matplotlib", "pip install -r research/requirements.txt") from error
    fonts = ["DejaVu Sans", *(_chinese_fonts() or _chinese_fonts(anew=True))]
    with matplotlib.rc_context({**_SETTINGS, "font.family": fonts}):
        columns = min(math.ceil(math.sqrt(len(titles))) if len(titles) > _MAX_COLUMNS else len(titles), _MAX_COLUMNS)
        rows = math.ceil(len(titles) / columns)
        drawn = Figure(figsize=(_PANEL_WIDTH * columns, height * rows), layout="constrained")
        axes: list[Axes] = list(drawn.subplots(rows, columns, squeeze=False).flat)
        for unused in axes[len(titles) :]:
            unused.remove()
        for axis, title in zip(axes, titles, strict=False):
            axis.set_title(title, fontsize="medium")
        yield drawn
        _add_legend(drawn)
        # matplotlib writes the current date into SVG files unless it is set to None.
        kind = path.suffix.removeprefix(".")
        metadata = {"Date": None} if kind == "svg" else None
        write_file(path, lambda file: drawn.savefig(file, format=kind, metadata=metadata))


def _chinese_fonts(*, anew: bool = False) -> list[str]:
    """Return the fonts with Chinese characters that are available to matplotlib.

    anew: Also search for fonts that were installed after matplotlib cached its list.
    """
    from matplotlib import font_manager

    manager = font_manager.fontManager
    for path in set(font_manager.findSystemFonts()) - {font.fname for font in manager.ttflist} if anew else ():
        with suppress(OSError, RuntimeError):  # not a font, or an unsupported font format
            manager.addfont(path)
    installed = {font.name for font in manager.ttflist}
    return [name for name in _CHINESE if name in installed]


def check_ending(path: Path) -> None:
    """Raise an error if a path does not end in a supported figure format."""
    if path.suffix not in ENDINGS:
        raise UserError(f"{path}: figures are {', '.join(ENDINGS)}", "Choose another ending.")


def _add_legend(figure: Figure) -> None:
    """Add one legend below all panels. Labels that occur in several panels are listed once."""
    named: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label}
    if named:
        room = int(figure.get_size_inches()[0] * 11 / (max(map(len, named)) + 6))
        columns = max(1, min(len(named), room))
        figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False)
