"""`softmax(q k^T + q_position table^T + bias) v` for the spans of a batch, group by group, with gradients by hand.

`SpanPlan` says which queries are taken at once (query_groups.py), which rows of the table they need, and where the
product for each pair lies. For the backward pass only the attention maps are kept; those of long sentences are made
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..attention.dot_product import WHOLE_MAP
from ..dropout import dropout
from .query_groups import Queries


@dataclass(frozen=True)
class SpanHeads:
    """Queries, keys and values of a batch by head; any scale is in the queries.

    q: queries to keys; q_position: queries to positions. *Shape: [n, h, d_k]* each
    k, v: *Shape: [N + W, h, d_k]* each
    table: the rows of position that the plan's columns are. *Shape: [R, h, d_k]*
    bias: added to the scores by the places of query and key in their sentence, as far as it reaches. *Shape: [h, M, M]*
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
        """The heads of several attentions over the same spans, side by side: one pass instead of several small ones."""
        parts = zip(*(heads.parts for heads in each), strict=True)
        q, q_position, k, v, table = (torch.cat(cast("tuple[Tensor, ...]", next(parts)), dim=1) for _ in range(5))
        biases = [heads.bias for heads in each if heads.bias is not None]
        return cls(q, q_position, k, v, table, torch.cat(biases) if biases else None)

    def zeros(self) -> SpanHeads:
        """As many zeros: sums that gradients can be added to."""
        q, q_position, k, v, table = map(torch.zeros_like, (self.q, self.q_position, self.k, self.v, self.table))
        return SpanHeads(q, q_position, k, v, table, None if self.bias is None else torch.zeros_like(self.bias))


def attend_spans(heads: SpanHeads, groups: Sequence[Queries], p: float) -> Tensor:
    """Attention within each sentence, with dropout of probability `p` on its map. *Returns Shape: [n, h, d_k]*"""
    if not torch.is_grad_enabled():
        return _attend_groups(heads, groups, p, kept=None)
    mixed: Tensor = _SpanAttention.apply(*heads.parts, groups, p)  # type: ignore[no-untyped-call]
    return mixed


def span_weights(heads: SpanHeads, group: Queries) -> Tensor:
    """The softmax over the keys of each query of a group. *Shape: [h n, G, L]*"""
    queries, keys = group.take(heads.q, "queries"), group.take(heads.k, "keys")
    columns = group.take(heads.table, "columns")
    products = torch.bmm(group.take(heads.q_position, "queries"), columns.transpose(1, 2))
    scores = _by_group(products, group).gather(2, _pairs(products, group))
    scores = scores.view(*queries.shape[:2], keys.shape[1]).baddbmm_(queries, keys.transpose(1, 2))
    if heads.bias is not None:
        group.add_bias(scores, heads.bias)
    group.bar_padding(scores)
    return torch.softmax(scores, dim=-1)


def _by_group(x: Tensor, group: Queries) -> Tensor:
    """*Shape: [h n, ..]* to *[h, n, ..]*, all but the first dimension joined"""
    return x.view(len(x) // group.n, group.n, -1)


def _pairs(products: Tensor, group: Queries) -> Tensor:
    """The same for each head. *Shape: [h, n, G L]*"""
    return group.pairs().expand(len(products) // group.n, -1, -1)


def _attend_groups(heads: SpanHeads, groups: Sequence[Queries], p: float, kept: list[Tensor | None] | None) -> Tensor:
    """kept: where to put each group's map and the mask of its dropout, or None for either, for the backward pass."""
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
    """From a group's output's gradient to that of its scores, adding the values' on the way. *Shape: [h n, G, L]*"""
    group.add(sums.v, "keys", torch.bmm(_masked(weights, mask).transpose(1, 2), d_mixed))
    d_weights = _masked(torch.bmm(d_mixed, group.take(heads.v, "keys").transpose(1, 2)), mask)
    d_scores = d_weights.mul_(weights)
    return d_scores.addcmul_(weights, d_scores.sum(-1, keepdim=True), value=-1)


def _add_gradients(heads: SpanHeads, sums: SpanHeads, group: Queries, d_scores: Tensor) -> None:
    """Add what the gradient of a group's scores gives to all that they are made of."""
    if sums.bias is not None:
        group.add_bias_gradient(sums.bias, d_scores)
    queries, q_position = group.take(heads.q, "queries"), group.take(heads.q_position, "queries")
    columns = group.take(heads.table, "columns")
    group.add(sums.q, "queries", torch.bmm(d_scores, group.take(heads.k, "keys")))
    group.add(sums.k, "keys", torch.bmm(d_scores.transpose(1, 2), queries))
    # Two words of one sentence may be the same span: their gradients meet at one product.
    d_products = d_scores.new_zeros(*d_scores.shape[:2], columns.shape[1])
    _by_group(d_products, group).scatter_add_(2, _pairs(d_scores, group), _by_group(d_scores, group))
    group.add(sums.q_position, "queries", torch.bmm(d_products, columns))
    group.add(sums.table, "columns", torch.bmm(d_products.transpose(1, 2), q_position))
