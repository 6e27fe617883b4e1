"""Iterated dilated convolutions (Strubell et al., 2017) as an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..layers.convolution.idcnn import IDCNNConfig, IDCNNEncoder
from .bridge import RaggedModel, ragged_layer


def build_idcnn_encoder(
    width: int = 300,
    window: int = 3,
    dilations: Sequence[int] = (1, 2, 1),
    iterations: int = 3,
    dropout: float = 0.15,
) -> RaggedModel:
    """The ID-CNN for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.IDCNNEncoder.v1`. One convolution brings the input to `width`; then a block of dilated
    convolutions is applied again and again with the same weights, each convolution followed by ReLU. With the defaults
    a token sees 13 neighbours on either side.

    Width, window, dilations, and the start of the block as the identity are those of the released code, which applies
    its block once to sentences and three times to documents. What differs: there is one loss, on the output, instead of
    the mean over all applications of the block, and no penalty for what dropout changes.

    width (int): Width of every convolution's output.
    window (int): Tokens that a convolution sees; an odd number, at least 3.
    dilations (Sequence[int]): For each convolution of the block, the distance between the tokens that it sees.
    iterations (int): How often the block is applied.
    dropout (float): Dropout before each application of the block.
    """
    config = IDCNNConfig(width=width, window=window, dilations=tuple(dilations), iterations=iterations, dropout=dropout)
    return ragged_layer("idcnn_encoder", partial(_build_encoder, config=config), width_out=width)


def _build_encoder(*, nI: int, nO: int, config: IDCNNConfig) -> IDCNNEncoder:
    return IDCNNEncoder(config, input_width=nI)
