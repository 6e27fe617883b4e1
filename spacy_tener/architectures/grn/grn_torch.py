"""GRN's encoder in torch (Chen et al., 2019), for training and for prediction on a GPU.

`GRNEncoder` consists of the context layer of convolutions (eq. 3) and the relation layer (eq. 4 to 8):

    r_ij = W [x_i ; x_j] + b              (4)
    r_i  = 1/T sum_j sigma(r_ij) * x_j    (6)  one gate for each pair of tokens and each channel
    p_i  = tanh(r_i)                      (8)

Computed as written, (4) takes a matrix product for each pair of tokens, and an array with the shape (T, T, d). But `W
[x_i ; x_j]` is the sum of a term of x_i and a term of x_j. So `r_ij = a_i + b_j` takes two products for each token, and

    sigma(a_i + b_j) = 1 / (1 + u_i v_j),    u_i = e^(-a_i),  v_j = e^(-b_j)

takes two exponentials for each token. For each pair there remain a multiplication, an addition and a division. They are
computed in tiles that fit into a core's cache, and the backward pass computes the gates again instead of storing
them. So memory is linear in the length of a sentence. With 100 tokens, a forward and backward pass is 36 times as fast
as computed literally (research/results/relation.md).
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
    """The context layer: convolutions with several window sizes, tanh, and the maximum of each channel (eq. 3).

    input_width (int): Input width.
    width (int): Width d of the output.
    branches (Sequence[int]): Window size of each convolution, in tokens.
    """

    def __init__(self, *, input_width: int, width: int, branches: Sequence[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Convolution(input_width, width, size=size) for size in branches)
        for branch in self.branches:
            kaiming_uniform_start(cast(Convolution, branch).product)

    def forward(self, x: Tensor, lengths: IntArray) -> Tensor:
        """Compute the context features of all sequences.

        x (Tensor): The tokens, concatenated. *Shape:* (tokens, input width)
        lengths (IntArray): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        branches = [
            branch(x, ConvolutionWindows.of(lengths, cast(Convolution, branch).size, device=x.device))
            for branch in self.branches
        ]
        # tanh increases monotonically, so one tanh of the maximum replaces a tanh for each branch.
        return torch.tanh(_elementwise_maximum(branches))


def kaiming_uniform_start(layer: Linear) -> None:
    """Initialize a layer with Kaiming-uniform weights and a bias of zeros."""
    nn.init.kaiming_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def _elementwise_maximum(branches: Sequence[Tensor]) -> Tensor:
    """Return the elementwise maximum of several tensors.

    For training, `max(a, b)` is computed as `a + relu(b - a)`: the gradient of `torch.maximum` selects by a condition,
    which torch does not vectorize on a CPU, and takes many times as long.
    """
    larger = (lambda a, b: a + F.relu(b - a)) if torch.is_grad_enabled() else torch.maximum
    return functools.reduce(larger, branches)


class Relation(nn.Module):
    """The relation layer: a gate for each pair of tokens and each channel (eq. 4, 6 and 8).

    `left` is the half of `W` that multiplies x_i, with the bias b. `right` is the half that multiplies x_j.

    width (int): Input and output width d.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.left = Linear(width, width)
        self.right = Linear(width, width, bias=False)
        # Kaiming-uniform initialization as in the paper. The fan-in is that of `W`, which has 2 d inputs.
        bound = math.sqrt(6.0 / (2 * width))
        for half in (self.left, self.right):
            nn.init.uniform_(half.weight, -bound, bound)
        nn.init.zeros_(self.left.bias)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute the relation features of the tokens of each sequence. *Shape:* (tokens, width) to (tokens, width)

        x (Tensor): The tokens, concatenated.
        lengths (Sequence[int]): Token count per sequence.
        """
        if not len(x):
            return x
        mean = _GatedMean.apply(self.left(x), self.right(x), x, lengths)  # type: ignore[no-untyped-call]
        return torch.tanh(mean)  # eq. 8


class _GatedMean(torch.autograd.Function):
    """The mean over j of `sigma(a_i + b_j) x_j = x_j / (1 + u_i v_j)` for each token i (eq. 6), with its gradients.

    With the gates `g = 1 / (1 + u_i v_j)`, and y as the gradient of r divided by T, the gradients are

        dx_j = sum_i g y_i        da_i = y_i u_i sum_j g^2 (v_j x_j)        db_j = x_j v_j sum_i g^2 (u_i y_i)

    They follow from the derivative of a gate, `g (1 - g) = g^2 u v`. The right side is used, since `1 - g` would lose
    all digits if the gate is close to 1.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, x: Tensor, lengths: Sequence[int]) -> Tensor:
        u, v = _exponential(a), _exponential(b)
        ctx.save_for_backward(u, v, x)
        ctx.ragged, ctx.inverse_lengths = _plan_buckets(lengths, x), _inverse_lengths(lengths, x)
        tiles = _Tiles(x, ctx.ragged)
        sums = [_gated(tiles, *padded)[:, None] for padded in _pad(ctx.ragged, u, v, x)]
        return ctx.ragged.join(sums) * ctx.inverse_lengths

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, v, x = ctx.saved_tensors
        padded = _pad(ctx.ragged, u, v, x, gradients[0] * ctx.inverse_lengths)
        tiles = _Tiles(x, ctx.ragged)
        parts = zip(*(_gated_gradients(tiles, *bucket) for bucket in padded), strict=True)
        da, db, dx = (ctx.ragged.join([part[:, None] for part in sums]) for sums in parts)
        return da, db, dx, None


def _exponential(score: Tensor) -> Tensor:
    """Return `e^(-score)`, with the exponent clipped to `EXPONENT_LIMIT`."""
    return score.neg().clamp_(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp_()


def _inverse_lengths(lengths: Sequence[int], like: Tensor) -> Tensor:
    """Return 1 / T for each token, where T is the length of the token's sequence. *Shape:* (tokens, 1)"""
    sizes = as_lengths(lengths)
    length_of_token = torch.from_numpy(np.repeat(sizes, sizes)[:, None]).to(like.dtype)
    return on_device(length_of_token.reciprocal_(), like.device)


# Cost of one more bucket, in padded numbers (pairs of tokens times channels). On a CPU, padding costs more than another
# bucket. On a GPU, a bucket takes about twenty kernel launches, which take as long as reading and writing that many
# numbers a dozen times.
NUMBERS_PER_BUCKET = {"cpu": 0, "cuda": 1 << 23}


def _plan_buckets(lengths: Sequence[int], like: Tensor) -> Ragged:
    """Divide the sequences into buckets: of equal lengths on a CPU, of similar lengths on a GPU."""
    bucket_cost = NUMBERS_PER_BUCKET["cpu" if like.is_cpu else "cuda"] // max(like.shape[1], 1)
    return Ragged.of(lengths, device=like.device, bucket_cost=bucket_cost)


def _pad(ragged: Ragged, *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the buckets of several arrays, padded with zeros. *Shape:* (sequences, longest, width) each"""
    parts = [ragged.pad(array, zeros=True) for array in arrays]
    for bucket in zip(*parts, strict=True):
        yield tuple(part[:, 0] for part in bucket)


# Maximum number of gates in a tile. On a CPU, a tile fits into a core's cache, and is large enough that calls of
# torch cost little. On a GPU, the two buffers of a tile have 128 MB each, so that most batches need a single tile.
TILE = {"cpu": 1 << 18, "cuda": 1 << 25}


class _Tiles:
    """Two buffers for a tile of pairs of tokens, which all tiles use one after the other.

    like (Tensor): The batch, whose device and dtype the buffers have. *Shape:* (tokens, width)
    ragged (Ragged): The buckets of the batch.
    """

    def __init__(self, like: Tensor, ragged: Ragged) -> None:
        n_tokens, width = like.shape
        room = min(TILE["cpu" if like.is_cpu else "cuda"], n_tokens * n_tokens * width)
        # At least one pair of tokens for each sequence in a bucket.
        self.pairs = max([room // width, *(len(bucket.sequences) for bucket in ragged.buckets)])
        self._gates, self._terms = (like.new_empty(self.pairs * width) for _ in range(2))
        self._one = like.new_ones(())

    def shape(self, length: int, n: int = 1) -> tuple[int, int]:
        """Return the numbers of rows i and columns j of a tile, for `n` sequences of a length."""
        pairs = self.pairs // n
        columns = max(min(length, math.isqrt(pairs)), 1)
        return pairs // columns, columns

    def denominators(self, u: Tensor, v: Tensor) -> Tensor:
        """Compute `1 + u_i v_j`, in the first buffer.

        u (Tensor): *Shape:* (sequences, rows, width)
        v (Tensor): *Shape:* (sequences, columns, width)
        RETURNS (Tensor): *Shape:* (sequences, rows, columns, width)
        """
        shape = (*u.shape[:2], *v.shape[1:])
        return torch.addcmul(self._one, u[:, :, None], v[:, None], out=self._gates[: math.prod(shape)].view(shape))

    def product(self, gates: Tensor, rows: Tensor) -> Tensor:
        """Compute `gates * rows`, in the second buffer.

        gates (Tensor): *Shape:* (sequences, rows, columns, width)
        rows (Tensor): A tensor whose shape can be broadcast to that of the gates.
        """
        return torch.mul(gates, rows, out=self._terms[: gates.numel()].view_as(gates))


def _gated(tiles: _Tiles, u: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Compute the sum over j in eq. 6 for one bucket. *Shape:* (sequences, length, width) each"""
    total = torch.zeros_like(x)
    rows, columns = tiles.shape(x.shape[1], len(x))
    for total_i, u_i in _split_tokens(rows, total, u):
        for v_j, x_j in _split_tokens(columns, v, x):
            terms = tiles.denominators(u_i, v_j)
            total_i += torch.div(x_j[:, None], terms, out=terms).sum(2)
    return total


def _gated_gradients(tiles: _Tiles, u: Tensor, v: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of a, b and x for one bucket, as derived in `_GatedMean`.

    *Shape:* (sequences, length, width) each
    """
    vx, uy = v * x, u * y
    da, db, dx = x.new_zeros(3, *x.shape)
    rows, columns = tiles.shape(x.shape[1], len(x))
    for da_i, u_i, y_i, uy_i in _split_tokens(rows, da, u, y, uy):
        for db_j, dx_j, v_j, vx_j in _split_tokens(columns, db, dx, v, vx):
            gates = tiles.denominators(u_i, v_j).reciprocal_()
            dx_j += tiles.product(gates, y_i[:, :, None]).sum(1)
            gates *= gates  # g^2, for da and db
            da_i += tiles.product(gates, vx_j[:, None]).sum(2)
            db_j += tiles.product(gates, uy_i[:, :, None]).sum(1)
    return da.mul_(uy), db.mul_(vx), dx


def _split_tokens(size: int, *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split several arrays into parts of at most `size` tokens. *Shape:* (sequences, length, width) each"""
    if arrays[0].shape[1] <= size:
        return iter((arrays,))
    return zip(*(array.split(size, dim=1) for array in arrays), strict=True)


class GRNEncoder(nn.Module):
    """The encoder of GRN: the context layer, dropout and the relation layer.

    Without a context layer (`branches = []`), the relation layer gets the input itself, after a linear layer if the
    widths differ.

    config (GRNConfig): Sizes and options.
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
            kaiming_uniform_start(self.input)
        self.dropout = Dropout(config.dropout)
        make = Relation if config.relation == "gated" else config.relation
        self.relation = None if make is None else make(width=config.width)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode all tokens.

        x (Tensor): The tokens, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        sizes = as_lengths(lengths, len(x))
        if self.context is not None:
            x = self.context(x, sizes)
        elif self.input is not None:
            x = self.input(x)
        x = self.dropout(x)
        return x if self.relation is None else self.relation(x, sizes.tolist())
