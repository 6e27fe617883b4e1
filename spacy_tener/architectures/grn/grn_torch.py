"""The gated relation network (GRN) encoder (Chen et al., 2019) in torch, for training and prediction on a GPU.

The encoder consists of a context layer with convolutions (eq. 3) and a relation layer. For a sequence with T tokens and
the features x, the relation layer computes

    r_ij = W [x_i ; x_j] + b                (eq. 4)
    r_i  = 1/T sum_j sigmoid(r_ij) * x_j    (eq. 6) one gate for each pair of tokens and each channel
    p_i  = tanh(r_i)                        (eq. 8)

Implemented directly, eq. 4 requires a matrix product for each pair of tokens. This module splits W into two halves, so
`r_ij = a_i + b_j` requires two matrix products per token. The gates are then computed from two exponentials per token:

    sigmoid(a_i + b_j) = 1 / (1 + u_i v_j),    u_i = e^(-a_i),  v_j = e^(-b_j)

The gates for all pairs are computed in tiles that fit into the CPU cache. The backward pass computes the gates again
instead of storing them, so memory grows linearly with T. For T = 100, the forward and backward pass is 36 times as fast
as the direct implementation (research/results/relation.md).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn.devices_torch import on_device
from ...nn.layers_torch import Convolution, ConvolutionWindows, Dropout, Linear
from ...nn.ragged_torch import Ragged
from ...sequences import Lengths, as_lengths
from ...types import IntArray
from .grn_config import GRNConfig
from .grn_numpy import EXPONENT_LIMIT


class ContextLayer(nn.Module):
    """The context layer of the gated relation network (Chen et al., 2019, eq. 3).

    It consists of parallel convolutions with different window sizes. The output is the elementwise maximum over all
    convolutions, after tanh.

    input_width (int): Input width.
    width (int): Output width d.
    branches (Sequence[int]): Convolution window sizes, in tokens.
    """

    def __init__(self, *, input_width: int, width: int, branches: Sequence[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Convolution(input_width, width, size=size) for size in branches)
        for branch in self.branches:
            init_kaiming_uniform(cast(Convolution, branch).product)

    def forward(self, x: Tensor, lengths: IntArray) -> Tensor:
        """Compute the context features for each sequence in a batch.

        x (Tensor): Token embeddings, concatenated. *Shape:* (tokens, input width)
        lengths (IntArray): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): Context features. *Shape:* (tokens, width)
        """
        branches = [
            branch(x, ConvolutionWindows.of(lengths, cast(Convolution, branch).size, device=x.device))
            for branch in self.branches
        ]
        # tanh is monotonic, so applying it once to the maximum is equivalent to applying it to each branch.
        return torch.tanh(_elementwise_maximum(branches))


def init_kaiming_uniform(layer: Linear) -> None:
    """Initialize a linear layer's weights with Kaiming uniform initialization, and its bias with zeros."""
    nn.init.kaiming_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def _elementwise_maximum(branches: Sequence[Tensor]) -> Tensor:
    """Return the elementwise maximum of several tensors.

    For training, the maximum is computed as `a + relu(b - a)`, because the backward pass of `torch.maximum` is not
    vectorized on a CPU.
    """
    larger = (lambda a, b: a + F.relu(b - a)) if torch.is_grad_enabled() else torch.maximum
    return functools.reduce(larger, branches)


class Relation(nn.Module):
    """The relation layer of the gated relation network (Chen et al., 2019, eq. 4, 6 and 8).

    The output for a token is tanh of the gated mean over the features of all tokens in the sequence. There is a gate
    for each pair of tokens and each channel. The attributes `left` and `right` are the two halves of the weight matrix
    W, which are multiplied with the first and the second token in a pair.

    width (int): Input and output width d.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.left = Linear(width, width)
        self.right = Linear(width, width, bias=False)
        # Kaiming uniform initialization as in the paper, with the fan-in of the complete matrix W, 2 * width.
        bound = math.sqrt(6.0 / (2 * width))
        for half in (self.left, self.right):
            nn.init.uniform_(half.weight, -bound, bound)
        nn.init.zeros_(self.left.bias)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute the relation features for each sequence in a batch.

        x (Tensor): Token features, concatenated. *Shape:* (tokens, width)
        lengths (Sequence[int]): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): Relation features. *Shape:* (tokens, width)
        """
        if not len(x):
            return x
        mean = _GatedMean.apply(self.left(x), self.right(x), x, lengths)  # type: ignore[no-untyped-call]
        return torch.tanh(mean)  # Chen et al. (2019), eq. 8


class _GatedMean(torch.autograd.Function):
    """Computes the gated mean `r_i = 1/T sum_j g_ij x_j` with the gates `g_ij = sigmoid(a_i + b_j)`, and its gradients.

    See eq. 6 of Chen et al. (2019). Let `u_i = e^(-a_i)` and `v_j = e^(-b_j)`. Then `g_ij = 1 / (1 + u_i v_j)`. Let y
    be the gradient of r, divided by the sequence length T. The gradients are

        dx_j = sum_i g_ij y_i
        da_i = y_i u_i sum_j g_ij^2 (v_j x_j)
        db_j = x_j v_j sum_i g_ij^2 (u_i y_i)

    These formulas use the derivative of the sigmoid in the form `g^2 u v`. The usual form `g (1 - g)` is inaccurate if
    g is close to 1.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, x: Tensor, lengths: Sequence[int]) -> Tensor:
        u, v = _exponential(a), _exponential(b)
        ctx.save_for_backward(u, v, x)
        ctx.ragged, ctx.inverse_lengths = _plan_buckets(lengths, x), _inverse_lengths(lengths, x)
        tiles = _Tiles(x, ctx.ragged)
        sums = [_gated_sum(tiles, *padded)[:, None] for padded in _pad(ctx.ragged, u, v, x)]
        return ctx.ragged.join(sums) * ctx.inverse_lengths

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, v, x = ctx.saved_tensors
        padded = _pad(ctx.ragged, u, v, x, gradients[0] * ctx.inverse_lengths)
        tiles = _Tiles(x, ctx.ragged)
        parts = zip(*(_gated_sum_gradients(tiles, *bucket) for bucket in padded), strict=True)
        da, db, dx = (ctx.ragged.join([part[:, None] for part in sums]) for sums in parts)
        return da, db, dx, None


def _exponential(score: Tensor) -> Tensor:
    """Return `e^(-score)`. The exponent is clipped to `EXPONENT_LIMIT`, so that the result is finite."""
    return score.neg().clamp_(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp_()


def _inverse_lengths(lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return the reciprocal of the sequence length for each token. *Shape:* (tokens, 1)"""
    sizes = as_lengths(lengths)
    length_of_token = torch.from_numpy(np.repeat(sizes, sizes)[:, None]).to(like.dtype)
    return on_device(length_of_token.reciprocal_(), like.device)


# Overhead of an additional bucket, in padded gates. On a CPU, padding is always slower than an additional bucket. On a
# GPU, the overhead is about twenty kernel launches.
BUCKET_COST_IN_GATES = {"cpu": 0, "cuda": 1 << 23}


def _plan_buckets(lengths: Sequence[int], like: Tensor) -> Ragged:
    """Divide the sequences in a batch into buckets.

    On a CPU, each bucket contains sequences of the same length. On a GPU, the lengths can differ.
    """
    bucket_cost = BUCKET_COST_IN_GATES["cpu" if like.is_cpu else "cuda"] // max(like.shape[1], 1)
    return Ragged.of(lengths, device=like.device, bucket_cost=bucket_cost)


def _pad(ragged: Ragged, *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the padded buckets of several tensors.

    ragged (Ragged): The buckets in the batch.
    arrays (Tensor): Tensors with one row per token. *Shape:* (tokens, width)
    YIELDS (Tuple[Tensor, ...]): For each bucket, the tensors padded with zeros. *Shape:* (sequences, longest sequence,
        width)
    """
    parts = [ragged.pad(array, zeros=True) for array in arrays]
    for bucket in zip(*parts, strict=True):
        yield tuple(part[:, 0] for part in bucket)


# Maximum number of gates that are computed at once (a tile). On a CPU, a tile fits into a core's cache. On a GPU, a
# tile's two buffers have 128 MB each, so most batches need a single tile.
TILE = {"cpu": 1 << 18, "cuda": 1 << 25}


class _Tiles:
    """Buffers for computing the gates for all pairs of tokens in tiles.

    All token pairs in a sequence form a matrix, and a tile is a block of this matrix. Two buffers are allocated once
    and reused for all tiles, which saves memory.

    like (Tensor): Features in the batch. The buffers get the same device and dtype. *Shape:* (tokens, width)
    ragged (Ragged): The buckets in the batch.
    """

    def __init__(self, like: Tensor, ragged: Ragged) -> None:
        n_tokens, width = like.shape
        room = min(TILE["cpu" if like.is_cpu else "cuda"], n_tokens * n_tokens * width)
        # The buffers must have room for at least one pair of tokens per sequence in a bucket.
        self.pairs = max([room // width, *(len(bucket.sequences) for bucket in ragged.buckets)])
        self._gates, self._terms = (like.new_empty(self.pairs * width) for _ in range(2))
        self._one = like.new_ones(())

    def shape(self, length: int, n: int = 1) -> tuple[int, int]:
        """Return the number of rows and columns in a tile that fits into the buffers.

        length (int): Sequence length.
        n (int): Number of sequences that are computed at once.
        """
        pairs = self.pairs // n
        columns = max(min(length, math.isqrt(pairs)), 1)
        return pairs // columns, columns

    def denominators(self, u: Tensor, v: Tensor) -> Tensor:
        """Compute `1 + u_i v_j`, the reciprocal of the gates, for all rows i and columns j in a tile.

        u (Tensor): *Shape:* (sequences, rows, width)
        v (Tensor): *Shape:* (sequences, columns, width)
        RETURNS (Tensor): A view of the first buffer. *Shape:* (sequences, rows, columns, width)
        """
        shape = (*u.shape[:2], *v.shape[1:])
        return torch.addcmul(self._one, u[:, :, None], v[:, None], out=self._gates[: math.prod(shape)].view(shape))

    def product(self, gates: Tensor, rows: Tensor) -> Tensor:
        """Multiply the gates in a tile by a tensor.

        gates (Tensor): *Shape:* (sequences, rows, columns, width)
        rows (Tensor): A tensor that can be broadcast to the shape of `gates`.
        RETURNS (Tensor): A view of the second buffer. *Shape:* (sequences, rows, columns, width)
        """
        return torch.mul(gates, rows, out=self._terms[: gates.numel()].view_as(gates))


def _gated_sum(tiles: _Tiles, u: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Compute the gated sum of the features in each sequence of a bucket.

    The output for token i is the sum of `x_j / (1 + u_i v_j)` over all tokens j in the sequence.

    u, v, x (Tensor): *Shape:* (sequences, length, width)
    RETURNS (Tensor): *Shape:* (sequences, length, width)
    """
    total = torch.zeros_like(x)
    rows, columns = tiles.shape(x.shape[1], len(x))
    for total_i, u_i in _split_tokens(rows, total, u):
        for v_j, x_j in _split_tokens(columns, v, x):
            terms = tiles.denominators(u_i, v_j)
            total_i += torch.div(x_j[:, None], terms, out=terms).sum(2)
    return total


def _gated_sum_gradients(tiles: _Tiles, u: Tensor, v: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of the gated sum for a bucket. See `_GatedMean` for the formulas.

    u, v, x (Tensor): The inputs of `_gated_sum`. *Shape:* (sequences, length, width)
    y (Tensor): Gradient of the gated sum. *Shape:* (sequences, length, width)
    RETURNS (Tuple[Tensor, Tensor, Tensor]): Gradients of a, b and x. *Shape:* (sequences, length, width)
    """
    vx, uy = v * x, u * y
    da, db, dx = x.new_zeros(3, *x.shape)
    rows, columns = tiles.shape(x.shape[1], len(x))
    for da_i, u_i, y_i, uy_i in _split_tokens(rows, da, u, y, uy):
        for db_j, dx_j, v_j, vx_j in _split_tokens(columns, db, dx, v, vx):
            gates = tiles.denominators(u_i, v_j).reciprocal_()
            dx_j += tiles.product(gates, y_i[:, :, None]).sum(1)
            gates *= gates  # square the gates for the gradients of a and b, see `_GatedMean`
            da_i += tiles.product(gates, vx_j[:, None]).sum(2)
            db_j += tiles.product(gates, uy_i[:, :, None]).sum(1)
    return da.mul_(uy), db.mul_(vx), dx


def _split_tokens(size: int, *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split several tensors along the token axis.

    size (int): Maximum number of tokens in a split.
    arrays (Tensor): *Shape:* (sequences, length, width)
    """
    if arrays[0].shape[1] <= size:
        return iter((arrays,))
    return zip(*(array.split(size, dim=1) for array in arrays), strict=True)


class GRNEncoder(nn.Module):
    """The gated relation network (GRN) encoder, which consists of a context layer, dropout and a relation layer.

    Both layers are optional. Without a context layer, a linear layer projects the input to the output width if the
    widths differ.

    config (GRNConfig): Encoder hyperparameters.
    input_width (int): Input width.
    """

    def __init__(self, config: GRNConfig, *, input_width: int) -> None:
        super().__init__()
        self.config = config
        self.context: ContextLayer | None = None
        self.input: Linear | None = None
        if config.branches:
            self.context = ContextLayer(input_width=input_width, width=config.width, branches=config.branches)
        elif input_width != config.width:
            self.input = Linear(input_width, config.width)
            init_kaiming_uniform(self.input)
        self.dropout = Dropout(config.dropout)
        make = Relation if config.relation == "gated" else config.relation
        self.relation = None if make is None else make(width=config.width)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens in a batch of sequences.

        x (Tensor): Token embeddings, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): Hidden states. *Shape:* (tokens, width)
        """
        sizes = as_lengths(lengths, len(x))
        if self.context is not None:
            x = self.context(x, sizes)
        elif self.input is not None:
            x = self.input(x)
        x = self.dropout(x)
        return x if self.relation is None else self.relation(x, sizes.tolist())
