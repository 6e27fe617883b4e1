"""From encoded tokens to tags: a linear layer of emissions, and the CRF that reads them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...tagging import TagLayout
from ..dropout import Dropout
from ..linear import Linear
from .crf import CRF


class CRFHead(nn.Module):
    """Emissions of every tag for every token, with the CRF that turns them into paths.

    The released code normalises emissions by log-softmax. That adds one number to all tags of a token, which no CRF
    quantity can see, so it is left out.
    """

    def __init__(self, *, width: int, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.emit = Linear(width, TagLayout(n_labels).n_tags)
        self.crf = CRF(n_labels)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """*Shape* [N, width] -> [N, n_tags]"""
        emissions: Tensor = self.emit(self.dropout(tokens))
        return emissions

    def grown(self, n_labels: int) -> CRFHead:
        """A head for more entity types, which emits the same scores as this one for the types that it had."""
        head = CRFHead(width=self.emit.in_features, n_labels=n_labels, dropout=self.dropout.p)
        head.crf = self.crf.resize(n_labels)
        kept = torch.from_numpy(self.crf.layout.within(head.crf.layout))
        with torch.no_grad():
            head.emit.weight[kept] = self.emit.weight.cpu()
            head.emit.bias[kept] = self.emit.bias.cpu()
        return head
