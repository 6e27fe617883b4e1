"""FLAT, FLAT-ATSSA and MECT: embedders of characters and of the words over them, and an encoder of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from spacy.tokens import Doc

from ...embedders.char_embed import build_char_embed
from ...embedders.lexicon_embed import LexiconModel, build_lexicon_embed
from ...embedders.radical_embed import build_radical_embed
from ...nn.backends import Backend, Layer, Rows
from ...nn.run import forward
from ...nn.shim import EmbedModel, TorchShim
from ...validation import configured
from . import atssa_numpy, flat_numpy
from .flat_config import AtssaConfig, FlatConfig, MectConfig

if TYPE_CHECKING:
    from torch import nn


LatticeConfig = FlatConfig | AtssaConfig | MectConfig


@configured("spacy_tener.FLAT.v1", FlatConfig)
def build_flat(embed: EmbedModel | None, words: LexiconModel | None, config: FlatConfig) -> EmbedModel:
    """FLAT (Li et al., 2020): a transformer over embedded characters and words, with relative positions of spans. It
    returns the characters' vectors.

    Registered as `spacy_tener.FLAT.v1`. The defaults are the released code's for Weibo, in the paper's form: with
    residuals, and with all four distances.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    """
    return _lattice_layer("flat", flat_numpy.SpanEncoder, config, [embed or build_char_embed()], words)


@configured("spacy_tener.FLAT_ATSSA.v1", AtssaConfig)
def build_flat_atssa(embed: EmbedModel | None, words: LexiconModel | None, config: AtssaConfig) -> EmbedModel:
    """FLAT-ATSSA (Hu et al., 2022): embedded words are fused into the characters that they cover, followed by layers of
    self-attention over the characters, which selects its keys by a threshold.

    Registered as `spacy_tener.FLAT_ATSSA.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    """
    predictor = None if callable(config.selection) else atssa_numpy.AtssaEncoder
    return _lattice_layer("flat_atssa", predictor, config, [embed or build_char_embed()], words)


@configured("spacy_tener.MECT.v1", MectConfig)
def build_mect(
    embed: EmbedModel | None, words: LexiconModel | None, radicals: EmbedModel | None, config: MectConfig
) -> EmbedModel:
    """MECT (Wu et al., 2021): cross-attention between a stream of characters and words and a stream of the characters'
    radicals, whose outputs are joined. It returns the characters' vectors.

    Registered as `spacy_tener.MECT.v1`. The defaults are the released code's for Weibo, in the paper's form.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    radicals (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters' radicals;
        `spacy_tener.RadicalEmbed.v1` if there is none.
    """
    inputs = [embed or build_char_embed(), radicals or build_radical_embed()]
    predictor = None if config.streams else flat_numpy.SpanEncoder
    return _lattice_layer("mect", predictor, config, inputs, words)


def _lattice_layer(
    name: str,
    predictor: Callable[..., Any] | None,
    config: LatticeConfig,
    streams: list[EmbedModel],
    words: LexiconModel | None,
) -> EmbedModel:
    """Return a layer from one or more streams of token vectors, and the vectors of words over the tokens.

    Its module takes the streams, the words, and a `Lattice`, and returns rows of the tokens. So does its form in NumPy,
    which `predictor` makes from the config and the weights, unless only torch has it. *Shape:* (tokens, nI) each and
    (words, nW), to (tokens, nO)
    """
    layers = [*streams, cast(Any, words or build_lexicon_embed())]
    make_predictor = None if predictor is None else partial(predictor, config)
    shim = TorchShim(partial(_build_lattice_encoder, config=config), make_predictor)
    return LatticeLayer(name, forward, init=_init_lattice, dims={"nO": config.width}, layers=layers, shims=[shim])


class LatticeLayer(Layer):
    """An encoder of streams of token vectors, and of the words over the tokens."""

    __slots__ = ()

    def compute(self, inputs: list[Doc], backend: Backend) -> Rows:
        *streams, words = (backend.compute(layer, inputs) for layer in self.layers)
        return backend.call(self, *streams, words.floats, words.lattice)


def _build_lattice_encoder(*, config: LatticeConfig, nO: int, nW: int, **nI: int) -> nn.Module:
    """Make the module.

    nI (int): The widths of the streams: `nI0`, `nI1`, ..
    nW (int): The width of the words.
    """
    from .atssa_torch import AtssaEncoder
    from .flat_torch import SpanEncoder

    widths = (*(nI[name] for name in sorted(nI)), nW)
    if isinstance(config, AtssaConfig):
        return AtssaEncoder(config, *widths)
    return cast("nn.Module", (config.streams or SpanEncoder)(config, *widths))


def _init_lattice(lattice_layer: LatticeLayer, X: list[Doc] | None = None, Y: Any = None) -> None:
    for layer in lattice_layer.layers:
        layer.initialize(X=X)
    *streams, words = lattice_layer.layers
    widths = [_stream_width(stream, X) for stream in streams]
    if None not in widths:
        sizes = {f"nI{i}": width for i, width in enumerate(widths)}
        lattice_layer.shim.build(**sizes, nW=words.get_dim("nO"), nO=lattice_layer.get_dim("nO"))


def _stream_width(stream: EmbedModel, X: list[Doc] | None) -> int | None:
    """Return the width of a stream; None if it is unknown and there is no sample."""
    if stream.has_dim("nO"):
        return stream.get_dim("nO")
    return stream.predict(X[:1])[0].shape[1] if X else None
