"""Terms of the loss that a layer adds by itself, where its own gradients pass."""

from __future__ import annotations

from torch import Tensor, nn


class Penalty(nn.Module):
    """The mean over the sequences of a batch of a weighted cost, and a record of what it came to.

    weight: of the term in the loss.
    share: the batch's share of all sequences over which the loss is a mean, where it is one of several batches.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.share = 1.0
        self._recorded: Tensor | None = None

    def price(self, n_sequences: int) -> float:
        """What one unit of the cost of one sequence adds to the loss."""
        return self.weight * self.share / max(1, n_sequences)

    def record(self, value: Tensor) -> None:
        """Note a part of the term whose gradient has been added."""
        value = value.detach()
        self._recorded = value if self._recorded is None else self._recorded + value

    def take(self) -> float:
        """The sum of what was recorded since the last call."""
        recorded, self._recorded = self._recorded, None
        return 0.0 if recorded is None else float(recorded)
