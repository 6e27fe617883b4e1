"""Iterated dilated convolutions (Strubell et al., 2017): a wide view from few weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..dropout import Dropout
from ..ragged import Ragged
from ..sequences import Lengths
from ..settings import Probability, Settings, Size, check
from .convolution import Convolution, ConvolutionWindows


@dataclass(frozen=True, kw_only=True)
class IDCNNConfig(Settings):
    """Sizes and choices of an ID-CNN. The defaults are the released code's, which iterates over whole documents.

    width: Width of every convolution's output.
    window: Tokens that a convolution sees; an odd number, at least 3.
    dilations: For each convolution of the block, the distance between the tokens that it sees.
    iterations: How often the block is applied, each time with the same weights.
    dropout: Dropout before each application of the block.
    """

    width: Size = 300
    window: int = 3
    dilations: Sequence[int] = (1, 2, 1)
    iterations: Size = 3
    dropout: Probability = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        # A window of one token would see no neighbour at any distance.
        odd = self.window >= 3 and self.window % 2 == 1
        check("window", self.window, odd, "an odd number of tokens, at least 3")
        positive = bool(self.dilations) and min(self.dilations) >= 1
        check("dilations", self.dilations, positive, "numbers of at least 1")

    @property
    def reach(self) -> int:
        """How many tokens to each side take part in a token's output."""
        return self.window // 2 * (1 + self.iterations * sum(self.dilations))


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
