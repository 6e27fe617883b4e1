"""A term that a layer adds to the loss."""

from __future__ import annotations

from torch import Tensor, nn


class Penalty(nn.Module):
    """Weighted penalty term of the loss, a mean over the sequences of a batch, with a record of its value.

    weight (float): Weight of the term in the loss.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.share = 1.0
        """The batch's share of the sequences over which the loss is averaged, which may be those of several batches."""
        self._recorded: Tensor | None = None

    def factor(self, n_sequences: int) -> float:
        """Return the factor in the loss of the penalty of one sequence."""
        return self.weight * self.share / max(1, n_sequences)

    def record(self, value: Tensor) -> None:
        """Add a part of the term, whose gradient has been added, to the record."""
        value = value.detach()
        self._recorded = value if self._recorded is None else self._recorded + value

    def take(self) -> float:
        """Return the sum of the values recorded since the last call."""
        recorded, self._recorded = self._recorded, None
        return 0.0 if recorded is None else float(recorded)
