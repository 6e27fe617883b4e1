"""The registered functions of FLAT, FLAT-ATSSA and MECT, which a config names as `@architectures`.

Each is a `tok2vec` for `spacy_tener.CRFTagger.v1` or for spaCy's own components, for Docs whose tokens are characters.
It embeds the characters and the lexicon words that match them (the lattice), encodes both, and returns the vectors of
the characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from spacy.tokens import Doc

from ...embedders.char_embed import build_char_embed
from ...embedders.lexicon_embed import LexiconModel, build_lexicon_embed
from ...embedders.radical_embed import build_radical_embed
from ...features.tokens import TokenBatch
from ...nn.backends import Backend, Layer, Rows
from ...nn.run import forward
from ...nn.shim import EmbedModel, TorchShim
from ...validation import Probability, validated
from . import atssa_numpy, flat_numpy
from .flat_config import AtssaConfig, Distance, FlatConfig, MectConfig

if TYPE_CHECKING:
    from torch import nn


LatticeConfig = FlatConfig | AtssaConfig | MectConfig


@validated("spacy_tener.FLAT.v1")
def build_flat(
    embed: EmbedModel | None = None,
    words: LexiconModel | None = None,
    width: PositiveInt = 128,
    layers: PositiveInt = 1,
    heads: PositiveInt = 8,
    ff_width: PositiveInt | None = None,
    dropout: Probability = 0.15,
    attention_dropout: Probability | None = 0.0,
    distances: Sequence[Distance] | None = None,
) -> EmbedModel:
    """Construct FLAT: a transformer over characters and lexicon words, with relative positions of spans.

    Registered as `spacy_tener.FLAT.v1`. The model is the one of Li et al. (2020, https://arxiv.org/abs/2004.11795),
    section 3, without its CRF, which `spacy_tener.CRFTagger.v1` adds. The sizes are those of the released code for
    Weibo; residual connections and all four distances are as in the paper.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters. None for `spacy_tener.CharEmbed.v1`
        with its defaults.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of lexicon words. None for
        `spacy_tener.LexiconEmbed.v1` with its defaults, which has jieba's dictionary.
    width (int): Hidden size d of the transformer, to which linear layers project the embeddings.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Hidden size of the feed-forward networks. None for three times the width.
    dropout (float): Dropout rate of the feed-forward networks.
    attention_dropout (Optional[float]): Dropout rate of the attention weights. None for the same as `dropout`.
    distances (Optional[List[Literal["hh", "ht", "th", "tt"]]]): Distances between two spans that the relative position
        embeddings use: head to head, head to tail, tail to head and tail to tail. None for all of them, as in the
        paper. The released code and MECT use "hh" and "tt".
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns a vector for each character. *Shape:*
        (characters, width)
    """
    config = FlatConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        distances=distances,
    )
    if embed is None:
        embed = build_char_embed()
    return _lattice_layer("flat", flat_numpy.SpanEncoder, config, [embed], words)


@validated("spacy_tener.FLAT_ATSSA.v1")
def build_flat_atssa(
    embed: EmbedModel | None = None,
    words: LexiconModel | None = None,
    width: PositiveInt = 128,
    layers: PositiveInt = 1,
    heads: PositiveInt = 8,
    ff_width: PositiveInt | None = None,
    dropout: Probability = 0.15,
    attention_dropout: Probability | None = 0.0,
    selection: Literal["adaptive", "none"] | Callable[..., Any] = "adaptive",
    k: NonNegativeInt = 3,
    alpha: PositiveFloat = 50.0,
    tau: PositiveFloat = 1.0,
    penalty: NonNegativeFloat = 4e-6,
) -> EmbedModel:
    """Construct FLAT-ATSSA: fuse lexicon words into characters, and encode these with selective self-attention.

    Registered as `spacy_tener.FLAT_ATSSA.v1`. The model is the one of Hu et al. (2022), section 4, without its CRF,
    which `spacy_tener.CRFTagger.v1` adds. A character attends to the words that cover it; the context layers select,
    by a threshold that the model computes for each query and head, the keys that a character attends to. The defaults
    are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters. None for `spacy_tener.CharEmbed.v1`
        with its defaults.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of lexicon words. None for
        `spacy_tener.LexiconEmbed.v1` with its defaults, which has jieba's dictionary.
    width (int): Hidden size d of the context layers and of the output.
    layers (int): Number of context layers.
    heads (int): Number of attention heads h of the context layers and of the word fusion. `width / heads` must be an
        even integer.
    ff_width (Optional[int]): Hidden size of the feed-forward networks. None for four times the width, the smallest that
        the paper searched.
    dropout (float): Dropout rate of the feed-forward networks.
    attention_dropout (Optional[float]): Dropout rate of the attention weights. None for the same as `dropout`.
    selection (Union[Literal["adaptive", "none"], Callable]): Which keys a query attends to. "adaptive" selects those
        whose score reaches the query's threshold (eq. 7 and 8); "none" selects all (the paper's "- Selective SA"). A
        registered function can provide another rule: a class like `SelectiveAttention` of `selection_torch`.
    k (int): Minimum number of keys that the threshold selects. 0 for no minimum (the paper's "- top-k").
    alpha (float): Steepness of the sigmoid that replaces the threshold's step in training (eq. 9). 1 for the paper's
        "- AF".
    tau (float): Temperature of the Gumbel-softmax from which the selected keys are drawn in training.
    penalty (float): Weight lambda of the number of selected keys in the loss (eq. 19), averaged over the sentences.
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns a vector for each character. *Shape:*
        (characters, width)
    """
    config = AtssaConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        selection=selection,
        k=k,
        alpha=alpha,
        tau=tau,
        penalty=penalty,
    )
    if embed is None:
        embed = build_char_embed()
    # A selection from outside of this package has no form in NumPy.
    predictor = None if callable(selection) else atssa_numpy.AtssaEncoder
    return _lattice_layer("flat_atssa", predictor, config, [embed], words)


@validated("spacy_tener.MECT.v1")
def build_mect(
    embed: EmbedModel | None = None,
    words: LexiconModel | None = None,
    radicals: EmbedModel | None = None,
    width: PositiveInt = 128,
    layers: PositiveInt = 1,
    heads: PositiveInt = 8,
    ff_width: PositiveInt | None = None,
    dropout: Probability = 0.15,
    attention_dropout: Probability | None = 0.0,
    random_attention: NonNegativeInt = 320,
    streams: Callable[..., Any] | None = None,
) -> EmbedModel:
    """Construct MECT: cross-attention between a stream of characters and words and a stream of radicals.

    Registered as `spacy_tener.MECT.v1`. The model is the one of Wu et al. (2021, https://arxiv.org/abs/2107.05418),
    section 4, without its CRF, which `spacy_tener.CRFTagger.v1` adds. The queries of each stream are computed from the
    other stream, and the outputs of both are concatenated. The sizes are those of the released code for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters. None for `spacy_tener.CharEmbed.v1`
        with its defaults.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of lexicon words. None for
        `spacy_tener.LexiconEmbed.v1` with its defaults, which has jieba's dictionary.
    radicals (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of the characters' radicals. None for
        `spacy_tener.RadicalEmbed.v1` with its defaults.
    width (int): Hidden size d of each stream and of the output.
    layers (int): Number of layers. The paper has one.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Hidden size of the feed-forward networks. None for three times the width.
    dropout (float): Dropout rate of the feed-forward networks.
    attention_dropout (Optional[float]): Dropout rate of the attention weights. None for the same as `dropout`.
    random_attention (int): Number of positions of a sentence that have a learned bias of the attention score for each
        pair of them: the characters come first, then the words. Later positions have none, so that a sentence may be
        longer. 0 for no biases (the paper's "- RA").
    streams (Optional[Callable]): The encoder of the streams. None for the paper's. A registered function can provide
        another one: a class like `SpanEncoder` of `flat_torch`.
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns a vector for each character. *Shape:*
        (characters, width)
    """
    config = MectConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        random_attention=random_attention,
        streams=streams,
    )
    if embed is None:
        embed = build_char_embed()
    if radicals is None:
        radicals = build_radical_embed()
    # An encoder of another package has no NumPy implementation.
    predictor = None if streams else flat_numpy.SpanEncoder
    return _lattice_layer("mect", predictor, config, [embed, radicals], words)


def _lattice_layer(
    name: str,
    predictor: Callable[..., Any] | None,
    config: LatticeConfig,
    streams: list[EmbedModel],
    words: LexiconModel | None,
) -> EmbedModel:
    """Return a Thinc layer that embeds characters and lexicon words, and encodes both.

    name (str): Name of the layer.
    predictor (Optional[Callable]): Class of the NumPy implementation, called with the config and the weights. None if
        the encoder needs torch.
    config (LatticeConfig): Sizes and options of the encoder.
    streams (List[Model[List[Doc], List[Floats2d]]]): The embedders of characters: one for FLAT and FLAT-ATSSA, and for
        MECT a second one, of radicals.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of lexicon words. None for
        `spacy_tener.LexiconEmbed.v1` with its defaults.
    RETURNS (Model[List[Doc], List[Floats2d]]): The layer, which returns a vector for each character. *Shape:*
        (characters, width)
    """
    if words is None:
        words = build_lexicon_embed()
    layers = [*streams, cast(Any, words)]
    make_predictor = None if predictor is None else partial(predictor, config)
    shim = TorchShim(partial(_build_lattice_encoder, config=config), make_predictor)
    return LatticeLayer(name, forward, init=_init_lattice, dims={"nO": config.width}, layers=layers, shims=[shim])


class LatticeLayer(Layer):
    """A Thinc layer that encodes characters and lexicon words. Its sublayers are the embedders, with words last."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        *streams, words = (backend.compute(layer, inputs) for layer in self.layers)
        return backend.call(self, *streams, words.floats, words.lattice)


def _build_lattice_encoder(*, config: LatticeConfig, nO: int, nW: int, **nI: int) -> nn.Module:
    """Build the torch module of an encoder.

    config (LatticeConfig): Sizes and options.
    nO (int): Width of the output. Thinc passes it; it always equals `config.width`.
    nW (int): Width of the word embeddings.
    nI (int): Width of the character embeddings of each stream: `nI0` and, for MECT, `nI1`.
    """
    from .atssa_torch import AtssaEncoder
    from .flat_torch import SpanEncoder

    widths = (*(nI[name] for name in sorted(nI)), nW)
    if isinstance(config, AtssaConfig):
        return AtssaEncoder(config, *widths)
    return cast("nn.Module", (config.streams or SpanEncoder)(config, *widths))


def _init_lattice(lattice_layer: LatticeLayer, X: list[Doc] | None = None, Y: Any = None) -> None:
    """Initialize the embedders, and build the torch module if all their widths are known."""
    for layer in lattice_layer.layers:
        layer.initialize(X=X)
    *streams, words = lattice_layer.layers
    widths = [_stream_width(stream, X) for stream in streams]
    if None not in widths:
        sizes = {f"nI{i}": width for i, width in enumerate(widths)}
        lattice_layer.shim.build(**sizes, nW=words.get_dim("nO"), nO=lattice_layer.get_dim("nO"))


def _stream_width(stream: EmbedModel, X: list[Doc] | None) -> int | None:
    """Return an embedder's output width, computed from a sample text if necessary, or None if there is no sample."""
    if stream.has_dim("nO"):
        return stream.get_dim("nO")
    return stream.predict(X[:1])[0].shape[1] if X else None
