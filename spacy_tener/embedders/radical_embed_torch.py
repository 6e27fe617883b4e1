"""Features of tokens from the radicals of their characters."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn.dense_torch import UNKNOWN_ROW
from ..types import IntArray
from .spelling_torch import CharacterFeatures


class RadicalEncoder(nn.Module):
    """Encoder of the radicals of each token's character.

    The names of all parameters begin with `radicals`, so that an optimizer can give them a learning rate of their own.

    radicals (CharacterFeatures): CNN over the radicals of each distinct character.
    radical_dropout (float): Probability in training that one unknown radical replaces those of a token, which trains
        the unknown row. In the released code, it is the word dropout of the characters.
    """

    def __init__(self, radicals: CharacterFeatures, *, radical_dropout: float) -> None:
        super().__init__()
        self.radicals = radicals
        self.radical_dropout = radical_dropout

    def forward(self, radicals: Tensor, lengths: IntArray, characters: Tensor) -> Tensor:
        """Return the encoded radicals of each token's character.

        radicals (Tensor): Rows of the table, for all distinct characters joined. *Shape:* (radicals,)
        lengths (IntArray): The number of radicals of each distinct character. *Shape:* (distinct characters,)
        characters (Tensor): Index of each token's character among the distinct ones. *Shape:* (tokens,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        if self.training and self.radical_dropout > 0.0:
            unknown = len(lengths)
            radicals, lengths = F.pad(radicals, (0, 1), value=UNKNOWN_ROW), np.append(lengths, 1)
            dropped = torch.rand(characters.shape, device=characters.device) < self.radical_dropout
            characters = characters.masked_fill(dropped, unknown)
        return self.radicals(radicals, lengths, characters)
