"""The registered architectures FLAT, FLAT-ATSSA and MECT, for Docs whose tokens are characters.

The models embed the characters of a sentence and the lexicon words that occur in the sentence, encode both, and return
a vector for each character. Use a model as `tok2vec` in `spacy_tener.CRFTagger.v1` or in spaCy's components.
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
    """Construct the FLAT model: a transformer over the characters and the lexicon words in a sentence.

    Registered as `spacy_tener.FLAT.v1`. The model is described in section 3 of Li et al. (2020,
    https://arxiv.org/abs/2004.11795). `spacy_tener.CRFTagger.v1` adds the paper's CRF. The default sizes are taken from
    the authors' code for the Weibo corpus. Where the paper and this code differ (residual connections, layer
    normalization, relative distances), this package follows the paper by default.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): Character embedding layer. Defaults to
        `spacy_tener.CharEmbed.v1`.
    words (Optional[Model[List[Doc], LatticeWords]]): Lexicon word embedding layer. Defaults to
        `spacy_tener.LexiconEmbed.v1` with jieba's dictionary.
    width (int): Transformer hidden size d. Linear layers project the embeddings to this size.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for three times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    distances (Optional[List[Literal["hh", "ht", "th", "tt"]]]): Which distances the relative position embeddings
        encode. A character or word has a head (first position) and a tail (last position), so there are four distances
        between two characters or words: head to head, head to tail, tail to head and tail to tail. None for all four
        distances, as in the paper. The authors' code and MECT use "hh" and "tt".
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
    """Construct the FLAT-ATSSA model: a transformer over characters that are enriched with lexicon words.

    Registered as `spacy_tener.FLAT_ATSSA.v1`. The model is described in section 4 of Hu et al. (2022).
    `spacy_tener.CRFTagger.v1` adds the paper's CRF. First, each character attends to the words that contain the
    character (word fusion). Transformer layers then encode the characters with selective self-attention: a query only
    attends to keys whose score reaches a learned threshold. The defaults are the same as in the paper.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): Character embedding layer. Defaults to
        `spacy_tener.CharEmbed.v1`.
    words (Optional[Model[List[Doc], LatticeWords]]): Lexicon word embedding layer. Defaults to
        `spacy_tener.LexiconEmbed.v1` with jieba's dictionary.
    width (int): Transformer hidden size d.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h, in the transformer layers and in the word fusion. `width / heads` must be
        an even integer.
    ff_width (Optional[int]): Feed-forward hidden size. None for four times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    selection (Union[Literal["adaptive", "none"], Callable]): How keys are selected. "adaptive" for keys whose score
        reaches the query's threshold (eq. 7 and 8). "none" for all keys (the paper's ablation "- Selective SA"). You
        can also pass an attention class with the same interface as `selection_torch.SelectiveAttention`.
    k (int): Minimum number of selected keys. 0 for no minimum (the ablation "- top-k").
    alpha (float): Slope of the sigmoid that replaces the step function at the threshold during training (eq. 9). 1 for
        the ablation "- AF".
    tau (float): Temperature of the Gumbel-softmax that samples the selected keys during training.
    penalty (float): Weight lambda of the penalty on the number of selected keys, which is added to the loss (eq. 19).
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
    # There is no NumPy implementation for a custom attention class.
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
    """Construct the MECT model: a cross-transformer over characters, lexicon words and radicals.

    Registered as `spacy_tener.MECT.v1`. The model is described in section 4 of Wu et al. (2021,
    https://arxiv.org/abs/2107.05418). `spacy_tener.CRFTagger.v1` adds the paper's CRF. One stream of the model encodes
    the characters and words, and the other stream encodes the characters' radicals. In the cross-attention, the queries
    of each stream are computed from the other stream. The outputs of both streams are concatenated. The default sizes
    are taken from the authors' code for the Weibo corpus.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): Character embedding layer. Defaults to
        `spacy_tener.CharEmbed.v1`.
    words (Optional[Model[List[Doc], LatticeWords]]): Lexicon word embedding layer. Defaults to
        `spacy_tener.LexiconEmbed.v1` with jieba's dictionary.
    radicals (Optional[Model[List[Doc], List[Floats2d]]]): Radical embedding layer, which returns a vector for each
        character. Defaults to `spacy_tener.RadicalEmbed.v1`.
    width (int): Hidden size d, which is also the output width.
    layers (int): Number of transformer layers. The paper uses one layer.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for three times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    random_attention (int): Number of positions with random attention, which adds a learned bias to the attention score
        for each pair of positions. Characters and words have consecutive positions. Longer sentences are allowed, but
        later positions have no bias. 0 for no random attention (the ablation "- RA" in the paper).
    streams (Optional[Callable]): A custom encoder class with the same interface as `flat_torch.SpanEncoder`. None for
        the paper's encoder.
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
    # There is no NumPy implementation for a custom encoder class.
    predictor = None if streams else flat_numpy.SpanEncoder
    return _lattice_layer("mect", predictor, config, [embed, radicals], words)


def _lattice_layer(
    name: str,
    predictor: Callable[..., Any] | None,
    config: LatticeConfig,
    streams: list[EmbedModel],
    words: LexiconModel | None,
) -> EmbedModel:
    """Create a Thinc layer that embeds and encodes characters and lexicon words.

    name (str): Layer name.
    predictor (Optional[Callable]): The NumPy implementation, a class that is created from the config and the weights.
        None if the encoder has only a torch implementation.
    config (LatticeConfig): Encoder hyperparameters.
    streams (List[Model[List[Doc], List[Floats2d]]]): The character embedding layer and, for MECT, the radical embedding
        layer.
    words (Optional[Model[List[Doc], LatticeWords]]): Lexicon word embedding layer. Defaults to
        `spacy_tener.LexiconEmbed.v1`.
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
    """A Thinc layer that encodes characters and lexicon words.

    The sublayers are the embedding layers. The last sublayer embeds the words.
    """

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        *streams, words = (backend.compute(layer, inputs) for layer in self.layers)
        return backend.call(self, *streams, words.floats, words.lattice)


def _build_lattice_encoder(*, config: LatticeConfig, nO: int, nW: int, **nI: int) -> nn.Module:
    """Create the torch module for a FLAT, FLAT-ATSSA or MECT encoder.

    config (LatticeConfig): Encoder hyperparameters.
    nO (int): Output width, which is always `config.width`.
    nW (int): Word embedding width.
    nI (int): Character embedding width (`nI0`) and, for MECT, radical embedding width (`nI1`).
    """
    from .atssa_torch import AtssaEncoder
    from .flat_torch import SpanEncoder

    widths = (*(nI[name] for name in sorted(nI)), nW)
    if isinstance(config, AtssaConfig):
        return AtssaEncoder(config, *widths)
    return cast("nn.Module", (config.streams or SpanEncoder)(config, *widths))


def _init_lattice(lattice_layer: LatticeLayer, X: list[Doc] | None = None, Y: Any = None) -> None:
    """Initialize the embedding layers. If all embedding widths are known, create the torch module."""
    for layer in lattice_layer.layers:
        layer.initialize(X=X)
    *streams, words = lattice_layer.layers
    widths = [_stream_width(stream, X) for stream in streams]
    if None not in widths:
        sizes = {f"nI{i}": width for i, width in enumerate(widths)}
        lattice_layer.shim.build(**sizes, nW=words.get_dim("nO"), nO=lattice_layer.get_dim("nO"))


def _stream_width(stream: EmbedModel, X: list[Doc] | None) -> int | None:
    """Return an embedding layer's output width.

    If the layer does not declare its width, the first Doc is embedded to find the width. Without Docs, the width is
    None.
    """
    if stream.has_dim("nO"):
        return stream.get_dim("nO")
    return stream.predict(X[:1])[0].shape[1] if X else None
