"""MECT's Figure 5: the embeddings of characters' components in the plane, around one of the characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .canvas import COLOURS, add_legend, draw, panels
from .component_cosines import Floats, Kinship, Near, near, unit_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches: what is drawn in, about.
_DRAWN_WIDTH = 5.4
_PANEL_HEIGHT = 5.0
_DRAWN_HEIGHT = 4.2
_POINTS = 72.0
_EM = 10.0
_SPACED = 1.25
_OTHERS = "#cccccc"


def plane(vectors: Floats) -> tuple[Floats, float]:
    """Vectors of unit length in the two directions in which they differ most, and the part of their variance that lies
    there. *Shape* [n, width] -> [n, 2]"""
    units = unit_length(vectors).astype(np.float64)
    apart = units - units.mean(axis=0)
    variances, directions = np.linalg.eigh(apart.T @ apart)
    axes = directions[:, ::-1][:, :2]
    # An eigenvector may point either way: let its greatest number be positive.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    part = float(variances[-2:].sum() / max(variances.sum(), 1e-12))
    return (apart @ axes).astype(np.float32), part


def draw_component_space(
    spaces: Mapping[str, Floats], characters: Sequence[str], kinship: Kinship, path: Path, *, middle: str, count: int
) -> tuple[Figure, list[str]]:
    """A panel for each space: all characters as grey dots, and those nearest to the middle one with their names.

    spaces: The vectors of all characters, by the panel's title. *Shape* [n, width] each
    Returns the figure, and the characters that no font here has: they are drawn as code points.
    """
    without_glyph: list[str] = []
    make = partial(_figure, spaces, characters, kinship, characters.index(middle), count, without_glyph)
    figure = draw(path, make)
    return figure, sorted(set(without_glyph))


def _figure(
    spaces: Mapping[str, Floats],
    characters: Sequence[str],
    kinship: Kinship,
    middle: int,
    count: int,
    without_glyph: list[str],
) -> Figure:
    figure, axes = panels(list(spaces), height=_PANEL_HEIGHT)
    for axis, (title, vectors) in zip(axes, spaces.items(), strict=True):
        points, part = plane(vectors)
        found = near(vectors, kinship, middle, count)
        _draw_points(axis, points, middle, found, characters[middle])
        named = [middle, *(each.place for each in found)]
        labels = [label_of(characters[place]) for place in named]
        without_glyph += [characters[place] for place, label in zip(named, labels, strict=True) if len(label) > 1]
        _write(axis, points, points[named], labels)
        axis.set_title(f"{title} ({part:.0%} of the variance)", fontsize="medium")
        axis.set(xticks=[], yticks=[])
    add_legend(figure, axes)
    return figure


def _draw_points(axis: Axes, points: Floats, middle: int, found: Sequence[Near], name: str) -> None:
    name = label_of(name)
    axis.scatter(points[:, 0], points[:, 1], s=5, color=_OTHERS, linewidths=0, label="farther")
    for kin, colour in ((True, COLOURS[0]), (False, COLOURS[1])):
        shown = points[[each.place for each in found if each.kin == kin]]
        label = f"near {name}, shares {'a' if kin else 'no'} component"
        axis.scatter(shown[:, 0], shown[:, 1], s=20, color=colour, linewidths=0, label=label)
    axis.scatter(points[middle, 0], points[middle, 1], s=70, color=COLOURS[-1], marker="*", label=name)


def _write(axis: Axes, points: Floats, named: Floats, labels: Sequence[str]) -> None:
    """Names beside their points, the first one bold, and none over another where there is room."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.maximum(high - low, 1e-6) * 0.05
    axis.set(xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]))
    scale = np.array([_DRAWN_WIDTH, _DRAWN_HEIGHT]) * _POINTS / (np.maximum(high - low, 1e-6) + 2 * room)
    sizes = np.array([[_EM * (1.0 if len(label) == 1 else 0.65 * len(label)), _EM] for label in labels]) * _SPACED
    for place, (label, offset) in enumerate(zip(labels, label_offsets(named * scale, sizes), strict=True)):
        axis.annotate(
            label,
            (float(named[place][0]), float(named[place][1])),
            xytext=(float(offset[0]), float(offset[1])),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_EM,
            fontweight="bold" if place == 0 else "normal",
            arrowprops={"arrowstyle": "-", "color": "#888888", "linewidth": 0.6, "shrinkA": 5, "shrinkB": 0},
        )


def label_offsets(points: NDArray[np.floating], sizes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Where to write each label, from its point: as near as may be with no other label or point below it, in turn.

    *Shape* points, sizes (in the unit of the points), result: [n, 2]
    """
    angles = np.arange(12) * (np.pi / 6) + np.pi / 4
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    tried = np.concatenate([radius * around for radius in (0.8, 1.2, 1.7, 2.4, 3.2, 4.2)])
    offsets = np.zeros(points.shape)
    for place, (point, size) in enumerate(zip(points, sizes, strict=True)):
        candidates = tried * size
        centres = point + candidates
        hits = _overlaps(centres, size, points, np.zeros(2)) + _overlaps(
            centres, size, points[:place] + offsets[:place], sizes[:place]
        )
        offsets[place] = candidates[int(hits.argmin())]
    return offsets


def _overlaps(
    centres: NDArray[np.floating], size: NDArray[np.floating], others: NDArray[np.floating], theirs: Any
) -> NDArray[np.int64]:
    """On how many boxes each of some boxes lies. *Shape* [n]"""
    apart = np.abs(centres[:, None] - others[None])
    hits: NDArray[np.int64] = (apart < (size + theirs) / 2).all(axis=-1).sum(axis=1)
    return hits


def label_of(character: str) -> str:
    """A character as the fonts of the figure can write it: itself, or its code point if none has it."""
    from matplotlib import rcParams
    from matplotlib.font_manager import findfont, get_font

    fonts = (get_font(findfont(name)) for name in rcParams["font.family"])
    return character if any(font.get_char_index(ord(character)) for font in fonts) else f"U+{ord(character):04X}"
