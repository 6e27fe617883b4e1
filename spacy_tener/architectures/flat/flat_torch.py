"""The FLAT (Li et al., 2020) and MECT (Wu et al., 2021) encoder in torch, for training and for prediction on a GPU.

The encoder is a transformer over spans. A span is a character or a lexicon word in the sentence. Its head h and its
tail t are the positions of its first and last character. The attention score A for a query span i and a key span j is
(FLAT, section 3.2)

    A_ij = (q_i + u) . k_j + (q_i + v) . (W_R R_ij)
    R_ij = ReLU(W_r [p(h_i - h_j) ; p(h_i - t_j) ; p(t_i - h_j) ; p(t_i - t_j)])

where q is the query, k is the key, u and v are learned biases, `R_ij` is the relative position embedding, and p is the
sinusoidal embedding of a distance.

Computed literally, `R_ij` requires an array with the shape (sentences, spans, spans, 4 d). But many pairs of spans have
the same distances. So this module computes the embedding once for each distinct relative position in the batch
(`SpanPositions`), and looks up the position score for each pair. `plans.py` describes the algorithm.
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
    """Relative position embeddings, which encode the distances between two spans (FLAT, section 3.2).

    The embedding for the distances `d_1, d_2, ..` is `ReLU(W_r [p(d_1) ; p(d_2) ; ..])` with the sinusoidal embedding
    p. The product is computed as the sum `W_1 p(d_1) + W_2 p(d_2) + ..`. So each term can be looked up in a table, with
    one row for each distance.

    width (int): Width d of the sinusoidal embeddings and the output.
    distances (Sequence[str]): Names of the distances that the embeddings encode: "hh" (head to head), "ht" (head to
        tail), "th" or "tt". The FLAT paper uses all four distances. The authors' code and MECT use "hh" and "tt".
    """

    distance_indices: Tensor

    def __init__(self, *, width: int, distances: Sequence[str] = DISTANCES) -> None:
        super().__init__()
        # Indexing with a Python list would copy the list to the GPU in each batch. A buffer is copied only once.
        distance_indices = torch.tensor([DISTANCES.index(distance) for distance in distances])
        self.register_buffer("distance_indices", distance_indices, persistent=False)
        # This layer stacks W_1, W_2, .. vertically. The paper's W_r concatenates them horizontally, so its fan-in is
        # the number of distances times the width. Initialize the weights with the bound for this fan-in.
        self.fuse = Linear(width, len(distances) * width, bias=False)
        bound = 1.0 / math.sqrt(len(distances) * width)
        nn.init.uniform_(self.fuse.weight, -bound, bound)

    def forward(self, distances: Tensor, longest: int) -> Tensor:
        """Compute an embedding for each distinct relative position in a batch.

        A relative position consists of the distances between two spans.

        distances (Tensor): The distances of each relative position: head to head, head to tail, tail to head and tail
            to tail. *Shape:* (relative positions, 4)
        longest (int): Maximum sentence length. All distances are between `-longest` and `longest`, exclusive.
        RETURNS (Tensor): *Shape:* (relative positions, width)
        """
        width, n = self.fuse.in_features, len(self.distance_indices)
        sin, cos = sinusoids(longest, width, self.fuse.weight)
        # For negative distances, mirror the embeddings: sin(-x) = -sin(x) and cos(-x) = cos(x).
        symmetric = interleave(torch.cat((-sin[1:].flip(0), sin)), torch.cat((cos[1:].flip(0), cos)))
        terms = self.fuse(symmetric).view(-1, width)
        # `terms` contains W_i p(d) in row (d + longest - 1) * n + i. `zero` contains the row indices for d = 0.
        zero = torch.arange((longest - 1) * n, longest * n, device=terms.device)
        return torch.relu(
            F.embedding_bag(distances.index_select(1, self.distance_indices) * n + zero, terms, mode="sum")
        )


class RandomAttention(nn.Module):
    """MECT's random attention: a learned bias on the attention score for each pair of positions (eq. 12 and 13).

    A sentence's characters have the first positions, followed by the words.

    The bias matrix is stored as an embedding table with sparse gradients. Each table row is a square block of the
    matrix. So a training step only updates the blocks for the positions that occur in the batch.

    n_heads (int): Number of attention heads h.
    n_positions (int): Number M of positions with a bias. Longer sentences are allowed, but later positions have no
        bias. In the authors' code, M is the maximum sentence length in the corpus.
    """

    def __init__(self, *, n_heads: int, n_positions: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_positions = n_positions
        # The initial values are as small as in the authors' code. Positions that never occur in training keep these
        # values, and hardly influence the attention.
        deviation = 1.0 / (n_positions * math.sqrt(3 * n_heads))
        self.blocks = nn.Parameter(torch.randn(self._blocks_per_side**2, n_heads * BLOCK * BLOCK) * deviation)

    @property
    def _blocks_per_side(self) -> int:
        """Number of blocks in each row and column of the bias matrix."""
        return -(-self.n_positions // BLOCK)

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return the biases for pairs of a query and a key position. Positions after `n_positions` are excluded.

        queries (int): Number of query positions.
        keys (int): Number of key positions.
        RETURNS (Tensor): *Shape:* (queries, heads, keys)
        """
        queries, keys = min(queries, self.n_positions), min(keys, self.n_positions)
        query_blocks, key_blocks = (torch.arange(-(-n // BLOCK), device=self.blocks.device) for n in (queries, keys))
        blocks = F.embedding(query_blocks[:, None] * self._blocks_per_side + key_blocks, self.blocks, sparse=True)
        square = blocks.view(len(query_blocks), len(key_blocks), self.n_heads, BLOCK, BLOCK).permute(0, 3, 2, 1, 4)
        return square.reshape(len(query_blocks) * BLOCK, self.n_heads, len(key_blocks) * BLOCK)[:queries, :, :keys]


class SpanProjections(NamedTuple):
    """The queries, keys, values and relative positions in a batch, projected and split into attention heads.

    query (Tensor): Queries plus u, for the content scores. *Shape:* (queries, heads, head width)
    position_query (Tensor): Queries plus v, for the position scores. *Shape:* (queries, heads, head width)
    key (Tensor): Keys. *Shape:* (spans, heads, head width)
    value (Tensor): Values. *Shape:* (spans, heads, head width)
    positions (Tensor): Projected relative position embeddings `W_R R`. *Shape:* (relative positions, heads, head width)
    bias (Tensor | None): Attention score bias for each query and key position, or None without random attention. The
        last row is zero. *Shape:* (query positions, heads, key positions)
    """

    query: Tensor
    position_query: Tensor
    key: Tensor
    value: Tensor
    positions: Tensor
    bias: Tensor | None = None

    @classmethod
    def join(cls, streams: Sequence[SpanProjections]) -> SpanProjections:
        """Concatenate the attention heads of several streams.

        A single attention operation with the heads of both streams makes a MECT training step 7 % faster.
        """
        if len(streams) == 1:
            return streams[0]
        names = ["query", "position_query", "key", "value", "positions"] + ["bias"] * (streams[0].bias is not None)
        return cls(*(torch.cat([getattr(stream, name) for stream in streams], dim=1) for name in names))


def attend_spans(projections: SpanProjections, groups: PaddedGroups, p: float) -> Tensor:
    """Compute attention within each sentence. Each query attends to all spans in its sentence.

    projections (SpanProjections): Queries, keys, values and relative positions in the batch.
    groups (PaddedGroups): The queries, divided into padded groups that are computed at once.
    p (float): Attention dropout rate.
    RETURNS (Tensor): *Shape:* (queries, heads, head width)
    """
    if not groups.buckets:
        return projections.query
    attended = []
    for padded, bucket in zip(pad_projections(projections, groups), groups.buckets, strict=True):
        attend = partial(_attend, bucket=bucket, p=p)
        is_long = padded.key.shape[2] > MAX_UNCHUNKED_LENGTH
        attended.append(checkpointed(attend, padded) if is_long else attend(padded))
    return groups.join(attended)


def pad_projections(projections: SpanProjections, groups: PaddedGroups) -> Iterator[SpanProjections]:
    """Yield the padded attention inputs of each bucket.

    A query group is a sequence's queries. A bucket contains groups with a similar length, to limit padding.

    YIELDS (SpanProjections): The padded tensors, *Shape:* (groups, heads, padded length, head width), and the unchanged
        bias.
    """
    queries = torch.cat((projections.query, projections.position_query), dim=1)
    keys = torch.cat((projections.key, projections.value), dim=1)
    for padded_queries, padded_keys, positions in groups.pad(queries, keys, projections.positions):
        (q, q_position), (k, v) = padded_queries.chunk(2, dim=1), padded_keys.chunk(2, dim=1)
        yield SpanProjections(q, q_position, k, v, positions, projections.bias)


def _attend(padded: SpanProjections, bucket: GroupBucket, p: float) -> Tensor:
    """Compute the attention output for a padded bucket of query groups.

    RETURNS (Tensor): *Shape:* (groups, heads, queries, head width)
    """
    return torch.matmul(dropout(span_map(padded, bucket), p, training=True), padded.value)


def span_map(padded: SpanProjections, bucket: GroupBucket) -> Tensor:
    """Compute the attention weights for a padded bucket of query groups.

    RETURNS (Tensor): *Shape:* (groups, heads, queries, keys)
    """
    scores = torch.matmul(padded.query, padded.key.transpose(2, 3))
    products = torch.matmul(padded.position_query, padded.positions.transpose(2, 3))
    # `products` contains the score for each query and each relative position in the group. Look up the relative
    # position of each query and key.
    scores += products.gather(3, bucket.pairs.expand(-1, products.shape[1], -1, -1))
    if padded.bias is not None:
        n_keys = min(padded.bias.shape[2], scores.shape[3])
        # Queries beyond the last position with random attention use the last row of the bias, which is zero.
        rows = padded.bias.index_select(0, bucket.positions.clamp(max=len(padded.bias) - 1).flatten())
        scores[..., :n_keys] += rows.unflatten(0, bucket.positions.shape).transpose(1, 2)[..., :n_keys]
    if bucket.key_mask is not None:
        scores += bucket.key_mask
    return torch.softmax(scores, dim=-1)


class SpanAttention(nn.Module):
    """Multi-head attention between spans, with relative position embeddings and without an output projection.

    A span is a character or a lexicon word. See the module's docstring for the equations.

    width (int): Input and output width d.
    n_heads (int): Number of attention heads h. The head width is `width / n_heads`.
    key_projection (bool): Whether to project the keys, as in FLAT. If False, the input is used as keys (MECT, eq. 7).
    n_positions (int): Number of positions with random attention (MECT, eq. 12 and 13). 0 for no random attention.
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

    def project(self, x: Tensor, rows: Tensor, relative: Tensor, groups: PaddedGroups) -> SpanProjections:
        """Project the queries, keys, values and relative positions, and split them into attention heads.

        x (Tensor): Hidden states from which the queries are projected. *Shape:* (queries, width)
        rows (Tensor): Hidden states from which the keys and values are projected. *Shape:* (spans, width)
        relative (Tensor): Relative position embeddings. *Shape:* (relative positions, width)
        groups (PaddedGroups): The queries, divided into padded groups that are computed at once.
        """
        inputs = (self.query, x), (self.key, rows), (self.value, rows), (self.position, relative)
        q, k, v, positions = (split_heads(project(source), self.n_heads) for project, source in inputs)
        bias = None
        if self.random is not None:
            # Append a zero row. `span_map` uses this row for query positions without random attention.
            bias = F.pad(self.random(*groups.max_positions), (0, 0, 0, 0, 0, 1))
        return SpanProjections(q + self.u, q + self.v, k, v, positions, bias)


def span_layer(config: FlatConfig | MectConfig) -> TransformerLayer:
    """Create a transformer layer that uses `SpanAttention`."""
    attention = SpanAttention(
        width=config.width,
        n_heads=config.heads,
        key_projection=config.key_projection,
        n_positions=config.random_attention,
    )
    return TransformerLayer(attention, config)


class SpanLayer(nn.Module):
    """An encoder layer, which consists of one transformer layer per stream.

    FLAT has a single stream. MECT has a stream for characters and words, and a stream for radicals. In MECT's
    cross-attention, each stream's queries are projected from the other stream's hidden states.

    config (FlatConfig | MectConfig): Encoder hyperparameters.
    n_streams (int): Number of streams: 1 for FLAT, 2 for MECT.
    """

    def __init__(self, config: FlatConfig | MectConfig, n_streams: int) -> None:
        super().__init__()
        self.dropout = config.attention_dropout_rate
        self.streams = nn.ModuleList(span_layer(config) for _ in range(n_streams))

    def forward(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[Tensor]:
        """Compute the transformer layer for each stream.

        queries (Sequence[Tensor]): Per stream, the hidden states that are updated. *Shape:* (queries, width)
        rows (Sequence[Tensor]): Per stream, the hidden states of all spans. *Shape:* (spans, width)
        relative (Sequence[Tensor]): Per stream, the relative position embeddings. *Shape:* (relative positions, width)
        groups (PaddedGroups): The queries, divided into padded groups that are computed at once.
        RETURNS (List[Tensor]): Per stream, the updated hidden states. *Shape:* (queries, width)
        """
        projections = self.project(queries, rows, relative, groups)
        p = self.dropout if self.training else 0.0
        attended = attend_spans(SpanProjections.join(projections), groups, p).flatten(1).chunk(len(projections), dim=1)
        streams = zip(self.streams, queries, attended, strict=True)
        return [cast(TransformerLayer, layer).complete(x, values) for layer, x, values in streams]

    def project(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[SpanProjections]:
        """Compute the queries, keys and values for each stream. See `forward` for the arguments."""
        # Cross-attention: with two streams, reversing `queries` swaps the inputs from which the queries are projected.
        return [
            cast(SpanAttention, layer.attention).project(source, spans, positions, groups)
            for layer, source, spans, positions in zip(self.streams, queries[::-1], rows, relative, strict=True)
        ]


class SpanEncoder(nn.Module):
    """The FLAT and MECT encoder.

    Linear layers project the input embeddings to a common width. Transformer layers then encode the characters and
    words in each sentence. For MECT, a last linear layer combines the two streams' outputs (eq. 14).

    Only the characters' hidden states are returned. So the last transformer layer computes no queries for words.

    config (FlatConfig | MectConfig): Encoder hyperparameters.
    widths (int): Widths of the character embeddings, radical embeddings (MECT only) and word embeddings.
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
        """Encode the characters in a batch of sentences.

        inputs (Any): The character embeddings, the radical embeddings (MECT only), the word embeddings, and the
            `Lattice` with the word positions. *Shape:* (characters, character width), (characters, radical width) and
            (words, word width)
        RETURNS (Tensor): Character hidden states. *Shape:* (characters, width)
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
        # Words have no radical embeddings. In MECT's radical stream, their hidden states are zeros.
        words_of_streams = [of_words, *(torch.zeros_like(of_words) for _ in streams[1:])]
        rows = [torch.cat(pair) for pair in zip(streams, words_of_streams, strict=True)]
        if inner:
            groups = PaddedGroups.of(plan.character_groups + plan.word_groups, len(distances), device)
            for layer in inner:
                rows = layer(rows, rows, relative, groups)
        groups = PaddedGroups.of(plan.character_groups, len(distances), device)
        streams = last([x[: lattice.n_characters] for x in rows], rows, relative, groups)
        # MECT concatenates the streams and projects the result (eq. 14). For FLAT, `fusion` is the identity.
        return self.fusion(torch.cat(streams, dim=-1) if len(streams) > 1 else streams[0])
