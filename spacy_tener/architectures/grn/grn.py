"""The registered functions of GRN, which a config names as `@architectures`.

`spacy_tener.GRN.v1` is a `tok2vec` for `spacy_tener.CRFTagger.v1` or for spaCy's own components. It consists of an
embedder and `spacy_tener.GatedRelationEncoder.v1`, which other embedders can use as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PositiveInt

from ...embedders.char_embed import build_word_char_embed
from ...nn.compose import chain_layers, ragged_layer
from ...nn.shim import EmbedModel, RaggedModel
from ...validation import OddInt, Probability, validated
from .grn_config import GRNConfig
from .grn_numpy import GRNEncoder as GRNPredictor

if TYPE_CHECKING:
    from .grn_torch import GRNEncoder


@validated("spacy_tener.GRN.v1")
def build_grn(
    embed: EmbedModel | None = None,
    width: PositiveInt = 400,
    branches: Sequence[OddInt] = (1, 3, 5),
    relation: Literal["gated"] | Callable[..., Any] | None = "gated",
    dropout: Probability = 0.5,
) -> EmbedModel:
    """Construct GRN: an embedder, convolutions for local context, and gated relations between all tokens.

    Registered as `spacy_tener.GRN.v1`. The model is the gated relation network of Chen et al. (2019,
    https://arxiv.org/abs/1907.05611) without its CRF, which `spacy_tener.CRFTagger.v1` adds. The defaults are the
    paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder. None for `spacy_tener.WordCharEmbed.v1` with its
        defaults, the paper's representation layer (eq. 1 and 2).
    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Window sizes of the convolutions of the context layer, in tokens. Each must be odd. The
        context features are the maximum over the convolutions, after tanh (eq. 3). `[3]` is the paper's "branch 3".
        `[]` leaves out the context layer: the relation layer then reads the input, which a linear layer projects to
        `width` if it has another width.
    relation (Optional[Union[Literal["gated"], Callable]]): The relation layer. "gated" has a gate for each pair of
        tokens and each channel (eq. 6). None leaves it out. A registered function can provide another one: a class
        like `Relation` of `grn_torch`.
    dropout (float): Dropout rate between the context layer and the relation layer.
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns a vector for each token. *Shape:* (tokens,
        width)
    """
    config = GRNConfig(width=width, branches=branches, relation=relation, dropout=dropout)
    if embed is None:
        embed = build_word_char_embed()
    return chain_layers(embed, _gated_relation_layer(config))


@validated("spacy_tener.GatedRelationEncoder.v1")
def build_gated_relation_encoder(
    width: PositiveInt = 400,
    branches: Sequence[OddInt] = (1, 3, 5),
    relation: Literal["gated"] | Callable[..., Any] | None = "gated",
    dropout: Probability = 0.5,
) -> RaggedModel:
    """Construct the encoder of GRN without an embedder, to combine with any embedder.

    Registered as `spacy_tener.GatedRelationEncoder.v1`. See `spacy_tener.GRN.v1`, which has the same arguments. The
    input may have any width.

    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Window sizes of the convolutions of the context layer, in tokens. Each must be odd. The
        context features are the maximum over the convolutions, after tanh (eq. 3). `[3]` is the paper's "branch 3".
        `[]` leaves out the context layer: the relation layer then reads the input, which a linear layer projects to
        `width` if it has another width.
    relation (Optional[Union[Literal["gated"], Callable]]): The relation layer. "gated" has a gate for each pair of
        tokens and each channel (eq. 6). None leaves it out. A registered function can provide another one: a class
        like `Relation` of `grn_torch`.
    dropout (float): Dropout rate between the context layer and the relation layer.
    RETURNS (Model[List[Floats2d], List[Floats2d]]): The encoder. *Shape:* (tokens, any width) to (tokens, width)
    """
    config = GRNConfig(width=width, branches=branches, relation=relation, dropout=dropout)
    return _gated_relation_layer(config)


def _gated_relation_layer(config: GRNConfig) -> RaggedModel:
    build_module = partial(_build_grn, config=config)
    # A relation layer of another package has no NumPy implementation.
    make_predictor = None if callable(config.relation) else partial(GRNPredictor, config)
    return ragged_layer("gated_relation_encoder", build_module, make_predictor, width_out=config.width)


def _build_grn(*, config: GRNConfig, nI: int, nO: int) -> GRNEncoder:
    from .grn_torch import GRNEncoder

    return GRNEncoder(config, input_width=nI)
