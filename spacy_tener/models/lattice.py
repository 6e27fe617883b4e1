"""A layer that reads characters together with the words of a lexicon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d
from torch import Tensor

from .bridge import Build, EmbedModel, TorchShim, join, split, torch_shim
from .embed.lexicon import LatticeWords, LexiconModel


def lattice_layer(name: str, build: Build, *, streams: list[EmbedModel], words: LexiconModel, width: int) -> EmbedModel:
    """A torch module that reads one or more streams of floats per token, and the words that lie over the tokens.

    build: takes `nI0`, `nI1`, .. (the streams' widths), `nW` (the words') and `nO`, and returns a module. It is called
        with the streams, *Shape* [N, nI] each, the words, *Shape* [W, nW], and a `Lattice`, and returns *Shape* [N, nO]
    """
    return Model(
        name, _forward, init=_init, dims={"nO": width}, layers=[*streams, cast(Any, words)], shims=[TorchShim(build)]
    )


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    *streams, words = model.layers
    for layer in (*streams, words):
        layer.initialize(X=X)
    widths = [_width(stream, X) for stream in streams]
    if None not in widths:
        sizes = {f"nI{i}": cast(int, width) for i, width in enumerate(widths)}
        torch_shim(model).build(**sizes, nW=words.get_dim("nO"), nO=model.get_dim("nO"))


def _width(stream: EmbedModel, X: list[Doc] | None) -> int | None:
    """The width of a stream, where it is known or a sample shows it."""
    if stream.has_dim("nO"):
        return stream.get_dim("nO")
    return stream.predict(X[:1])[0].shape[1] if X else None


@dataclass(frozen=True)
class _Inputs:
    """What the module reads, with the way back to where it came from."""

    streams: list[Tensor]
    words: Tensor
    found: LatticeWords
    lengths: list[int]
    back: list[Callable[[Any], Any]]


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    shim = torch_shim(model)
    device = shim.device
    inputs = _read(model, docs, is_train, device)
    arguments = (*inputs.streams, inputs.words, inputs.found.lattice)
    if not is_train:
        with torch.inference_mode():
            return split(model.ops, shim.module(*arguments), inputs.lengths), lambda dY: docs
    for tensor in (*inputs.streams, inputs.words):
        tensor.requires_grad_(True)
    with shim.training() as module:
        outputs = module(*arguments)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        torch.autograd.backward(outputs, join(model.ops, dY, device))
        *back_streams, back_words = inputs.back
        for tensor, back in zip(inputs.streams, back_streams, strict=True):
            back(split(model.ops, _gradient(tensor), inputs.lengths))
        (d_words,) = split(model.ops, _gradient(inputs.words), [len(inputs.words)])
        back_words(LatticeWords(inputs.found.lattice, d_words))
        return docs

    return split(model.ops, outputs, inputs.lengths), backprop


def _read(model: EmbedModel, docs: list[Doc], is_train: bool, device: torch.device) -> _Inputs:
    results = [layer(docs, is_train) for layer in model.layers]
    *streams, found = [cast(Any, output) for output, _ in results]
    return _Inputs(
        streams=[join(model.ops, stream, device) for stream in streams],
        words=join(model.ops, [found.floats], device),
        found=found,
        lengths=[len(part) for part in streams[0]],
        back=[back for _, back in results],
    )


def _gradient(tensor: Tensor) -> Tensor:
    """A module need not have used what there was none of, or what a setting leaves out."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
