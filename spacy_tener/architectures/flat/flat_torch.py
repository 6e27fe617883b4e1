"""The encoder of FLAT (Li et al., 2020) and of MECT (Wu et al., 2021) in torch.

A character or a lexicon word is a span of the sentence, from its head to its tail. The attention score of a query span
i and a key span j of the same sentence is (FLAT, section 3.2)

    A_ij = (q_i + u) . k_j + (q_i + v) . (W_R R_ij)
    R_ij = ReLU(W_r [p(h_i - h_j) ; p(h_i - t_j) ; p(t_i - h_j) ; p(t_i - t_j)])

where `R_ij` is the relative position embedding, and p the sinusoidal embedding of a distance between the heads h and
the tails t. Computed as written, `R_ij` is an array with the shape (sentences, spans, spans, 4 d), and `W_R R_ij` takes
a matrix product for each pair. Here, `R` is computed once for each distinct relative position in the batch
(`SpanPositions`). Groups of neighbouring queries are then multiplied with the relative positions that occur in the
group, and the score of each pair is picked from the product (see `plans.py`).

`SpanEncoder` is the model. Its parts are `SpanLayer` with one `SpanAttention` per stream, `SpanPositions`, and MECT's
`RandomAttention`.
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
    """The relative position embeddings `R_ij = ReLU(W_r [p(d_1) ; p(d_2) ; ..])` of all relative positions in a batch.

    Since `W_r [p(d_1) ; p(d_2) ; ..] = W_1 p(d_1) + W_2 p(d_2) + ..`, each distance is multiplied once per batch, and a
    relative position is the ReLU of a sum of rows: one row for each distance used.

    width (int): Width d of p and of the result.
    distances (Sequence[str]): Names of the distances to use, out of "hh", "ht", "th" and "tt". FLAT's paper uses all
        four; its released code and MECT use "hh" and "tt".
    """

    distance_indices: Tensor

    def __init__(self, *, width: int, distances: Sequence[str] = DISTANCES) -> None:
        super().__init__()
        # A buffer moves to the device with the module. A list would be copied there in every batch, and waited for.
        distance_indices = torch.tensor([DISTANCES.index(distance) for distance in distances])
        self.register_buffer("distance_indices", distance_indices, persistent=False)
        # W_1, W_2, .. stacked below each other. In W_r they are side by side, hence the bounds of its initialization.
        self.fuse = Linear(width, len(distances) * width, bias=False)
        bound = 1.0 / math.sqrt(len(distances) * width)
        nn.init.uniform_(self.fuse.weight, -bound, bound)

    def forward(self, distances: Tensor, longest: int) -> Tensor:
        """Compute the embeddings. *Shape:* (relative positions, width)

        distances (Tensor): The four distances of each relative position, in the order of `DISTANCES`. *Shape:*
            (relative positions, 4)
        longest (int): Maximum sentence length. The absolute values of all distances are smaller.
        """
        width, n = self.fuse.in_features, len(self.distance_indices)
        sin, cos = sinusoids(longest, width, self.fuse.weight)
        # p(d) for all distances -longest < d < longest: sin(-x) = -sin(x), cos(-x) = cos(x).
        symmetric = interleave(torch.cat((-sin[1:].flip(0), sin)), torch.cat((cos[1:].flip(0), cos)))
        terms = self.fuse(symmetric).view(-1, width)
        # `terms` has the row d_index * n + i for the i-th used distance. Distance 0 is at index longest - 1.
        zero = torch.arange((longest - 1) * n, longest * n, device=terms.device)
        return torch.relu(
            F.embedding_bag(distances.index_select(1, self.distance_indices) * n + zero, terms, mode="sum")
        )


class RandomAttention(nn.Module):
    """MECT's random attention: a learned bias B for each pair of positions, which is added to the scores (eq. 12, 13).

    As in the released code, the position of a span is its index in the sentence, where the words follow the characters.
    Most sentences are short, so a batch needs the biases of the first positions only. Therefore the matrix of positions
    is divided into square blocks, each of them a row of an embedding table with sparse gradients, so that a training
    step only looks up and updates the blocks within the length of its longest sentence.

    n_heads (int): Number of heads h.
    n_positions (int): Number M of positions with a learned bias. Later positions have no bias, so that sentences may be
        longer. In the released code M is the length of the corpus' longest sentence, and longer input raises an error.
    """

    def __init__(self, *, n_heads: int, n_positions: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_positions = n_positions
        # The initial values are as small as in the released code. So positions that do not occur in training, and keep
        # their initial values, hardly change the scores.
        deviation = 1.0 / (n_positions * math.sqrt(3 * n_heads))
        self.blocks = nn.Parameter(torch.randn(self._blocks_per_side**2, n_heads * BLOCK * BLOCK) * deviation)

    @property
    def _blocks_per_side(self) -> int:
        """Number of blocks along each side of the matrix."""
        return -(-self.n_positions // BLOCK)

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the biases of the first `queries` and `keys` positions, cut off at `n_positions`.

        RETURNS (Tensor): *Shape:* (queries, heads, keys)
        """
        queries, keys = min(queries, self.n_positions), min(keys, self.n_positions)
        query_blocks, key_blocks = (torch.arange(-(-n // BLOCK), device=self.blocks.device) for n in (queries, keys))
        blocks = F.embedding(query_blocks[:, None] * self._blocks_per_side + key_blocks, self.blocks, sparse=True)
        square = blocks.view(len(query_blocks), len(key_blocks), self.n_heads, BLOCK, BLOCK).permute(0, 3, 2, 1, 4)
        return square.reshape(len(query_blocks) * BLOCK, self.n_heads, len(key_blocks) * BLOCK)[:queries, :, :keys]


class SpanHeads(NamedTuple):
    """Queries, keys and values of a batch, split into heads.

    q (Tensor): `q + u`, which is multiplied with keys. *Shape:* (queries, heads, head width)
    q_position (Tensor): `q + v`, which is multiplied with relative positions. *Shape:* (queries, heads, head width)
    k (Tensor): Keys. *Shape:* (spans, heads, head width)
    v (Tensor): Values. *Shape:* (spans, heads, head width)
    positions (Tensor): The projected relative positions `W_R R`. *Shape:* (relative positions, heads, head width)
    bias (Tensor | None): Biases of scores, by the positions of queries and keys in their sentence. Its last row belongs
        to all queries at later positions. *Shape:* (positions, heads, positions)
    """

    q: Tensor
    q_position: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor
    bias: Tensor | None = None

    @classmethod
    def join(cls, streams: Sequence[SpanHeads]) -> SpanHeads:
        """Concatenate the heads of several streams over the same spans, so that they are computed as one attention. In
        a training step of MECT, this takes 7 % less time than computing the streams one after the other.
        """
        if len(streams) == 1:
            return streams[0]
        names = ["q", "q_position", "k", "v", "positions"] + ["bias"] * (streams[0].bias is not None)
        return cls(*(torch.cat([getattr(heads, name) for heads in streams], dim=1) for name in names))


def attend_spans(heads: SpanHeads, groups: PaddedGroups, p: float) -> Tensor:
    """Compute attention within each sentence.

    heads (SpanHeads): Queries, keys and values of the batch.
    groups (PaddedGroups): The groups of queries, padded.
    p (float): Attention dropout rate.
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
    """Yield the heads of each bucket of groups, padded.

    YIELDS (SpanHeads): *Shape:* (groups, heads, rows, head width) for each tensor except the bias, which is not padded
    """
    queries, keys = torch.cat((heads.q, heads.q_position), dim=1), torch.cat((heads.k, heads.v), dim=1)
    for padded_queries, padded_keys, positions in groups.pad(queries, keys, heads.positions):
        (q, q_position), (k, v) = padded_queries.chunk(2, dim=1), padded_keys.chunk(2, dim=1)
        yield SpanHeads(q, q_position, k, v, positions, heads.bias)


def _attend(padded: SpanHeads, bucket: GroupBucket, p: float) -> Tensor:
    """Compute the attention of one bucket. *Shape:* (groups, heads, queries, head width)"""
    return torch.matmul(dropout(span_map(padded, bucket), p, training=True), padded.v)


def span_map(padded: SpanHeads, bucket: GroupBucket) -> Tensor:
    """Compute the attention weights of one bucket. *Shape:* (groups, heads, queries, keys)"""
    scores = torch.matmul(padded.q, padded.k.transpose(2, 3))
    products = torch.matmul(padded.q_position, padded.positions.transpose(2, 3))
    # Pick the score of each pair from the products with all columns.
    scores += products.gather(3, bucket.pairs.expand(-1, products.shape[1], -1, -1))
    if padded.bias is not None:
        n_keys = min(padded.bias.shape[2], scores.shape[3])
        rows = padded.bias.index_select(0, bucket.positions.clamp(max=len(padded.bias) - 1).flatten())
        scores[..., :n_keys] += rows.unflatten(0, bucket.positions.shape).transpose(1, 2)[..., :n_keys]
    if bucket.key_mask is not None:
        scores += bucket.key_mask
    return torch.softmax(scores, dim=-1)


class SpanAttention(nn.Module):
    """Multi-head attention between spans, without an output projection.

    width (int): Input and output width d.
    n_heads (int): Number of heads h, each with a width of `width / n_heads`.
    key_projection (bool): Project the keys, as FLAT does. If False, the keys are the input itself (MECT, eq. 7).
    n_positions (int): Number of positions of a sentence that have MECT's random attention (eq. 12, 13). 0 for no random
        attention.
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
        """Compute queries, keys, values and relative positions, split into heads.

        x (Tensor): Input of the queries. In MECT, it comes from the other stream. *Shape:* (queries, width)
        rows (Tensor): All hidden states. *Shape:* (spans, width)
        relative (Tensor): Relative position embeddings R. *Shape:* (relative positions, width)
        groups (PaddedGroups): The groups of queries.
        """
        inputs = (self.query, x), (self.key, rows), (self.value, rows), (self.position, relative)
        q, k, v, positions = (split_heads(project(source), self.n_heads) for project, source in inputs)
        bias = None
        if self.random is not None:
            # An additional row of zeros is the bias of queries beyond the last position with a bias. See `span_map`.
            bias = F.pad(self.random(*groups.max_positions), (0, 0, 0, 0, 0, 1))
        return SpanHeads(q + self.u, q + self.v, k, v, positions, bias)


def span_layer(config: FlatConfig | MectConfig) -> TransformerLayer:
    """Build a transformer layer with span attention."""
    attention = SpanAttention(
        width=config.width,
        n_heads=config.heads,
        key_projection=config.key_projection,
        n_positions=config.random_attention,
    )
    return TransformerLayer(attention, config)


class SpanLayer(nn.Module):
    """One transformer layer for each stream. In MECT's cross-attention, each stream's queries are computed from the
    other stream.

    config (FlatConfig | MectConfig): Sizes and options.
    n_streams (int): Number of streams: 1 for FLAT, 2 for MECT.
    """

    def __init__(self, config: FlatConfig | MectConfig, n_streams: int) -> None:
        super().__init__()
        self.dropout = config.map_dropout
        self.streams = nn.ModuleList(span_layer(config) for _ in range(n_streams))

    def forward(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[Tensor]:
        """Compute the layer for all streams.

        queries (Sequence[Tensor]): The hidden states of the spans that are queries, for each stream. *Shape:* (queries,
            width)
        rows (Sequence[Tensor]): All hidden states, for each stream. *Shape:* (spans, width)
        relative (Sequence[Tensor]): The relative position embeddings, for each stream. *Shape:* (relative positions,
            width)
        groups (PaddedGroups): The groups of queries.
        RETURNS (List[Tensor]): The new hidden states of the queries, for each stream. *Shape:* (queries, width)
        """
        heads = self.heads(queries, rows, relative, groups)
        p = self.dropout if self.training else 0.0
        attended = attend_spans(SpanHeads.join(heads), groups, p).flatten(1).chunk(len(heads), dim=1)
        streams = zip(self.streams, queries, attended, strict=True)
        return [cast(TransformerLayer, layer).complete(x, values) for layer, x, values in streams]

    def heads(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[SpanHeads]:
        """Compute the queries, keys and values of each stream. The arguments are those of `forward`."""
        # The reversed order of `queries` crosses the two streams of MECT. A single stream is unchanged.
        return [
            cast(SpanAttention, layer.attention).heads(source, spans, positions, groups)
            for layer, source, spans, positions in zip(self.streams, queries[::-1], rows, relative, strict=True)
        ]


class SpanEncoder(nn.Module):
    """The encoder of FLAT and MECT: a linear layer for each input, transformer layers over the spans and, for MECT, the
    fusion of both streams (eq. 14).

    The output are the hidden states of characters. So only characters are queries in the last layer.

    config (FlatConfig | MectConfig): Sizes and options.
    widths (int): Widths of the input: of characters, for MECT of radicals, and of words.
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
        """Encode all characters.

        inputs (Any): The embeddings of characters and, for MECT, of their radicals, *Shape:* (characters, width); the
            embeddings of words, *Shape:* (words, word width); and the `Lattice`.
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
        # Words have no radicals: they are zeros in the second stream.
        words_of_streams = [of_words, *(torch.zeros_like(of_words) for _ in streams[1:])]
        rows = [torch.cat(pair) for pair in zip(streams, words_of_streams, strict=True)]
        if inner:
            groups = PaddedGroups.of(plan.character_groups + plan.word_groups, len(distances), device)
            for layer in inner:
                rows = layer(rows, rows, relative, groups)
        groups = PaddedGroups.of(plan.character_groups, len(distances), device)
        streams = last([x[: lattice.n_characters] for x in rows], rows, relative, groups)
        return self.fusion(torch.cat(streams, dim=-1) if len(streams) > 1 else streams[0])  # eq. 14
