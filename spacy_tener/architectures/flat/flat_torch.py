"""The encoder of FLAT and MECT in torch: attention over characters and words, with relative positions of spans.

A character or a word is a span of the sentence. For a query span i and a key span j of the same sentence, the attention
score is (FLAT, eq. 4 to 6)

    A_ij = (q_i + u) . k_j + (q_i + v) . (W_R R_ij)

where `R_ij` is the relative position embedding of the two spans (`SpanPositions`). The paper computes `R_ij`, and its
product with `W_R`, for every pair. Here each distinct `R` of a batch is multiplied by `W_R` once. A group of
neighbouring queries is then multiplied, in one product, by those rows of the result that its pairs need (`plans.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...nn.attention_torch import MAX_UNCHUNKED_LENGTH, checkpointed, interleave, sinusoids, split_heads
from ...nn.devices_torch import on_device
from ...nn.layers_torch import Linear, TransformerLayer, dropout
from .flat_config import DISTANCES, FlatConfig, MectConfig
from .flat_config import RANDOM_BLOCK as BLOCK
from .plans import plan_spans
from .span_groups_torch import GroupBucket, PaddedGroups


class SpanPositions(nn.Module):
    """Relative position embeddings `R_ij = ReLU(W_r [p(d_1) ; p(d_2) ; ..])`, for each row of a plan's table, with `p`
    the sines and cosines of a distance.

    Since `W_r [p(d_1) ; ..] = W_1 p(d_1) + ..`, each distance is multiplied once for the whole batch, and a row is the
    sum of as many rows as there are distances.

    width (int): Width d of `p` and of the result.
    distances (Sequence[str]): Names of the distances to embed, of `hh`, `ht`, `th` and `tt`. FLAT's paper has all four;
        its released code and MECT have `hh` and `tt`.
    """

    distance_indices: Tensor

    def __init__(self, *, width: int, distances: Sequence[str] = DISTANCES) -> None:
        super().__init__()
        # Not a list: torch would copy it to the device at each use, and wait for it.
        distance_indices = torch.tensor([DISTANCES.index(distance) for distance in distances])
        self.register_buffer("distance_indices", distance_indices, persistent=False)
        # W_1, W_2, .. in rows rather than in columns as in W_r.
        self.fuse = Linear(width, len(distances) * width, bias=False)
        bound = 1.0 / math.sqrt(len(distances) * width)
        nn.init.uniform_(self.fuse.weight, -bound, bound)

    def forward(self, distances: Tensor, longest: int) -> Tensor:
        """Return the embeddings. *Shape:* (relative positions, width)

        distances (Tensor): All four distances of each relative position. *Shape:* (relative positions, 4)
        longest (int): An upper limit of the distances, exclusive.
        """
        width, n = self.fuse.in_features, len(self.distance_indices)
        sin, cos = sinusoids(longest, width, self.fuse.weight)
        # p(d) (eq. 3) for all distances -longest < d < longest.
        symmetric = interleave(torch.cat((-sin[1:].flip(0), sin)), torch.cat((cos[1:].flip(0), cos)))
        terms = self.fuse(symmetric).view(-1, width)
        zero = torch.arange((longest - 1) * n, longest * n, device=terms.device)
        return torch.relu(
            F.embedding_bag(distances.index_select(1, self.distance_indices) * n + zero, terms, mode="sum")
        )


class RandomAttention(nn.Module):
    """MECT's random attention: learned biases B of one stream (eq. 12 and 13), by the positions of query and key.

    A position is that in the sentence, characters first, then words, as in the released code. Most sentences are short,
    and a batch needs no positions beyond its longest. So the square of positions is cut into small blocks, each a row
    of an embedding table with a sparse gradient. Only the blocks that a batch needs are read and updated.

    n_heads (int): Number of heads h.
    n_positions (int): Number M of positions with a learned bias. Later positions have none, so that a sentence may
        have any length. In the released code, M is the length of a corpus' longest sentence, and the limit.
    """

    def __init__(self, *, n_heads: int, n_positions: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_positions = n_positions
        # Initially as small as in the released code: positions that training does not reach hardly count.
        deviation = 1.0 / (n_positions * math.sqrt(3 * n_heads))
        self.blocks = nn.Parameter(torch.randn(self._blocks_per_side**2, n_heads * BLOCK * BLOCK) * deviation)

    @property
    def _blocks_per_side(self) -> int:
        """Number of blocks along each side of the square."""
        return -(-self.n_positions // BLOCK)

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the biases of the first `queries` and `keys` positions, as far as they have some.

        RETURNS (Tensor): *Shape:* (queries, heads, keys)
        """
        queries, keys = min(queries, self.n_positions), min(keys, self.n_positions)
        query_blocks, key_blocks = (torch.arange(-(-n // BLOCK), device=self.blocks.device) for n in (queries, keys))
        blocks = F.embedding(query_blocks[:, None] * self._blocks_per_side + key_blocks, self.blocks, sparse=True)
        square = blocks.view(len(query_blocks), len(key_blocks), self.n_heads, BLOCK, BLOCK).permute(0, 3, 2, 1, 4)
        return square.reshape(len(query_blocks) * BLOCK, self.n_heads, len(key_blocks) * BLOCK)[:queries, :, :keys]


class SpanHeads(NamedTuple):
    """Queries, keys and values of a batch by head.

    q (Tensor): Queries to keys. *Shape:* (queries, heads, head width)
    q_position (Tensor): Queries to positions. *Shape:* (queries, heads, head width)
    k (Tensor): *Shape:* (spans, heads, head width)
    v (Tensor): *Shape:* (spans, heads, head width)
    positions (Tensor): Projected relative positions. *Shape:* (relative positions, heads, head width)
    bias (Tensor | None): Added to scores, by the positions of queries and of the first keys of a sentence. Its last row
        is that of all later queries. *Shape:* (positions, heads, positions)
    """

    q: Tensor
    q_position: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor
    bias: Tensor | None = None

    @classmethod
    def join(cls, streams: Sequence[SpanHeads]) -> SpanHeads:
        """Join the heads of streams over the same spans: one pass takes 7% less than two in a step of MECT."""
        if len(streams) == 1:
            return streams[0]
        names = ["q", "q_position", "k", "v", "positions"] + ["bias"] * (streams[0].bias is not None)
        return cls(*(torch.cat([getattr(heads, name) for heads in streams], dim=1) for name in names))


def attend_spans(heads: SpanHeads, groups: PaddedGroups, p: float) -> Tensor:
    """Compute attention within each sentence, with dropout of probability `p` on its map.

    RETURNS (Tensor): *Shape:* (queries, heads, head width)
    """
    if not groups.buckets:
        return heads.q
    attended = []
    for padded, bucket in zip(pad_heads(heads, groups), groups.buckets, strict=True):
        attend = partial(_attend, bucket=bucket, p=p)
        is_long = padded.k.shape[2] > MAX_UNCHUNKED_LENGTH
        attended.append(checkpointed(attend, padded) if is_long else attend(padded))
    return groups.join(attended)


def pad_heads(heads: SpanHeads, groups: PaddedGroups) -> Iterator[SpanHeads]:
    """Yield the queries, keys, values and positions of each bucket of groups.

    YIELDS (SpanHeads): *Shape:* (groups, heads, rows, head width) each; the bias stays as it is
    """
    queries, keys = torch.cat((heads.q, heads.q_position), dim=1), torch.cat((heads.k, heads.v), dim=1)
    for padded_queries, padded_keys, positions in groups.pad(queries, keys, heads.positions):
        (q, q_position), (k, v) = padded_queries.chunk(2, dim=1), padded_keys.chunk(2, dim=1)
        yield SpanHeads(q, q_position, k, v, positions, heads.bias)


def _attend(padded: SpanHeads, bucket: GroupBucket, p: float) -> Tensor:
    """Return the attention output of one bucket. *Shape:* (groups, heads, queries, head width)"""
    return torch.matmul(dropout(span_map(padded, bucket), p, training=True), padded.v)


def span_map(padded: SpanHeads, bucket: GroupBucket) -> Tensor:
    """Return the attention of each query to the keys. *Shape:* (groups, heads, queries, keys)"""
    scores = torch.matmul(padded.q, padded.k.transpose(2, 3))
    products = torch.matmul(padded.q_position, padded.positions.transpose(2, 3))
    scores += products.gather(3, bucket.pairs.expand(-1, products.shape[1], -1, -1))
    if padded.bias is not None:
        n_keys = min(padded.bias.shape[2], scores.shape[3])
        rows = padded.bias.index_select(0, bucket.positions.clamp(max=len(padded.bias) - 1).flatten())
        scores[..., :n_keys] += rows.unflatten(0, bucket.positions.shape).transpose(1, 2)[..., :n_keys]
    if bucket.key_mask is not None:
        scores += bucket.key_mask
    return torch.softmax(scores, dim=-1)


class SpanAttention(nn.Module):
    """Multi-head attention of spans. It has no output projection.

    width (int): Width d of input and output.
    n_heads (int): Number of heads h; each is `width / n_heads` wide.
    key_projection (bool): Project the keys, as FLAT does; otherwise the keys are the input itself (MECT's eq. 7).
    n_positions (int): Number of positions of a sentence with MECT's random attention (eq. 12 and 13); 0 for none.
    """

    def __init__(self, *, width: int, n_heads: int, key_projection: bool = True, n_positions: int = 0) -> None:
        super().__init__()
        head_width = width // n_heads
        self.n_heads = n_heads
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False) if key_projection else nn.Identity()
        self.value = Linear(width, width, bias=False)
        self.position = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.random = RandomAttention(n_heads=n_heads, n_positions=n_positions) if n_positions else None

    def heads(self, x: Tensor, rows: Tensor, relative: Tensor, groups: PaddedGroups) -> SpanHeads:
        """Return queries, keys, values (eq. 6) and positions by head.

        x (Tensor): Input of the queries, of this stream or of another. *Shape:* (queries, width)
        rows (Tensor): All spans. *Shape:* (spans, width)
        relative (Tensor): The relative positions. *Shape:* (relative positions, width)
        groups (PaddedGroups): The queries of the batch.
        """
        inputs = (self.query, x), (self.key, rows), (self.value, rows), (self.position, relative)
        q, k, v, positions = (split_heads(project(source), self.n_heads) for project, source in inputs)
        bias = None
        if self.random is not None:
            # Queries and keys beyond the last position with a bias get zeros.
            bias = F.pad(self.random(*groups.max_positions), (0, 0, 0, 0, 0, 1))
        return SpanHeads(q + self.u, q + self.v, k, v, positions, bias)


def span_layer(config: FlatConfig | MectConfig) -> TransformerLayer:
    """Return a layer of span attention and feed-forward."""
    attention = SpanAttention(
        width=config.width,
        n_heads=config.heads,
        key_projection=config.key_projection,
        n_positions=config.random_attention,
    )
    return TransformerLayer(attention, config)


class SpanLayer(nn.Module):
    """Transformer layers, one for each stream. The queries of MECT's two streams are computed from the other one.

    config (FlatConfig | MectConfig): Sizes and choices.
    n_streams (int): Number of streams.
    """

    def __init__(self, config: FlatConfig | MectConfig, n_streams: int) -> None:
        super().__init__()
        self.dropout = config.map_dropout
        self.streams = nn.ModuleList(span_layer(config) for _ in range(n_streams))

    def forward(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[Tensor]:
        """Run attention and feed-forward of each stream.

        queries (Sequence[Tensor]): The spans that are queries. *Shape:* (queries, width) each
        rows (Sequence[Tensor]): All spans, as keys and values. *Shape:* (spans, width) each
        relative (Sequence[Tensor]): Relative positions. *Shape:* (relative positions, width) each
        groups (PaddedGroups): The groups of the queries.
        RETURNS (List[Tensor]): *Shape:* (queries, width) each
        """
        heads = self.heads(queries, rows, relative, groups)
        p = self.dropout if self.training else 0.0
        attended = attend_spans(SpanHeads.join(heads), groups, p).flatten(1).chunk(len(heads), dim=1)
        streams = zip(self.streams, queries, attended, strict=True)
        return [cast(TransformerLayer, layer).complete(x, values) for layer, x, values in streams]

    def heads(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[SpanHeads]:
        """Return the queries, keys and values of each stream, from the inputs of `forward`."""
        return [
            cast(SpanAttention, layer.attention).heads(source, spans, positions, groups)
            for layer, source, spans, positions in zip(self.streams, queries[::-1], rows, relative, strict=True)
        ]


class SpanEncoder(nn.Module):
    """FLAT and MECT: a linear layer for each stream and one for words, a stack of layers over both, and the fusion of
    MECT's two streams (eq. 14).

    Its output are rows of characters, so only these are queries in the last layer.

    config (FlatConfig | MectConfig): Sizes and choices.
    widths (int): Widths of the input: those of characters, in MECT of their radicals, and of words.
    """

    def __init__(self, config: FlatConfig | MectConfig, *widths: int) -> None:
        super().__init__()
        self.config = config
        *input_widths, word_width = widths
        self.inputs = nn.ModuleList(Linear(width, config.width) for width in input_widths)
        self.word_input = Linear(word_width, config.width)
        self.positions = nn.ModuleList(
            SpanPositions(width=config.width, distances=config.used_distances) for _ in self.inputs
        )
        n_streams = len(input_widths)
        self.layers = nn.ModuleList(SpanLayer(config, n_streams) for _ in range(config.layers))
        self.fusion = Linear(2 * config.width, config.width) if n_streams == 2 else nn.Identity()

    def forward(self, *inputs: Any) -> Tensor:
        """Encode the characters of all sentences, joined.

        inputs (Any): The rows of characters and, in MECT, those of their radicals, *Shape:* (characters, width) each;
            the rows of words, *Shape:* (words, word width); and the `Lattice`.
        RETURNS (Tensor): *Shape:* (characters, width)
        """
        *characters, words, lattice = inputs
        for rows in characters:
            lattice.check_rows(characters=len(rows), words=len(words))
        *inner, last = self.layers
        plan, device = plan_spans(lattice, word_queries=bool(inner)), words.device
        distances = on_device(plan.distances, device)
        relative = [positions(distances, plan.longest) for positions in self.positions]
        streams = [project(rows) for project, rows in zip(self.inputs, characters, strict=True)]
        of_words = self.word_input(words)
        # The radicals' stream has zeros for words.
        words_of_streams = [of_words, *(torch.zeros_like(of_words) for _ in streams[1:])]
        rows = [torch.cat(pair) for pair in zip(streams, words_of_streams, strict=True)]
        if inner:
            groups = PaddedGroups.of(plan.character_groups + plan.word_groups, len(distances), device)
            for layer in inner:
                rows = layer(rows, rows, relative, groups)
        groups = PaddedGroups.of(plan.character_groups, len(distances), device)
        streams = last([x[: lattice.n_characters] for x in rows], rows, relative, groups)
        return self.fusion(torch.cat(streams, dim=-1) if len(streams) > 1 else streams[0])  # eq. 14
