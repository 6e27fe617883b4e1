"""Sequence encoders, and whole architectures of an embedder and an encoder: TENER, GRN."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..runtime import convolution, transformer
from ..settings import GRNConfig, RelationKind, TransformerConfig, validated
from .compose import chain_layers, ragged_layer
from .embed.char import build_char_embed, build_word_char_embed
from .shim import EmbedModel, RaggedModel

if TYPE_CHECKING:
    from torch import nn

EncoderConfig = TransformerConfig | GRNConfig


@validated("spacy_tener.TENER.v1")
def build_tener(
    embed: EmbedModel | None = None,
    width: int = 128,
    layers: int = 1,
    heads: int = 4,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float | None = None,
    adapted: bool = True,
    scaled: bool | None = None,
) -> EmbedModel:
    """TENER (Yan et al., 2019): an embedder, a linear layer, and a transformer with relative positions in its
    attention, which tell direction and distance.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.
    width (int): Width d of the output, shared by the heads. A linear layer brings the input to it.
    layers (int): Number of layers.
    heads (int): Number of heads h; each is `width / heads` wide.
    ff_width (Optional[int]): Width inside the feed-forward; None for twice the width.
    dropout (float): Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    attention_dropout (Optional[float]): On the attention map; None for the same as `dropout`.
    adapted (bool): TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled (Optional[bool]): Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers'
        choice: vanilla attention is scaled, adapted is not.
    """
    config = TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        adapted=adapted,
        scaled=scaled,
    )
    return chain_layers(embed or build_char_embed(), _transformer_encoder(config))


@validated("spacy_tener.TransformerEncoder.v1")
def build_transformer_encoder(
    width: int = 128,
    layers: int = 1,
    heads: int = 4,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float | None = None,
    adapted: bool = True,
    scaled: bool | None = None,
) -> RaggedModel:
    """TENER's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`; or the vanilla
    transformer encoder, its baseline.

    Registered as `spacy_tener.TransformerEncoder.v1`.

    width (int): Width d of the output, shared by the heads. A linear layer brings the input to it.
    layers (int): Number of layers.
    heads (int): Number of heads h; each is `width / heads` wide.
    ff_width (Optional[int]): Width inside the feed-forward; None for twice the width.
    dropout (float): Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    attention_dropout (Optional[float]): On the attention map; None for the same as `dropout`.
    adapted (bool): TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled (Optional[bool]): Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers'
        choice: vanilla attention is scaled, adapted is not.
    """
    config = TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        adapted=adapted,
        scaled=scaled,
    )
    return _transformer_encoder(config)


def _transformer_encoder(config: TransformerConfig) -> RaggedModel:
    predictor = partial(transformer.TransformerEncoder, config)
    return ragged_layer("transformer_encoder", partial(_build, config=config), predictor, width_out=config.width)


@validated("spacy_tener.GRN.v1")
def build_grn(
    embed: EmbedModel | None = None,
    width: int = 400,
    branches: Sequence[int] = (1, 3, 5),
    relation: RelationKind | None = "gated",
    dropout: float = 0.5,
) -> EmbedModel:
    """The gated relation network (Chen et al., 2019): an embedder, convolutions for local context, and gated relations
    for global context.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.
    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Windows of the context layer's convolutions, odd numbers of tokens, followed by tanh and
        the maximum over the convolutions in each channel. `[3]` is the paper's "branch 3". `[]` leaves the context
        layer out: the relation layer reads the input, through a linear layer if it is not `width` wide, as the paper's
        is.
    relation (Optional[Literal["gated", "mean", "attention"]]): Relation layer: "gated" has one gate for each pair of
        tokens and each channel (eq. 6); "mean" is the mean of the relation vectors, without gates (eq. 5, the paper's
        DFN); "attention" has one gate for each pair (eq. 7, its GAttN); None leaves the relation layer out.
    dropout (float): On the context layer's output, before the relation layer.
    """
    config = GRNConfig(width=width, branches=branches, relation=relation, dropout=dropout)
    return chain_layers(embed or build_word_char_embed(), _gated_relation_encoder(config))


@validated("spacy_tener.GatedRelationEncoder.v1")
def build_gated_relation_encoder(
    width: int = 400, branches: Sequence[int] = (1, 3, 5), relation: RelationKind | None = "gated", dropout: float = 0.5
) -> RaggedModel:
    """GRN's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.

    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Windows of the context layer's convolutions, odd numbers of tokens, followed by tanh and
        the maximum over the convolutions in each channel. `[3]` is the paper's "branch 3". `[]` leaves the context
        layer out: the relation layer reads the input, through a linear layer if it is not `width` wide, as the paper's
        is.
    relation (Optional[Literal["gated", "mean", "attention"]]): Relation layer: "gated" has one gate for each pair of
        tokens and each channel (eq. 6); "mean" is the mean of the relation vectors, without gates (eq. 5, the paper's
        DFN); "attention" has one gate for each pair (eq. 7, its GAttN); None leaves the relation layer out.
    dropout (float): On the context layer's output, before the relation layer.
    """
    return _gated_relation_encoder(GRNConfig(width=width, branches=branches, relation=relation, dropout=dropout))


def _gated_relation_encoder(config: GRNConfig) -> RaggedModel:
    predictor = partial(convolution.GRNEncoder, config)
    return ragged_layer("gated_relation_encoder", partial(_build, config=config), predictor, width_out=config.width)


def _build(*, config: EncoderConfig, nI: int, nO: int) -> nn.Module:
    from ..layers.convolution import GRNEncoder
    from ..layers.transformer import TransformerEncoder

    if isinstance(config, TransformerConfig):
        return TransformerEncoder(config, input_width=nI)
    return GRNEncoder(config, input_width=nI)
