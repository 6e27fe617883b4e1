"""Maps of attention, of relations, and of the words that each character read: what an encoder looked at.

Encoders compute these maps in functions that prediction does not call. Their inputs are those of the encoder itself,
which are recorded during one prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from spacy.language import Language
from torch import Tensor, nn

from spacy_tener.layers.convolution import GRNEncoder
from spacy_tener.layers.lattice import AtssaEncoder, SpanEncoder
from spacy_tener.layers.transformer import TransformerEncoder
from spacy_tener.models.bridge import torch_shim
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
    weights: *Shape: [heads, units, units + words]*; the keys are units alone for `relations` and for encoders that read
        no words beside them, and words alone for `words`.
    kept: How many keys each query keeps, where it selects (ATSSA). *Shape: [heads, units]*
    """

    kind: Literal["attention", "words", "relations"]
    layer: int
    stream: str
    weights: NDArray[np.float32]
    kept: NDArray[np.int64] | None = None


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
    with torch.inference_mode():
        return [each for module, inputs in calls for each in heat_maps(module, *map(_as_tensor, inputs))]


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


@singledispatch
def heat_maps(module: nn.Module, *inputs: Any) -> list[HeatMap]:
    """Return the maps of an encoder for its inputs of a single text."""
    return []


@heat_maps.register
def _transformer(module: TransformerEncoder, *inputs: Any) -> list[HeatMap]:
    return _attention(module.attention_weights(*inputs))


@heat_maps.register
def _atssa(module: AtssaEncoder, *inputs: Any) -> list[HeatMap]:
    (fusion,) = module.word_weights(*inputs)
    maps = module.attention_weights(*inputs)
    kept = [array((only > 0).sum(-1)) for (only,) in maps] if module.config.selects else None
    return [HeatMap("words", 1, "", array(fusion)), *_attention(maps, kept=kept)]


@heat_maps.register
def _spans(module: SpanEncoder, chars: Tensor, *inputs: Any) -> list[HeatMap]:
    layers = module.attention_weights(chars, *inputs)
    names = ("lattice", "radicals") if module.config.n_streams == 2 else ("",)
    streams = zip(names, zip(*layers, strict=True), strict=True)
    return [found for name, maps in streams for found in _attention(maps, queries=len(chars), stream=name)]


@heat_maps.register
def _grn(module: GRNEncoder, *inputs: Any) -> list[HeatMap]:
    if module.relation is None:
        return []
    (strengths,) = module.relation_strengths(*inputs)
    return [HeatMap("relations", 1, "", array(strengths)[None])]


def _attention(
    layers: Iterable[Sequence[Tensor]],
    *,
    queries: int | None = None,
    stream: str = "",
    kept: Sequence[NDArray[np.int64]] | None = None,
) -> list[HeatMap]:
    """Return the only text's map of each layer. queries: The number of characters, where words are queries too."""
    return [
        HeatMap("attention", layer, stream, array(only[:, :queries]), kept[layer - 1] if kept else None)
        for layer, (only,) in enumerate(layers, start=1)
    ]


def array(tensor: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = tensor.cpu().numpy()
    return found
