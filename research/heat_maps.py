"""An explanation as a figure, as MECT's and GRN's papers draw them: evidence of entities, and maps by head."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language

from spacy_tener.errors import RemedyError
from spacy_tener.explain import ExplainedText, explain
from spacy_tener.pipeline.finding import PipelineNER

from .canvas import figure
from .maps import HeatMap, record_maps

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_UNITS = 64


@dataclass(frozen=True)
class Panel:
    """A table of numbers as colours.

    values: *Shape:* (rows, columns)
    unit: What the numbers are, beside the bar of colours.
    signed: Whether 0 is in the middle of the colours.
    """

    values: NDArray[np.floating[Any]]
    rows: Sequence[str]
    columns: Sequence[str]
    unit: str
    signed: bool = False


def panels(text: ExplainedText, units: Sequence[tuple[int, int]], maps: Sequence[HeatMap]) -> dict[str, Panel]:
    """Return the panels of a text by their titles: the evidence of its entities, and each head of each map. Relations
    have rows for the units of entities only, as in GRN's Figure 4.

    units: Start and end in characters of each token or character, as the model reads them.
    """
    found = dict(_evidence_panel(text, units))
    return found | dict(panel for heat_map in maps for panel in _map_panels(heat_map, text, units))


def _evidence_panel(text: ExplainedText, units: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Panel]]:
    entities = [entity for entity in text.entities if entity.evidence]
    if entities:
        names = [f"{text.text[e.start : e.end]} {e.label} {percent(e.probability)}" for e in entities]
        drops = [{evidence.start: evidence.drop for evidence in entity.evidence} for entity in entities]
        values = np.array([[drop.get(start, 0.0) for start, _ in units] for drop in drops])
        columns = [text.text[start:end] for start, end in units]
        yield "what entities rest on", Panel(values, names, columns, "drop of log-odds", signed=True)


def _entity_rows(text: ExplainedText, units: Sequence[tuple[int, int]]) -> list[int]:
    spans = [(entity.start, entity.end) for entity in text.entities]
    overlaps = [any(start < last and first < end for first, last in spans) for start, end in units]
    return [row for row, inside in enumerate(overlaps) if inside]


def _map_panels(found: HeatMap, text: ExplainedText, units: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Panel]]:
    names, words = [text.text[start:end] for start, end in units], [word.text for word in text.words]
    keys = words if found.kind == "words" else [*names, *words][: found.weights.shape[2]]
    entities = _entity_rows(text, units)
    rows = entities if found.kind == "relations" and entities else range(len(names))
    unit = "strength" if found.kind == "relations" else "attention"
    stream = f"{found.stream}, " if found.stream else ""
    for head, weights in enumerate(found.weights if keys else (), start=1):
        # Only attention has layers and streams, of one head or several.
        is_unique = len(found.weights) == 1 and found.kind != "attention"
        title = found.kind if is_unique else f"{found.kind}, {stream}layer {found.layer}, head {head}"
        yield title, Panel(weights[list(rows)], [names[row] for row in rows], keys, unit)


def percent(probability: float | None) -> str:
    """Return a probability as the page writes it (`percent` of parts.js)."""
    if probability is None:
        return "–"
    if probability >= 0.9995:
        return "> 99.9 %"
    if probability < 0.0005:
        return "< 0.1 %"
    digits = "1" if 0.1 < probability < 0.9 else "0.1"
    return f"{Decimal(100 * probability).quantize(Decimal(digits), ROUND_HALF_UP)} %"


def paint(axes: Axes, panel: Panel) -> None:
    """Draw a panel on matplotlib's axes, with a bar that says what its colours mean."""
    values = panel.values
    if panel.signed:
        limit = max(float(np.abs(values).max(initial=0.0)), 0.5)
        image = axes.imshow(values, cmap="BrBG", vmin=-limit, vmax=limit, aspect="auto")
    else:
        low = None if panel.unit == "strength" else 0.0
        image = axes.imshow(values, cmap="Blues", vmin=low, aspect="auto")
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(panel.unit, fontsize=7)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    axes.set_xticks(range(len(panel.columns)), map(_stacked, panel.columns), fontsize=_size(panel.columns))
    axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=_size(panel.rows))
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for side in axes.spines.values():
        side.set_visible(False)


def draw_heat_maps(nlp: Language, text: str, path: Path, *, name: str | None = None) -> bool:
    """Draw the panels of a text. Returns whether the fonts lack some of its characters.

    name: The component's name; the first `tener_ner` if there is none.
    """
    view = PipelineNER.of(nlp, name).view(nlp(text))
    if len(view) > MOST_UNITS:
        reason = f"The text has {len(view)} tokens or characters, and a figure has room for {MOST_UNITS}"
        raise RemedyError(reason, "Give a shorter sentence.")
    units = [view.char_span(unit, unit + 1) for unit in range(len(view))]
    (explained,) = explain(nlp, text, name=name).texts
    shown = panels(explained, units, record_maps(nlp, text, name))
    if not shown:
        raise RemedyError("There is nothing to draw: no entity is found", "Give another text.")
    with warnings.catch_warnings(record=True) as missing:
        warnings.filterwarnings("always", "Glyph .* missing")
        with figure(path, shown, height=_height(shown.values())) as drawn:
            for axis, panel in zip(drawn.axes, shown.values(), strict=True):
                paint(axis, panel)
    return bool(missing)


def _height(shown: Iterable[Panel]) -> float:
    """Return the height in inches at which the names of rows have room."""
    return 1.6 + 0.1 * max((len(panel.rows) for panel in shown), default=0)


def _size(names: Sequence[str]) -> int:
    return 7 if len(names) < 40 else 5


def _stacked(name: str) -> str:
    """Set Chinese with one character below the other, so that names of columns stay narrow."""
    return name if name.isascii() else "\n".join(name)
