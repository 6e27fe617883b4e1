"""Attention over characters and words that knows where spans lie, as FLAT and MECT have it (FLAT's eq. 4 to 6).

For a query span `i` and a key span `j` of the same sentence

    A_ij = (q_i + u) . k_j + (q_i + v) . (W_R R_ij)

with `R_ij` the relative position of the two (span_positions.py). The paper's form makes `R_ij`, and multiplies it, for
every pair. Here each distinct `R` of a batch is multiplied with `W_R` once, and neighbouring queries with just those
rows of the result that they need, in one product (span_windows.py, span_mixing.py).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...settings import StackConfig
from ..attention.dot_product import split_heads
from ..attention.transformer import TransformerLayer
from ..linear import Linear
from .random_attention import RandomAttention
from .span_mixing import SpanHeads, attend_spans, span_weights
from .span_plan import SpanPlan


class SpanAttention(nn.Module):
    """Multi-head attention of spans. It has no output projection.

    width: d, of input and output.
    n_heads: h; each head is `width / n_heads` wide.
    dropout: on the attention map.
    scaled: divide the scores by `sqrt(d_k)`.
    key_projection: keys are a projection of what is read, as FLAT has it; else they are that itself (MECT's eq. 7).
    places: how many places of a sentence MECT's random attention knows (eq. 12 and 13); 0 for none.
    """

    def __init__(
        self,
        *,
        width: int,
        n_heads: int,
        dropout: float = 0.0,
        scaled: bool = False,
        key_projection: bool = True,
        places: int = 0,
    ) -> None:
        super().__init__()
        head_width = width // n_heads
        self.n_heads = n_heads
        self.dropout = dropout
        self.scale = 1.0 / math.sqrt(head_width) if scaled else 1.0
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False) if key_projection else nn.Identity()
        self.value = Linear(width, width, bias=False)
        self.position = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.random = RandomAttention(n_heads=n_heads, places=places) if places else None

    def forward(
        self, x: Tensor, plan: SpanPlan, relative: Tensor, rows: Tensor | None = None, query_input: Tensor | None = None
    ) -> Tensor:
        """x: the queries' spans: the characters of a batch, or all its rows. *Shape: [n, d]*. Returns *Shape: [n, d]*

        plan: of the batch.
        relative: the relative positions, `SpanPositions()(plan)`. *Shape: [R, d]*
        rows: all rows of the batch, which are read; None where these are `x`. *Shape: [N + W, d]*
        query_input: what queries are made from, where this is another stream than `x` (MECT's cross). *Shape: [n, d]*
        """
        heads = self.heads(x, plan, relative, rows, query_input)
        return attend_spans(heads, plan.groups(len(x)), self.dropout if self.training else 0.0).flatten(1)

    def weights(
        self, x: Tensor, plan: SpanPlan, relative: Tensor, rows: Tensor | None = None, query_input: Tensor | None = None
    ) -> list[Tensor]:
        """The attention map of each sentence. Its keys are its characters, then its words. *Shape: [h, n, L]* each"""
        heads = self.heads(x, plan, relative, rows, query_input)
        # Whoever wants maps plans for single groups.
        maps = [[heads.q.new_zeros(self.n_heads, 0, length)] for length in plan.lengths]
        for group in plan.groups(len(x)):
            maps[group.sentence].append(span_weights(heads, group))
        return [torch.cat(parts, dim=1) for parts in maps]

    def heads(
        self, x: Tensor, plan: SpanPlan, relative: Tensor, rows: Tensor | None = None, query_input: Tensor | None = None
    ) -> SpanHeads:
        """Queries, keys, values (eq. 6) and positions by head."""
        rows = x if rows is None else rows
        q = self._split(self.query, x if query_input is None else query_input)
        k, v, r = self._split(self.key, rows), self._split(self.value, rows), self._split(self.position, relative)
        queries, q_position = q + self.u, q + self.v
        if self.scale != 1.0:
            queries, q_position = queries * self.scale, q_position * self.scale
        return SpanHeads(queries, q_position, k, v, r, self._bias(len(x), plan))

    def _split(self, projection: nn.Module, x: Tensor) -> Tensor:
        return split_heads(projection(x), self.n_heads)

    def _bias(self, n_queries: int, plan: SpanPlan) -> Tensor | None:
        """The random attention of the places of queries and keys."""
        if self.random is None:
            return None
        keys = max(plan.lengths, default=0)
        bias: Tensor = self.random(plan.longest if n_queries == len(plan.characters) else keys, keys)
        return bias


def span_layer(config: StackConfig, **options: Any) -> TransformerLayer:
    """Span attention and a feed-forward. options: of the attention."""
    attention = SpanAttention(width=config.width, n_heads=config.heads, dropout=config.map_dropout, **options)
    return TransformerLayer(attention, config)
