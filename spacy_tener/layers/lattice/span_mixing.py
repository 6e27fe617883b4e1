"""`softmax(q k^T + q_position table^T + bias) v` for the spans of a batch, group by group, with gradients by hand.

`SpanPlan` says which rows of the table a group needs, and where the product for each pair lies. One group's arrays stay
in the processor's cache, and nothing is padded. For the backward pass only the attention maps are kept; those of long
sentences are made again.
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
from .span_plan import QueryGroup


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


def attend_spans(heads: SpanHeads, groups: Sequence[QueryGroup], p: float) -> Tensor:
    """Attention within each sentence, with dropout of probability `p` on its map. *Returns Shape: [n, h, d_k]*"""
    if not torch.is_grad_enabled():
        return _attend_groups(heads, groups, p, kept=None)
    mixed: Tensor = _SpanAttention.apply(*heads.parts, groups, p)  # type: ignore[no-untyped-call]
    return mixed


def span_weights(heads: SpanHeads, group: QueryGroup) -> Tensor:
    """The softmax over the keys of each query of a group. *Shape: [h, G, L]*"""
    queries, keys = _own(heads.q, group.queries), _own(heads.k, group.keys)
    products = torch.bmm(_own(heads.q_position, group.queries), _columns(heads.table, group).transpose(1, 2))
    scores = products.flatten(1).gather(1, group.pairs().expand(len(products), -1))
    scores = scores.view(*queries.shape[:2], keys.shape[1]).baddbmm_(queries, keys.transpose(1, 2))
    if heads.bias is not None:
        reached, bias = _meet(scores, heads.bias, group)
        reached += bias
    return torch.softmax(scores, dim=-1)


def _own(rows: Tensor, part: slice) -> Tensor:
    """Some rows, the heads first. rows: *Shape: [n, h, d_k]*. Returns *Shape: [h, part, d_k]*, a view"""
    return rows[part].transpose(0, 1)


def _columns(table: Tensor, group: QueryGroup) -> Tensor:
    """*Shape: [h, C, d_k]*"""
    return table.index_select(0, group.columns).transpose(0, 1)


def _meet(scores: Tensor, bias: Tensor, group: QueryGroup) -> tuple[Tensor, Tensor]:
    """The parts of a group's scores and of the bias that belong to the same places, as views."""
    reach = bias.shape[-1]
    queries = max(min(scores.shape[1], reach - group.place), 0)
    own = bias[:, group.place : group.place + queries, : scores.shape[2]]
    return scores[:, :queries, :reach], own


def _attend_groups(
    heads: SpanHeads, groups: Sequence[QueryGroup], p: float, kept: list[Tensor | None] | None
) -> Tensor:
    """kept: where to put each group's map and the mask of its dropout, or None for either, for the backward pass."""
    mixed = torch.empty_like(heads.q)
    for group in groups:
        weights = span_weights(heads, group)
        mask = dropout(torch.ones_like(weights), p, training=True) if p else None
        if kept is not None:
            kept += (weights if weights.shape[-1] <= WHOLE_MAP else None, mask)
        _own(mixed, group.queries).copy_(torch.bmm(_masked(weights, mask), _own(heads.v, group.keys)))
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
            d_scores = _d_scores(heads, sums, group, weights, mask, _own(gradients[0], group.queries))
            _add_gradients(heads, sums, group, d_scores)
        return (*sums.parts, None, None)


def _masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights * mask


def _d_scores(
    heads: SpanHeads, sums: SpanHeads, group: QueryGroup, weights: Tensor, mask: Tensor | None, d_mixed: Tensor
) -> Tensor:
    """From the gradient of a group's output to that of its scores, adding the values' on the way. *Shape: [h, G, L]*"""
    _own(sums.v, group.keys).add_(torch.bmm(_masked(weights, mask).transpose(1, 2), d_mixed))
    d_weights = _masked(torch.bmm(d_mixed, _own(heads.v, group.keys).transpose(1, 2)), mask)
    d_scores = d_weights.mul_(weights)
    return d_scores.addcmul_(weights, d_scores.sum(-1, keepdim=True), value=-1)


def _add_gradients(heads: SpanHeads, sums: SpanHeads, group: QueryGroup, d_scores: Tensor) -> None:
    """Add what the gradient of a group's scores gives to all that they are made of."""
    if heads.bias is not None and sums.bias is not None:
        reached, d_bias = _meet(d_scores, sums.bias, group)
        d_bias += reached
    _own(sums.q, group.queries).copy_(torch.bmm(d_scores, _own(heads.k, group.keys)))
    _own(sums.k, group.keys).add_(torch.bmm(d_scores.transpose(1, 2), _own(heads.q, group.queries)))
    n_heads, n_queries, _ = d_scores.shape
    d_products = d_scores.new_zeros(n_heads, n_queries * len(group.columns))
    # Two words of one sentence may be the same span: their gradients meet at one product.
    d_products.scatter_add_(1, group.pairs().expand(n_heads, -1), d_scores.flatten(1))
    d_products = d_products.view(n_heads, n_queries, -1)
    _own(sums.q_position, group.queries).copy_(torch.bmm(d_products, _columns(heads.table, group)))
    d_columns = torch.bmm(d_products.transpose(1, 2), _own(heads.q_position, group.queries))
    sums.table.index_add_(0, group.columns, d_columns.transpose(0, 1))
