"""The registered architectures of the gated relation network (GRN).

`spacy_tener.GRN.v1` is a complete model, which consists of an embedding layer and an encoder. Use it as `tok2vec` in
`spacy_tener.CRFTagger.v1` or in spaCy's components. `spacy_tener.GatedRelationEncoder.v1` is the encoder alone, to
combine with another embedding layer.
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
    """Construct a gated relation network: an embedding layer, convolutions, and gated relations between all tokens.

    Registered as `spacy_tener.GRN.v1`. The model is described in Chen et al. (2019,
    https://arxiv.org/abs/1907.05611). `spacy_tener.CRFTagger.v1` adds the paper's CRF. The defaults are
    the same as in the paper.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): Embedding layer. Defaults to `spacy_tener.WordCharEmbed.v1`, the
        paper's representation layer (eq. 1 and 2).
    width (int): Output width d, which is also the number of convolution channels.
    branches (Sequence[int]): Convolution window sizes, in tokens. The sizes must be odd. The layer returns the maximum
        over all convolutions (eq. 3). `[3]` is the paper's ablation "branch 3". `[]` for no context layer.
    relation (Optional[Union[Literal["gated"], Callable]]): The relation layer. "gated" for the paper's layer,
        which computes a gate for each pair of tokens and each channel (eq. 6). None for no relation layer. You can also
        pass a layer class with the same interface as `grn_torch.Relation`.
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
    """Construct the encoder of a gated relation network (GRN), which you can combine with any embedding layer.

    Registered as `spacy_tener.GatedRelationEncoder.v1`. See `spacy_tener.GRN.v1` for the complete model.

    width (int): Output width d, which is also the number of convolution channels.
    branches (Sequence[int]): Convolution window sizes, in tokens. The sizes must be odd. The layer returns the maximum
        over all convolutions (eq. 3). `[3]` is the paper's ablation "branch 3". `[]` for no context layer.
    relation (Optional[Union[Literal["gated"], Callable]]): The relation layer. "gated" for the paper's layer,
        which computes a gate for each pair of tokens and each channel (eq. 6). None for no relation layer. You can also
        pass a layer class with the same interface as `grn_torch.Relation`.
    dropout (float): Dropout rate between the context layer and the relation layer.
    RETURNS (Model[List[Floats2d], List[Floats2d]]): The encoder, which accepts input of any width. *Shape:* (tokens,
        input width) to (tokens, width)
    """
    config = GRNConfig(width=width, branches=branches, relation=relation, dropout=dropout)
    return _gated_relation_layer(config)


def _gated_relation_layer(config: GRNConfig) -> RaggedModel:
    build_module = partial(_build_grn, config=config)
    # There is no NumPy implementation for a custom relation layer.
    make_predictor = None if callable(config.relation) else partial(GRNPredictor, config)
    return ragged_layer("gated_relation_encoder", build_module, make_predictor, width_out=config.width)


def _build_grn(*, config: GRNConfig, nI: int, nO: int) -> GRNEncoder:
    from .grn_torch import GRNEncoder

    return GRNEncoder(config, input_width=nI)
