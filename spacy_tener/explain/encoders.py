"""Maps of attention, of relations, and of the words that each character read: what an encoder looked at.

Encoders compute these maps in functions that prediction does not call. Their inputs are those of the encoder itself,
which are recorded during one prediction, whether torch computes it or not.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from thinc.api import Model
from torch import Tensor, nn

from ..layers.convolution import GRNEncoder
from ..layers.lattice import AtssaEncoder, SpanEncoder
from ..layers.transformer import TransformerEncoder
from ..models.bridge import TorchShim, torch_shim
from .explanation import HeatMap

_NAMES = {"transformer_encoder", "gated_relation_encoder", "flat", "flat_atssa", "mect"}
"""Names of the layers whose modules have maps to show."""


@dataclass(frozen=True)
class MappedEncoder:
    """An encoder of a pipeline, and its torch module.

    module: For a pipeline that predicts without torch, a copy, so that the pipeline itself stays without.
    """

    shim: TorchShim
    module: nn.Module


def find_encoders(models: Iterable[Model[Any, Any]]) -> list[MappedEncoder]:
    """Return the encoders in some models that have maps to show."""
    nodes = [node for model in models for node in model.walk() if node.name in _NAMES]
    shims = [torch_shim(node) for node in nodes]
    return [MappedEncoder(shim, copy.copy(shim).module) for shim in shims if shim.is_built]


def record_maps(encoders: Sequence[MappedEncoder], predict: Callable[[], object]) -> list[HeatMap]:
    """Return the maps of encoders for the one text that `predict` predicts."""
    calls: list[tuple[nn.Module, tuple[Any, ...]]] = []
    thread = threading.get_ident()

    def note(module: nn.Module, *inputs: Any) -> None:
        # Another thread may predict with the same pipeline meanwhile.
        if threading.get_ident() == thread:
            calls.append((module, inputs))

    with ExitStack() as observing:
        for encoder in encoders:
            observing.enter_context(encoder.shim.observe(partial(note, encoder.module)))
        predict()
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
