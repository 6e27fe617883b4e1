"""Neural network layers in torch that all architectures share.

The layers process the concatenated tokens of all sequences, without padding. `layers_numpy` contains the same layers in
NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Linear as Linear

from ..sequences import ranges
from ..types import FloatArray, IntArray
from .ragged_torch import Segments
from .stack_config import StackConfig

# Number of different 16-bit random numbers. Dropout rates are rounded to multiples of 1 / 65,536.
_DROPOUT_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Apply dropout: set elements to 0 with probability `p`, and scale all other elements by `1 / (1 - p)`.

    On a CPU, this function is faster than torch's dropout, since a 64-bit random number decides for four elements. It
    reduces the time per TENER training step by 10 to 20 %. On other devices, torch's dropout is used.

    x (Tensor): The input.
    p (float): The dropout rate.
    training (bool): Whether to apply dropout. If False, `x` is returned unchanged.
    """
    dropped = round(p * _DROPOUT_LEVELS)
    if not training or dropped == 0:
        return x
    if not x.is_cpu or dropped == _DROPOUT_LEVELS:
        return F.dropout(x, p)
    # Compute the mask `random >= dropped - 2^15`, which is 1 for elements to keep and 0 for elements to drop.
    # Subtracting and clamping is faster than a comparison, since torch does not vectorize comparisons on a CPU.
    keep = random_int16(x).sub_(dropped - _DROPOUT_LEVELS // 2 - 1).clamp_(0.0, 1.0)
    return x * keep.mul_(_DROPOUT_LEVELS / (_DROPOUT_LEVELS - dropped))


def random_int16(like: Tensor) -> Tensor:
    """Return random integers from a uniform distribution over -2^15 to 2^15 - 1.

    Four 16-bit integers are taken from each 64-bit random number.

    like (Tensor): A tensor with the result's shape, device and dtype.
    """
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64, device=like.device).random_(-(1 << 63), None)
    return draws.view(torch.int16)[: like.numel()].view(like.shape).to(like.dtype)


class Dropout(nn.Module):
    """A module that applies `dropout` in training mode.

    p (float): The dropout rate.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, training=self.training)


class Projection(nn.Module):
    """A linear layer that can be used in place of an encoder.

    width_in (int): Input width.
    width_out (int): Output width.
    dropout (float): Dropout rate of the input.
    """

    def __init__(self, *, width_in: int, width_out: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = Linear(width_in, width_out)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Apply the linear layer. *Shape:* (tokens, input width) to (tokens, width)

        tokens (Tensor): The token embeddings.
        lengths (Sequence[int]): Not used.
        """
        return self.linear(self.dropout(tokens))


# Index of the row for the unknown token in each embedding table.
UNKNOWN_ROW = 0


class EmbeddingTables(nn.Module):
    """Embedding tables for several token features. The embeddings of all features are concatenated.

    In training, word dropout randomly replaces features with the unknown feature, so that its embedding is trained.
    Gradients are sparse, so that the time per training step does not depend on the vocabulary size.

    rows (Mapping[str, int]): Number of rows in each table, by name.
    widths (Mapping[str, int]): Embedding width of each table, by name.
    word_dropout (Mapping[str, float]): Word dropout rate of each table, by name.
    dropout (float): Dropout rate of the concatenated embeddings.
    """

    def __init__(
        self,
        *,
        rows: Mapping[str, int],
        widths: Mapping[str, int],
        word_dropout: Mapping[str, float],
        dropout: float,
    ) -> None:
        super().__init__()
        # The table names, in the same order as the arguments of `forward`. `nn.ParameterDict` does not preserve this
        # order.
        self.names = tuple(rows)
        self.word_dropout = dict(word_dropout)
        self.dropout = Dropout(dropout)
        self.tables = nn.ParameterDict(
            {name: nn.Parameter(random_rows(height, widths[name])) for name, height in rows.items()}
        )

    def forward(self, *rows: Tensor) -> Tensor:
        """Look up each feature's embedding, and concatenate the embeddings. *Shape:* (tokens, sum of widths)

        rows (Tensor): For each table, the row index of each token. *Shape:* (tokens,) each
        """
        parts = [
            F.embedding(ids, self.tables[name], sparse=True)
            for name, ids in zip(self.names, self._drop_words(rows), strict=True)
        ]
        return self.dropout(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1))

    def _drop_words(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        """Apply word dropout in training mode: replace random row indices by the unknown token's index."""
        probabilities = [self.word_dropout[name] for name in self.names]
        if not self.training or not any(probabilities):
            return rows
        draws = torch.rand(len(rows), *rows[0].shape, device=rows[0].device)
        return [
            ids.masked_fill(draw < probability, UNKNOWN_ROW) if probability else ids
            for ids, draw, probability in zip(rows, draws, probabilities, strict=True)
        ]

    def grow(self, name: str, height: int) -> None:
        """Add randomly initialized embeddings to a table.

        name (str): Table name.
        height (int): The new number of rows.
        """
        table = self.tables[name]
        added = random_rows(height - len(table), table.shape[1]).to(table)
        grown = torch.cat((table.data, added))
        gradient = table.grad
        self.tables[name] = nn.Parameter(grown)
        if gradient is not None:
            # Keep accumulated gradients when a table grows between two batches. The sparse gradient must have the new
            # shape.
            gradient = gradient.coalesce()
            self.tables[name].grad = torch.sparse_coo_tensor(
                gradient.indices(), gradient.values(), grown.shape, check_invariants=False
            )

    def fill(self, name: str, rows: IntArray, vectors: FloatArray) -> None:
        """Copy pretrained vectors into a table.

        name (str): Table name.
        rows (IntArray): For each vector, the index of the row to overwrite. *Shape:* (vectors,)
        vectors (FloatArray): The vectors. *Shape:* (vectors, width)
        """
        table = self.tables[name]
        table.data[torch.as_tensor(rows)] = torch.as_tensor(vectors).to(table)


def random_rows(height: int, width: int) -> Tensor:
    """Return randomly initialized embeddings. *Shape:* (height, width)

    Values are drawn uniformly from ±sqrt(3 / width), so that the expected squared norm of an embedding is 1. See Ma and
    Hovy (2016, https://arxiv.org/abs/1603.01354).
    """
    bound = math.sqrt(3.0 / width)
    return torch.empty(height, width).uniform_(-bound, bound)


@dataclass(frozen=True)
class ConvolutionWindows:
    """Gather indices for a convolution over a batch of sequences.

    All convolutions with the same kernel size can use them.

    size (int): Kernel size in tokens, an odd number.
    tokens (Segments): The gather indices: for each token, the indices of the tokens in its window. Positions outside
        the sequence refer to a row of zeros that `gather` appends. *Shape:* (tokens * size,)
    """

    size: int
    tokens: Segments

    @classmethod
    def of(cls, lengths: IntArray, size: int, *, device: torch.device | str = "cpu") -> ConvolutionWindows:
        """Compute the gather indices for a batch of sequences.

        lengths (IntArray): Sequence lengths in tokens. *Shape:* (sequences,)
        size (int): Kernel size in tokens.
        device (torch.device | str): Target device.
        """
        if size < 1 or size % 2 == 0:
            raise ValueError(f"A convolution's window must be an odd number of tokens; got {size!r}.")
        offsets, n_tokens = np.arange(size) - size // 2, int(lengths.sum())
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + offsets
        inside = (positions >= 0) & (positions < np.repeat(lengths, lengths)[:, None])
        tokens = np.where(inside, np.arange(n_tokens)[:, None] + offsets, n_tokens)
        return cls(size, Segments.of(tokens.ravel(), n_tokens + 1, device=device))

    def gather(self, x: Tensor) -> Tensor:
        """Concatenate the embeddings in each token's window. *Shape:* (tokens, width) to (tokens, size * width)

        Positions outside the sequence are zero.
        """
        if self.size == 1:
            return x
        return self.tokens.gather(F.pad(x, (0, 0, 0, 1))).view(len(x), self.size * x.shape[1])


class Convolution(nn.Module):
    """A one-dimensional convolution over each sequence, with zero padding at both ends.

    The embeddings in each token's window are gathered and multiplied by a weight matrix. For sentences with different
    lengths, this takes half as long as `nn.Conv1d` on a CPU. `nn.Conv1d` needs padding and compiles a kernel for each
    new shape.

    The weights have the shape (out, size * width). To convert the weights of an `nn.Conv1d`, transpose them to (out,
    size, width), and merge the last two dimensions.

    width (int): Input width.
    out (int): Output width.
    size (int): Kernel size in tokens, an odd number.
    """

    def __init__(self, width: int, out: int, *, size: int) -> None:
        super().__init__()
        self.size = size
        self.product = Linear(size * width, out)

    def forward(self, x: Tensor, windows: ConvolutionWindows) -> Tensor:
        """Apply the convolution. *Shape:* (tokens, width) to (tokens, out)

        x (Tensor): Concatenated token embeddings.
        windows (ConvolutionWindows): Gather indices for this layer's kernel size.
        """
        return self.product(windows.gather(x))


class Penalty(nn.Module):
    """A penalty (regularization term) that a layer adds to the loss.

    The layer adds the penalty's gradient in its own backward pass. It records the penalty's value here, so that the
    training loop can add the value to the reported loss. See `flat.selection_torch`.

    weight (float): The penalty's weight in the loss.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        # For gradient accumulation: the fraction of a training step's sequences that are in the current batch.
        self.batch_fraction = 1.0
        self._recorded: Tensor | None = None

    def factor(self, n_sequences: int) -> float:
        """Return the factor by which each sequence's penalty is multiplied in the loss.

        The loss contains the mean penalty of all sequences, multiplied by `weight`.

        n_sequences (int): Number of sequences in the batch.
        """
        return self.weight * self.batch_fraction / max(1, n_sequences)

    def record(self, value: Tensor) -> None:
        """Record a penalty value. Values from several calls are added."""
        value = value.detach()
        self._recorded = value if self._recorded is None else self._recorded + value

    def pop_value(self) -> float:
        """Return the sum of all recorded values, and reset it to 0."""
        recorded, self._recorded = self._recorded, None
        return 0.0 if recorded is None else float(recorded)


class FeedForward(nn.Module):
    """The feed-forward network in a transformer layer, `max(0, x W_1 + b_1) W_2 + b_2` (TENER, eq. 7).

    Dropout is applied after the ReLU and to the output.

    width (int): Input and output width.
    hidden (int): Hidden size.
    dropout (float): Dropout rate.
    """

    def __init__(self, *, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.widen = Linear(width, hidden)
        self.narrow = Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the feed-forward network. *Shape:* (tokens, width) to (tokens, width)"""
        hidden = F.relu(self.widen(x), inplace=True)
        return self.dropout(self.narrow(self.dropout(hidden)))


class TransformerLayer(nn.Module):
    """A transformer layer, which consists of attention and a feed-forward network.

    Both have a residual connection, followed by layer normalization (post-norm). No dropout is applied to the attention
    output, as in TENER's released code.

    attention (nn.Module): The attention. It is called with the same arguments as the layer.
    config (StackConfig): The layer's sizes and dropout rates.
    """

    def __init__(self, attention: nn.Module, config: StackConfig) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(width=config.width, hidden=config.hidden_width, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """Apply the transformer layer. *Shape:* (tokens, width) to (tokens, width)

        x (Tensor): Concatenated token embeddings.
        context (Any): Additional arguments for the attention.
        """
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """Compute the transformer layer's output from its attention output.

        x (Tensor): The layer's input. *Shape:* (tokens, width)
        attended (Tensor): The attention output. *Shape:* (tokens, width)
        RETURNS (Tensor): The layer's output. *Shape:* (tokens, width)
        """
        x = self.attention_norm(x + attended)
        return self.feed_forward_norm(x + self.feed_forward(x))
