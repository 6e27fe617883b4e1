"""Maps of attention, of relations, and of the words that each character read: what an encoder looked at.

They are computed from the inputs of an encoder's layers, which are recorded while it runs once more, in torch, for the
input that it had in one prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from spacy.language import Language
from torch import Tensor, nn

from spacy_tener.layers.attention import Attention, Heads, Weighting
from spacy_tener.layers.fusion import CoverSegments, WordFusion
from spacy_tener.layers.lattice import SpanLayer
from spacy_tener.layers.ragged import Ragged
from spacy_tener.layers.relation import Relation
from spacy_tener.layers.selection import SelectiveAttention
from spacy_tener.layers.spans import pad_heads, span_map
from spacy_tener.models.shim import torch_shim
from spacy_tener.pipeline.finding import PipelineNER

_NAMES = {"transformer_encoder", "gated_relation_encoder", "flat", "flat_atssa", "mect"}
"""Names of the layers whose modules have maps to show."""


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Attention or relation strength between the units of a text, and from units to the words of the lexicon.

    kind: `attention`, where each query's row adds up to 1; `words`, the same where the keys are words only
        (FLAT-ATSSA's word fusion); `relations`, the lengths of GRN's r_ij, as the paper's Figure 4 has them.
    layer: Counted from 1.
    stream: The stream of MECT that is read, or nothing.
    weights: *Shape:* (heads, units, units + words). The keys are units alone for `relations` and for encoders without
        words, and words alone for `words`.
    n_keys: How many keys each query keeps, where it selects (ATSSA). *Shape:* (heads, units)
    """

    kind: Literal["attention", "words", "relations"]
    layer: int
    stream: str
    weights: NDArray[np.float32]
    n_keys: NDArray[np.int64] | None = None


def record_maps(nlp: Language, text: str, name: str | None = None) -> list[HeatMap]:
    """Return the maps of a pipeline's encoders for a text that it reads in one window, on the CPU.

    name: The component's name; the first `tener_ner` if there is none.
    """
    calls: list[tuple[nn.Module, tuple[Any, ...]]] = []
    nodes = [node for model in PipelineNER.of(nlp, name).models for node in model.walk() if node.name in _NAMES]

    def noting(module: nn.Module, predict: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*inputs: Any) -> Any:
            calls.append((module, inputs))
            return predict(*inputs)

        return noted

    with ExitStack() as recording:
        for shim in map(torch_shim, nodes):
            noted = noting(shim.module, shim.predictor())
            recording.enter_context(mock.patch.object(shim, "predictor", return_value=noted))
        nlp(text)
    return [heat_map for module, inputs in calls for heat_map in heat_maps(module, *map(_as_tensor, inputs))]


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


@torch.inference_mode()
def heat_maps(encoder: nn.Module, *inputs: Any) -> list[HeatMap]:
    """Return the maps of an encoder for its inputs of a single text, from those of its layers."""
    maps: list[HeatMap] = []

    def note(module: nn.Module, module_inputs: tuple[Any, ...]) -> None:
        layer = 1 + max((heat_map.layer for heat_map in maps if heat_map.kind == "attention"), default=0)
        maps.extend(maps_of(module, layer, *module_inputs))

    with ExitStack() as recording:
        for module in encoder.modules():
            recording.callback(module.register_forward_pre_hook(note).remove)
        encoder(*inputs)
    # Of FLAT and MECT, words are queries too, after the characters.
    return [replace(heat_map, weights=heat_map.weights[:, : len(inputs[0])]) for heat_map in maps]


@singledispatch
def maps_of(module: nn.Module, layer: int, *inputs: Any) -> list[HeatMap]:
    """Return the maps of a part of an encoder for its inputs, those of one text."""
    return []


@maps_of.register
def _attention(module: Attention, layer: int, x: Tensor, ragged: Ragged, *context: Any) -> list[HeatMap]:
    weights = attention_map(module.heads(x, *context), module.weighting(sampled=False))
    n_keys = array((weights > 0).sum(-1)) if isinstance(module, SelectiveAttention) else None
    return [HeatMap("attention", layer, "", array(weights), n_keys)]


def attention_map(heads: Heads, weighting: Weighting | None) -> Tensor:
    """Return the attention map of one sequence. *Shape:* (heads, units, units)"""
    scores = torch.einsum("qhw,khw->hqk", heads.q, heads.k)
    if heads.q_position is not None and heads.table is not None:
        scores += torch.einsum("qhw,kw->hqk", heads.q_position, heads.table)
    if weighting is None:
        return scores.softmax(dim=-1)
    per_query = None if heads.per_query is None else heads.per_query.transpose(0, 1)[None]
    return weighting(scores[None], per_query)[0]


@maps_of.register
def _spans(module: SpanLayer, layer: int, *inputs: Any) -> list[HeatMap]:
    groups = inputs[-1]
    streams = module.heads(*inputs)
    names = ("lattice", "radicals") if len(streams) == 2 else ("",)
    maps = []
    for name, heads in zip(names, streams, strict=True):
        buckets = zip(pad_heads(heads, groups), groups.buckets, strict=True)
        weights = groups.join([span_map(padded, bucket) for padded, bucket in buckets])
        maps.append(HeatMap("attention", layer, name, array(weights.transpose(0, 1))))
    return maps


@maps_of.register
def _words(module: WordFusion, layer: int, chars: Tensor, words: Tensor, covers: CoverSegments) -> list[HeatMap]:
    weights = chars.new_zeros(len(module.u), len(chars), len(words))
    weights[:, covers.characters.index, covers.words.index] = module.weights(chars, words, covers).T
    return [HeatMap("words", layer, "", array(weights))]


@maps_of.register
def _relations(module: Relation, layer: int, x: Tensor, lengths: Sequence[int]) -> list[HeatMap]:
    # The norm of r_ij = a_i + b_j is the distance between a_i and -b_j.
    return [HeatMap("relations", layer, "", array(torch.cdist(module.left(x), -module.right(x)))[None])]


def array(tensor: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = tensor.cpu().numpy()
    return found
