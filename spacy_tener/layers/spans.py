"""Attention over characters and words with relative positions of spans, as in FLAT and MECT (FLAT's eq. 4 to 6).

For a query span `i` and a key span `j` of the same sentence

    A_ij = (q_i + u) . k_j + (q_i + v) . (W_R R_ij)

with `R_ij` the relative position of the two (`SpanPositions`). In the paper's form, `R_ij` is computed and multiplied
for every pair. Here each distinct `R` of a batch is multiplied with `W_R` once, and a group of neighbouring queries is
multiplied with only those rows of the result that it needs, in one product.

The attention itself, `softmax(q k^T + q_position table^T + bias) v`, is computed group by group, with its own backward
pass. For each group of queries, `SpanPlan` has the rows of the table that it needs, and the index of the product of
each pair. For the backward pass only the attention maps are kept; those of long sentences are recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..batching.span_plan import AttentionPlan
from ..settings import DISTANCES, FlatConfig, MectConfig
from ..settings import RANDOM_BLOCK as BLOCK
from .attention import WHOLE_MAP, mirrored, sinusoids, split_heads
from .dense import Linear, dropout
from .span_plan import Queries, TensorPlan
from .transformer import TransformerLayer


class SpanPositions(nn.Module):
    """Relative position embeddings `R_ij = ReLU(W_r [p(d_1) ; p(d_2) ; ..])`, for each row of a plan's table, with `p`
    the sines and cosines of a distance.

    Since `W_r [p(d_1) ; ..] = W_1 p(d_1) + ..`, each distance is multiplied once for the whole batch, and a row is the
    sum of as many rows as there are distances.

    width: d, of `p` and of the result.
    distances: names of the distances to embed, of `hh`, `ht`, `th` and `tt`. FLAT's paper has all four; its released
        code and MECT have `hh` and `tt`.
    """

    kinds: Tensor

    def __init__(self, *, width: int, distances: Sequence[str] = DISTANCES) -> None:
        super().__init__()
        # Not a list: torch would copy it to the device at each use, and wait for it.
        kinds = torch.tensor([DISTANCES.index(distance) for distance in distances])
        self.register_buffer("kinds", kinds, persistent=False)
        # W_1, W_2, .. in rows rather than in columns as in W_r.
        self.fuse = Linear(width, len(distances) * width, bias=False)
        bound = 1.0 / math.sqrt(len(distances) * width)
        nn.init.uniform_(self.fuse.weight, -bound, bound)

    def forward(self, plan: TensorPlan) -> Tensor:
        """Return the embeddings. *Shape: [R, d]*"""
        width, n = self.fuse.in_features, len(self.kinds)
        terms = self.fuse(_symmetric(plan.longest, width, self.fuse.weight)).view(-1, width)
        zero = torch.arange((plan.longest - 1) * n, plan.longest * n, device=terms.device)
        return torch.relu(F.embedding_bag(plan.distances.index_select(1, self.kinds) * n + zero, terms, mode="sum"))


def _symmetric(longest: int, width: int, like: Tensor) -> Tensor:
    """Return `p(d)` (eq. 3) for all distances `-longest < d < longest`. *Shape: [2 longest - 1, d]*"""
    return torch.cat((sinusoids(longest, width, like, mirrored)[1:].flip(0), sinusoids(longest, width, like)))


class RandomAttention(nn.Module):
    """MECT's random attention: learned biases B of one stream (eq. 12 and 13), by the positions of query and key in a
    sentence, characters first, then words, as in the released code.

    Most sentences are short, and a batch needs no positions beyond its longest. So the square of positions is cut into
    small blocks, each a row of an embedding table with a sparse gradient: a batch reads, and an optimizer updates, only
    the blocks that its sentences need.

    n_heads: h.
    places: M, the number of positions with a learned bias. Later positions have none, so that a sentence may have any
        length; in the released code, M is the length of a corpus' longest sentence, and the limit.
    """

    def __init__(self, *, n_heads: int, places: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.places = places
        # Initially as small as in the released code: positions that training does not reach hardly count.
        deviation = 1.0 / (places * math.sqrt(3 * n_heads))
        self.blocks = nn.Parameter(torch.randn(self._along**2, n_heads * BLOCK * BLOCK) * deviation)

    @property
    def _along(self) -> int:
        """Number of blocks along each side of the square."""
        return -(-self.places // BLOCK)

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the biases of the first `queries` and `keys` positions, as far as they have some.

        *Returns Shape: [h, min(queries, M), min(keys, M)]*
        """
        queries, keys = min(queries, self.places), min(keys, self.places)
        down, across = (torch.arange(-(-n // BLOCK), device=self.blocks.device) for n in (queries, keys))
        blocks = F.embedding(down[:, None] * self._along + across, self.blocks, sparse=True)
        square = blocks.view(len(down), len(across), self.n_heads, BLOCK, BLOCK).permute(2, 0, 3, 1, 4)
        square = square.reshape(self.n_heads, len(down) * BLOCK, len(across) * BLOCK)
        return square[:, :queries, :keys]


@dataclass(frozen=True)
class SpanHeads:
    """Queries, keys and values of a batch by head.

    q: queries to keys; q_position: queries to positions. *Shape: [n, h, d_k]* each
    k, v: *Shape: [N + W, h, d_k]* each
    table: projected position table. *Shape: [R, h, d_k]*
    bias: added to the scores, by the positions of query and key, if both are below M. *Shape: [h, M, M]*
    """

    q: Tensor
    q_position: Tensor
    k: Tensor
    v: Tensor
    table: Tensor
    bias: Tensor | None = None

    @property
    def parts(self) -> tuple[Tensor | None, ...]:
        return self.q, self.q_position, self.k, self.v, self.table, self.bias

    @classmethod
    def joined(cls, each: Sequence[SpanHeads]) -> SpanHeads:
        """Join several attentions over the same spans into one with more heads, to be computed in one pass."""
        if len(each) == 1:
            return each[0]
        parts = zip(*(heads.parts for heads in each), strict=True)
        q, q_position, k, v, table = (torch.cat(cast("tuple[Tensor, ...]", next(parts)), dim=1) for _ in range(5))
        biases = [heads.bias for heads in each if heads.bias is not None]
        return cls(q, q_position, k, v, table, torch.cat(biases) if biases else None)

    def zeros(self) -> SpanHeads:
        """Return zeros of the same shapes, to add gradients to."""
        parts = [part for part in self.parts if part is not None]
        # One array for all: on a GPU, each array of zeros is a kernel of its own.
        zeros = iter(self.q.new_zeros(sum(part.numel() for part in parts)).split([part.numel() for part in parts]))
        return SpanHeads(*(next(zeros).view(part.shape) for part in parts))


def attend_spans(heads: SpanHeads, groups: Sequence[Queries], p: float) -> Tensor:
    """Compute attention within each sentence, with dropout of probability `p` on its map.

    *Returns Shape: [n, h, d_k]*
    """
    if not torch.is_grad_enabled():
        return _attend_groups(heads, groups, p, kept=None)
    return _SpanAttention.apply(*heads.parts, groups, p)  # type: ignore[no-untyped-call]


def span_weights(heads: SpanHeads, group: Queries) -> Tensor:
    """Return the softmax over the keys of each query of a group. *Shape: [h n, G, L]*"""
    queries, keys = group.take(heads.q, "queries"), group.take(heads.k, "keys")
    columns = group.take(heads.table, "columns")
    products = torch.bmm(group.take(heads.q_position, "queries"), columns.transpose(1, 2))
    scores = _by_group(products, group).gather(2, _pairs(products, group))
    scores = scores.view(*queries.shape[:2], keys.shape[1]).baddbmm_(queries, keys.transpose(1, 2))
    if heads.bias is not None:
        group.add_bias(scores, heads.bias)
    group.mask_padding(scores)
    return torch.softmax(scores, dim=-1)


def _by_group(x: Tensor, group: Queries) -> Tensor:
    """Split the first dimension by group, and flatten the others. *Shape: [h n, ..] -> [h, n, ..]*"""
    return x.view(len(x) // group.n, group.n, -1)


def _pairs(products: Tensor, group: Queries) -> Tensor:
    """Return `group.pairs()` for each head. *Shape: [h, n, G L]*"""
    return group.pairs().expand(len(products) // group.n, -1, -1)


def _attend_groups(heads: SpanHeads, groups: Sequence[Queries], p: float, kept: list[Tensor | None] | None) -> Tensor:
    """Compute attention group by group. kept: list to add each map and dropout mask to, for the backward pass."""
    mixed = torch.zeros_like(heads.q)
    for group in groups:
        weights = span_weights(heads, group)
        mask = dropout(torch.ones_like(weights), p, training=True) if p else None
        if kept is not None:
            kept += (weights if weights.shape[-1] <= WHOLE_MAP else None, mask)
        own = torch.bmm(_masked(weights, mask), group.take(heads.v, "keys"))
        group.add(mixed, "queries", group.without_padding(own))
    return mixed


class _SpanAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *parts, groups, p = inputs
        kept: list[Tensor | None] = []
        mixed = _attend_groups(SpanHeads(*parts), groups, p, kept)
        ctx.save_for_backward(*parts, *kept)
        ctx.groups = groups
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        parts, kept = ctx.saved_tensors[:6], ctx.saved_tensors[6:]
        heads = SpanHeads(*parts)
        sums = heads.zeros()
        for group, weights, mask in zip(ctx.groups, kept[::2], kept[1::2], strict=True):
            weights = span_weights(heads, group) if weights is None else weights
            d_mixed = group.without_padding(group.take(gradients[0], "queries"))
            _add_gradients(heads, sums, group, _d_scores(heads, sums, group, weights, mask, d_mixed))
        return (*sums.parts, None, None)


def _masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights * mask


def _d_scores(
    heads: SpanHeads, sums: SpanHeads, group: Queries, weights: Tensor, mask: Tensor | None, d_mixed: Tensor
) -> Tensor:
    """Return the gradient of a group's scores, given that of its output, and add the gradient of values to `sums`.

    *Shape: [h n, G, L]*
    """
    group.add(sums.v, "keys", torch.bmm(_masked(weights, mask).transpose(1, 2), d_mixed))
    d_weights = _masked(torch.bmm(d_mixed, group.take(heads.v, "keys").transpose(1, 2)), mask)
    d_scores = d_weights.mul_(weights)
    return d_scores.addcmul_(weights, d_scores.sum(-1, keepdim=True), value=-1)


def _add_gradients(heads: SpanHeads, sums: SpanHeads, group: Queries, d_scores: Tensor) -> None:
    """Add the gradients of queries, keys, positions and bias to `sums`, given that of a group's scores."""
    if sums.bias is not None:
        group.add_bias_gradient(sums.bias, d_scores)
    queries, q_position = group.take(heads.q, "queries"), group.take(heads.q_position, "queries")
    columns = group.take(heads.table, "columns")
    group.add(sums.q, "queries", torch.bmm(d_scores, group.take(heads.k, "keys")))
    group.add(sums.k, "keys", torch.bmm(d_scores.transpose(1, 2), queries))
    # Two words of one sentence may have the same span, and so the same product: their gradients add up.
    d_products = d_scores.new_zeros(*d_scores.shape[:2], columns.shape[1])
    _by_group(d_products, group).scatter_add_(2, _pairs(d_scores, group), _by_group(d_scores, group))
    group.add(sums.q_position, "queries", torch.bmm(d_products, columns))
    group.add(sums.table, "columns", torch.bmm(d_products.transpose(1, 2), q_position))


class SpanAttention(nn.Module):
    """Multi-head attention of spans. It has no output projection.

    width: d, of input and output.
    n_heads: h; each head is `width / n_heads` wide.
    key_projection: project the keys, as FLAT does; otherwise the keys are the input itself (MECT's eq. 7).
    places: number of positions of a sentence with MECT's random attention (eq. 12 and 13); 0 for none.
    """

    def __init__(self, *, width: int, n_heads: int, key_projection: bool = True, places: int = 0) -> None:
        super().__init__()
        head_width = width // n_heads
        self.n_heads = n_heads
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False) if key_projection else nn.Identity()
        self.value = Linear(width, width, bias=False)
        self.position = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.random = RandomAttention(n_heads=n_heads, places=places) if places else None

    def heads(self, plan: AttentionPlan[Queries], x: Tensor, rows: Tensor, relative: Tensor) -> SpanHeads:
        """Return queries, keys, values (eq. 6) and positions by head.

        plan: of the batch, for these queries.
        x: input of the queries: the characters of a batch, or all spans, of this stream or of another. *Shape: [n, d]*
        rows: all spans. *Shape: [N + W, d]*
        relative: the relative positions, `SpanPositions()(plan)`. *Shape: [R, d]*
        """
        q = self._split(self.query, x)
        k, v, r = self._split(self.key, rows), self._split(self.value, rows), self._split(self.position, relative)
        return SpanHeads(q + self.u, q + self.v, k, v, r, self._bias(plan))

    def _split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return split_heads(projection(x), self.n_heads)

    def _bias(self, plan: AttentionPlan[Queries]) -> Tensor | None:
        """Return the random attention for the positions of queries and keys."""
        if self.random is None:
            return None
        return self.random(plan.most, max(plan.lengths, default=0))


def span_layer(config: FlatConfig | MectConfig) -> TransformerLayer:
    """Return a layer of span attention and feed-forward."""
    sizes: Any = {"width": config.width, "n_heads": config.heads}
    attention = SpanAttention(**sizes, key_projection=config.key_projection, places=config.random_attention)
    return TransformerLayer(attention, config)
