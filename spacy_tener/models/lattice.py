"""A layer that reads characters together with the words of a lexicon."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from .embed.lexicon import LatticeWords, LexiconModel, build_lexicon_embed
from .shims.bridge import EmbedModel, TorchShim, cut, flat, run_module, token_counts, torch_shim

if TYPE_CHECKING:
    from torch import nn


def lattice_layer(
    name: str,
    encoder: Callable[..., nn.Module],
    predictor: Callable[..., Any],
    config: Any,
    *,
    streams: list[EmbedModel],
    words: LexiconModel | None,
) -> EmbedModel:
    """A module that reads one or more streams of floats per token, and the words that lie over the tokens.

    encoder: Made from its config, the width of each stream and the words'. It is called with the streams, *Shape*
        [N, nI] each, the words, *Shape* [W, nW], and a `Lattice`, and returns *Shape* [N, nO]
    predictor: Made from the config and the weights, and called alike.
    words: The embedder of words; `spacy_tener.LexiconEmbed.v1` if there is none.
    """
    layers = [*streams, cast(Any, words or build_lexicon_embed())]
    shim = TorchShim(partial(_build, encoder=encoder, config=config), partial(predictor, config))
    return Model(name, _forward, init=_init, dims={"nO": config.width}, layers=layers, shims=[shim])


def _build(*, encoder: Callable[..., nn.Module], config: Any, nO: int, nW: int, **nI: int) -> nn.Module:
    """nI: The widths of the streams, `nI0`, `nI1`, .."""
    return encoder(config, *(nI[name] for name in sorted(nI)), nW)


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
    ops, lengths = model.ops, token_counts(docs)
    outputs, backprops = zip(*(layer(docs, is_train) for layer in model.layers), strict=True)
    *streams, words = cast("list[Any]", outputs)
    floats = [*(flat(ops, stream) for stream in streams), words.floats]
    Y, backprop_module = run_module(model, is_train, lengths, floats, words.lattice)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        *d_streams, d_words = backprop_module(dY)
        *backprop_streams, backprop_words = backprops
        for backprop_stream, d_stream in zip(backprop_streams, d_streams, strict=True):
            backprop_stream(cut(d_stream, lengths))
        backprop_words(LatticeWords(words.lattice, d_words))
        return docs

    return Y, backprop
