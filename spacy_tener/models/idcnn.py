"""Iterated dilated convolutions (Strubell et al., 2017) as an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.convolution import IDCNNEncoder
from ..settings import IDCNNConfig
from .settings import expand_config
from .shims.bridge import RaggedModel, encoder_layer

if TYPE_CHECKING:
    from torch import nn


@expand_config()
def build_idcnn_encoder(*, config: IDCNNConfig) -> RaggedModel:
    """The ID-CNN for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.IDCNNEncoder.v1`. One convolution brings the input to `width`; then a block of dilated
    convolutions is applied again and again with the same weights, each convolution followed by ReLU. With the defaults
    a token sees 13 neighbours on either side.

    Width, window, dilations, and the start of the block as the identity are those of the released code, which applies
    its block once to sentences and three times to documents. What differs: there is one loss, on the output, instead of
    the mean over all applications of the block, and no penalty for what dropout changes.
    """
    return encoder_layer("idcnn_encoder", _encoder, IDCNNEncoder, config)


def _encoder(*, config: IDCNNConfig, nI: int, nO: int) -> nn.Module:
    from ..layers.convolution import IDCNNEncoder

    return IDCNNEncoder(config, input_width=nI)
