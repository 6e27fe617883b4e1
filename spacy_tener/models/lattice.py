"""A layer that reads characters together with the words of a lexicon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from .bridge import Build, EmbedModel, TorchShim, join, run_module, split, token_counts, torch_shim
from .embed.lexicon import LatticeWords, LexiconModel


def lattice_layer(name: str, build: Build, *, streams: list[EmbedModel], words: LexiconModel, width: int) -> EmbedModel:
    """A torch module that reads one or more streams of floats per token, and the words that lie over the tokens.

    build: Takes `nI0`, `nI1`, .. (the streams' widths), `nW` (the words') and `nO`, and returns a module. It is called
        with the streams, *Shape* [N, nI] each, the words, *Shape* [W, nW], and a `Lattice`, and returns *Shape* [N, nO]
    """
    layers = [*streams, cast(Any, words)]
    return Model(name, _forward, init=_init, dims={"nO": width}, layers=layers, shims=[TorchShim(build)])


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    for layer in model.layers:
        layer.initialize(X=X)
    *streams, words = model.layers
    widths = [_width(stream, X) for stream in streams]
    if None not in widths:
        sizes = {f"nI{i}": cast(int, width) for i, width in enumerate(widths)}
        torch_shim(model).build(**sizes, nW=words.get_dim("nO"), nO=model.get_dim("nO"))


def _width(stream: EmbedModel, X: list[Doc] | None) -> int | None:
    """The width of a stream, where it is known or a sample shows it."""
    if stream.has_dim("nO"):
        return stream.get_dim("nO")
    return stream.predict(X[:1])[0].shape[1] if X else None


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    ops, device, lengths = model.ops, torch_shim(model).device, token_counts(docs)
    outputs, backprops = zip(*(layer(docs, is_train) for layer in model.layers), strict=True)
    *streams, words = cast("list[Any]", outputs)
    floats = [*(join(ops, stream, device) for stream in streams), join(ops, [words.floats], device)]
    Y, backprop_module = run_module(model, is_train, lengths, floats, words.lattice)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        *d_streams, d_words = backprop_module(dY)
        *backprop_streams, backprop_words = backprops
        for backprop_stream, d_stream in zip(backprop_streams, d_streams, strict=True):
            backprop_stream(split(ops, d_stream, lengths))
        (d_floats,) = split(ops, d_words, [len(d_words)])
        backprop_words(LatticeWords(words.lattice, d_floats))
        return docs

    return Y, backprop
