"""Iterated dilated convolutions (Strubell et al., 2017): a wide view from few weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...batching.sequences import Lengths
from ...settings import IDCNNConfig
from ..dropout import Dropout
from ..ragged import Ragged
from .convolution import Convolution, ConvolutionWindows


class IDCNNEncoder(nn.Module):
    """A convolution that widens the input, then one block of dilated convolutions applied again and again.

    As in the released code, every convolution is followed by ReLU; the first starts Xavier-uniform, and those of the
    block start as the identity, so that an untrained block returns its input. What differs: one loss reads the
    last application's output, where the paper averages a loss over all of them, and there is no penalty on the
    difference that dropout makes: both belong to training, not to an encoder.
    """

    def __init__(self, config: IDCNNConfig, *, input_width: int) -> None:
        super().__init__()
        self.config = config
        self.widen = Convolution(input_width, config.width, size=config.window)
        nn.init.xavier_uniform_(self.widen.product.weight)
        nn.init.zeros_(self.widen.product.bias)
        self.block = nn.ModuleList(_identity(config.width, config.window) for _ in config.dilations)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens of all sequences, joined; `lengths` says how many each sequence has.

        x: *Shape: [N, input_width]*. Returns *Shape: [N, d]*
        """
        ragged = Ragged.of(lengths, device=x.device, n_tokens=len(x))
        windows = {
            step: ConvolutionWindows.of(ragged, self.config.window, step) for step in {1, *self.config.dilations}
        }
        x = F.relu(self.widen(x, windows[1]))
        for _ in range(self.config.iterations):
            x = self._iterate(self.dropout(x), windows)
        return x

    def _iterate(self, x: Tensor, windows: Mapping[int, ConvolutionWindows]) -> Tensor:
        """The block, once. *Shape: [N, d]*"""
        for layer, dilation in zip(self.block, self.config.dilations, strict=True):
            x = F.relu(cast(Convolution, layer)(x, windows[dilation]))
        return x


def _identity(width: int, window: int) -> Convolution:
    """A convolution that returns the middle of its window."""
    layer = Convolution(width, width, size=window)
    with torch.no_grad():
        middle = torch.zeros(width, window, width)
        middle[:, window // 2] = torch.eye(width)
        layer.product.weight.copy_(middle.flatten(1))
        layer.product.bias.zero_()
    return layer
