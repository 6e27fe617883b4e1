"""Draw attention maps of a trained pipeline, as in Figure 9 of FLAT-ATSSA's paper and Figure 4 of MECT's and GRN's.

The pipeline predicts one text with torch. Forward hooks record the inputs of every module, and `maps_of` computes the
attention weights from these inputs. `python -m research attention` uses this file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from torch import Tensor, nn

from spacy_tener.architectures.flat.flat_torch import SpanLayer, SpanProjections, pad_projections, span_map
from spacy_tener.architectures.flat.selection_torch import SelectiveAttention
from spacy_tener.architectures.grn.grn_torch import Relation
from spacy_tener.embedders.lattice import Lattice
from spacy_tener.errors import UserError
from spacy_tener.nn.ragged_torch import Ragged
from spacy_tener.nn.shim import TorchShim, torch_shims
from spacy_tener.pipeline.finding import PipelineNER
from spacy_tener.pipeline.units import view_of

from .canvas import figure

# Maximum number of tokens or characters in a text. More do not fit into a figure, and up to this number all units are
# in a single group of queries (`SpanLayer`).
MOST_UNITS = 48


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Attention weights of one layer for a text.

    title (str): Name of the weights, such as "selected attention".
    weights (NDArray): Weight of each unit and word for each query. *Shape:* (heads, units, units + words). GRN has a
        single head and no words: (1, units, units)
    """

    title: str
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class Look:
    """The attention maps of a text, computed by `look`.

    doc (Doc): The text with the predicted entities.
    units (list[str]): The tokens or characters, depending on the component's view.
    words (list[str]): The matched lexicon words of the lattice, or an empty list.
    is_entity (NDArray): Whether each unit is part of an entity. *Shape:* (units,)
    maps (list[HeatMap]): The maps of the last layer for which `maps_of` is implemented.
    """

    doc: Doc
    units: list[str]
    words: list[str]
    is_entity: NDArray[np.bool_]
    maps: list[HeatMap]


@singledispatch
def maps_of(module: nn.Module, *inputs: Any) -> list[HeatMap]:
    """Return the attention maps of a layer for its inputs, which contain a single text. Other modules have no maps."""
    return []


@maps_of.register
def _selected(module: SelectiveAttention, x: Tensor, ragged: Ragged, *context: Any) -> list[HeatMap]:
    heads: Any = module.heads(x, *context)
    scores = torch.einsum("qhw,khw->hqk", heads.q, heads.k) + torch.einsum("qhw,kw->hqk", heads.q_position, heads.table)
    weights = module.weighting(sampled=False)(scores[None], heads.per_query.transpose(0, 1)[None])[0]
    return [HeatMap("selected attention", weights.numpy())]


@maps_of.register
def _streams(module: SpanLayer, *inputs: Any) -> list[HeatMap]:
    projections, groups = module.project(*inputs), inputs[-1]
    (padded,) = pad_projections(SpanProjections.join(projections), groups)
    weights = span_map(padded, groups.buckets[0])[0].chunk(len(projections))
    names = ["lattice attention", "radical attention"] if len(projections) == 2 else ["attention"]
    return [HeatMap(name, part.numpy()) for name, part in zip(names, weights, strict=True)]


@maps_of.register
def _relations(module: Relation, x: Tensor, lengths: Sequence[int]) -> list[HeatMap]:
    pairs = module.left(x)[:, None] + module.right(x)[None]  # r_ij, equation 4 of GRN's paper
    norms = pairs.norm(dim=2)
    smallest, largest = norms.aminmax()
    return [HeatMap("relation", ((norms - smallest) / (largest - smallest).clamp(min=1e-9))[None].numpy())]


def look(nlp: Language, text: str, name: str | None = None) -> Look:
    """Predict a text on the CPU and return the attention maps of the encoder. The text has to fit into one window.

    name (Optional[str]): Name of the component. By default, the first `tener_ner` in the pipeline.
    """
    component = PipelineNER.of(nlp, name)
    calls: list[tuple[nn.Module, tuple[Any, ...]]] = []
    lattices: list[Lattice] = []

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls.append((module, inputs))
        lattices.extend(part for part in inputs if isinstance(part, Lattice))

    with ExitStack() as stack:
        # Hooks need torch modules; the NumPy predictor would bypass them.
        stack.enter_context(mock.patch.object(TorchShim, "predicts_with_numpy", return_value=False))
        for model in component.models:
            for module in (part for shim in torch_shims(model) for part in shim.module.modules()):
                stack.callback(module.register_forward_pre_hook(note).remove)
        doc = nlp(text)
    view = view_of(doc, component.ner.settings.view)
    if not 1 < len(view) <= MOST_UNITS:
        reason = f"The text has {len(view)} tokens or characters; a figure has room for 2 to {MOST_UNITS}"
        raise UserError(reason, "Give another sentence.")
    with torch.inference_mode():
        maps = next(filter(None, (maps_of(module, *inputs) for module, inputs in reversed(calls))), [])
    if not maps:
        fix = "FLAT, FLAT-ATSSA with a selection, MECT and GRN have some."
        raise UserError("The pipeline's encoder has no map to draw", fix)
    spans = [view.char_span(unit, unit + 1) for unit in range(len(view))]
    ends = [(ent.start_char, ent.end_char) for ent in doc.ents]
    is_entity = np.array([any(start < last and first < end for first, last in ends) for start, end in spans])
    words = [
        doc.text[spans[head][0] : spans[tail][1]]
        for lattice in lattices[:1]
        for head, tail in zip(lattice.heads.tolist(), lattice.tails.tolist(), strict=True)
    ]
    return Look(doc, [doc.text[start:end] for start, end in spans], words, is_entity, maps)


def panels(found: Look, head: int | None = None) -> Iterator[tuple[str, NDArray[np.float32], list[str], list[str]]]:
    """Yield the title, the values, the row labels and the column labels of each panel.

    head (Optional[int]): Number of the head, starting from 1. By default, the head of a selection is the one with the
        largest attention between characters of entities, as in the paper. For MECT, the heads are averaged.
    """
    for heat_map in found.maps:
        weights, rows = heat_map.weights, found.units
        if head is not None and not 1 <= head <= len(weights):
            raise UserError(f"--head {head}: {heat_map.title} has {len(weights)} heads", "Choose one of them.")
        title = f"{heat_map.title}, head {head}"
        if heat_map.title == "relation":
            title = "relations of words of entities"
            values = weights[0]
            if found.is_entity.any():
                values = values[found.is_entity]
                rows = [unit for unit, is_entity in zip(rows, found.is_entity, strict=True) if is_entity]
        elif head is not None:
            values = weights[head - 1]
        elif heat_map.title == "selected attention":
            inside = weights[:, found.is_entity][:, :, found.is_entity].sum((1, 2))
            best = int(inside.argmax())
            title, values = f"{heat_map.title}, head {best + 1} of {len(weights)}", weights[best]
        else:
            title, values = f"{heat_map.title}, mean of {len(weights)} heads", weights.mean(0)
        yield title, values, rows, [*found.units, *found.words][: values.shape[1]]


def draw_attention(nlp: Language, text: str, path: Path, *, head: int | None = None, name: str | None = None) -> Look:
    """Draw the attention maps of a text to a file, and return them. Characters without a font are drawn as boxes."""
    found = look(nlp, text, name)
    shown = list(panels(found, head))
    height = max(0.25 * len(shown[0][2]) + 1.2, 2.4)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        with figure(path, [title for title, *_ in shown], height=height) as drawn:
            for axes, (_, values, rows, columns) in zip(drawn.axes, shown, strict=True):
                image = axes.imshow(values, cmap="Blues", vmin=0.0, aspect="auto")
                bar = drawn.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
                bar.ax.tick_params(labelsize=7)
                bar.outline.set_visible(False)
                stacked = [column if column.isascii() else "\n".join(column) for column in columns]
                axes.set_xticks(range(len(columns)), stacked, fontsize=8, rotation=90 if rows[0].isascii() else 0)
                axes.set_yticks(range(len(rows)), rows, fontsize=8)
                axes.tick_params(length=0)
                if len(columns) > len(found.units):
                    axes.axvline(len(found.units) - 0.5, color="#D55E00", linewidth=0.8)
    return found
