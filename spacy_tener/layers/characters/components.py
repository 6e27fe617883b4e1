"""From the components of characters to rows for tokens (MECT, section 4.1)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...types import IntArray
from ..embedding import UNKNOWN_ROW
from .encoders import CharacterFeatures


class ComponentEncoder(nn.Module):
    """What the structure of its characters says about each token.

    The names of all parameters begin with `components`, by which an optimizer can give them a rate of their own.

    components: the filters over a character's components, with their maximum; a distinct character is read once.
    component_dropout: probability that a token is read in training as a character of one unknown component. It trains
        the unknown row, as in the released code, where it is the word dropout of the characters.
    """

    def __init__(self, components: CharacterFeatures, *, component_dropout: float) -> None:
        super().__init__()
        self.components = components
        self.component_dropout = component_dropout

    def forward(self, components: Tensor, lengths: IntArray, characters: Tensor) -> Tensor:
        """Read the distinct characters, then give each token its character's row.

        components: rows of the table, for all distinct characters joined. *Shape: [C]*
        lengths: the number of components of each distinct character. *Shape: [n]*
        characters: which of the distinct characters each token is. *Shape: [N]*
        Returns *Shape: [N, width]*
        """
        if self.training and self.component_dropout > 0.0:
            unknown = len(lengths)
            components, lengths = F.pad(components, (0, 1), value=UNKNOWN_ROW), np.append(lengths, 1)
            dropped = torch.rand(characters.shape, device=characters.device) < self.component_dropout
            characters = characters.masked_fill(dropped, unknown)
        tokens: Tensor = self.components(components, lengths, characters)
        return tokens
