"""Padded batches of query groups, for the attention layers in `flat_torch`.

`plans.plan_spans` divides the queries in each sentence into groups. This module pads groups of similar size, and
combines them into buckets. Attention is computed for a whole bucket at once, which requires fewer calls to torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...nn.devices_torch import on_device
from ...nn.ragged_torch import Segments, key_mask_of
from ...sequences import pad_arrays, plan_buckets
from ...types import BoolArray, IntArray
from .plans import QueryGroup

# Overhead of an additional bucket, in attention scores. Groups of different sizes are put into separate buckets if this
# saves more padded scores than the overhead.
SPAN_PAIRS_PER_BUCKET = {"cpu": 1 << 12, "cuda": 1 << 20}
# Maximum number of attention scores in a bucket, unless the bucket is a single group. On a CPU, larger buckets do not
# fit into the cache.
MAX_PAIRS = {"cpu": 1 << 16, "cuda": 1 << 21}


@dataclass(frozen=True)
class GroupBucket:
    """Query groups that are padded to the same number of queries, keys and relative positions.

    shape (tuple[int, int, int, int]): Number of groups, queries, keys and relative positions.
    positions (Tensor): Position of each query in its sentence. *Shape:* (groups, queries)
    pairs (Tensor): Gather index for each query and key into the relative positions. *Shape:* (groups, 1, queries, keys)
    key_mask (Tensor | None): Additive attention mask: -inf for padded keys, 0 for other keys. None without padding.
        *Shape:* (groups, 1, 1, keys)
    """

    shape: tuple[int, int, int, int]
    positions: Tensor
    pairs: Tensor
    key_mask: Tensor | None


@dataclass(frozen=True)
class PaddedGroups:
    """All query groups in a batch, divided into padded buckets.

    buckets (tuple[GroupBucket, ...]): The buckets.
    queries (Segments): Gather index that pads the queries in all buckets.
    keys (Segments): Gather index that pads the keys in all buckets.
    columns (Segments): Gather index that pads the relative positions in all buckets.
    to_flat (Tensor): Gather index that removes the query padding. *Shape:* (queries,)
    max_positions (tuple[int, int]): Maximum number of query positions and key positions in a sentence.
    """

    buckets: tuple[GroupBucket, ...]
    queries: Segments
    keys: Segments
    columns: Segments
    to_flat: Tensor
    max_positions: tuple[int, int]

    @classmethod
    def of(cls, groups: Sequence[QueryGroup], n_columns: int, device: torch.device | str) -> PaddedGroups:
        """Divide query groups into buckets, and compute the indices for padding the buckets.

        groups (Sequence[QueryGroup]): The query groups in the batch.
        n_columns (int): Number of distinct relative positions in the batch.
        device (torch.device | str): Device for the tensors.
        """
        kind = "cpu" if torch.device(device).type == "cpu" else "cuda"
        costs = np.array([len(group.queries) * (len(group.keys) + len(group.columns)) for group in groups])
        buckets = [
            _pad_bucket([groups[i] for i in bucket], device)
            for bucket in plan_buckets(costs, bucket_cost=SPAN_PAIRS_PER_BUCKET[kind], max_cost=MAX_PAIRS[kind])
        ]
        queries, keys, columns = (
            np.concatenate([np.zeros(0, np.int64), *(rows[i].ravel() for rows, *_ in buckets)]) for i in range(3)
        )
        # Invert the queries' gather index. Each query occurs once, so it is enough to sort by the query.
        to_flat = np.flatnonzero(
            np.concatenate([np.zeros(0, np.bool_), *(is_query.ravel() for _, is_query, _ in buckets)])
        )
        to_flat = to_flat[np.argsort(queries[to_flat])]
        return cls(
            tuple(bucket for *_, bucket in buckets),
            Segments.of(queries, len(to_flat), device=device),
            Segments.of(keys, keys.max(initial=-1) + 1, device=device),
            Segments.of(columns, n_columns, device=device),
            on_device(to_flat, device),
            (
                max((group.position + len(group.queries) for group in groups), default=0),
                max((len(group.keys) for group in groups), default=0),
            ),
        )

    def pad(self, queries: Tensor, keys: Tensor, columns: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the padded queries, keys and relative positions for each bucket.

        queries (Tensor): Queries in the batch. *Shape:* (queries, heads, width)
        keys (Tensor): Keys in the batch. *Shape:* (spans, heads, width)
        columns (Tensor): Relative positions in the batch. *Shape:* (relative positions, heads, width)
        YIELDS (Tuple[Tensor, Tensor, Tensor]): The padded tensors. *Shape:* (groups, heads, padded length, width)
        """
        padded = []
        for i, (segments, x) in enumerate([(self.queries, queries), (self.keys, keys), (self.columns, columns)], 1):
            padded_rows = segments.gather(x.flatten(1)).unflatten(1, x.shape[1:])
            parts = padded_rows.split([bucket.shape[0] * bucket.shape[i] for bucket in self.buckets])
            # Make the transposed tensors contiguous. Otherwise torch.matmul would copy them, which is slower.
            padded.append(
                [
                    part.unflatten(0, (bucket.shape[0], -1)).transpose(1, 2).contiguous()
                    for part, bucket in zip(parts, self.buckets, strict=True)
                ]
            )
        return zip(*padded, strict=True)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate the attention outputs from all buckets, and remove the padding.

        parts (Sequence[Tensor]): The padded output for each bucket. *Shape:* (groups, heads, queries, width)
        RETURNS (Tensor): *Shape:* (queries, heads, width)
        """
        return torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts]).index_select(0, self.to_flat)


def _pad_bucket(
    groups: Sequence[QueryGroup], device: torch.device | str
) -> tuple[tuple[IntArray, IntArray, IntArray], BoolArray, GroupBucket]:
    """Pad several query groups to the same size.

    RETURNS (tuple[tuple[IntArray, IntArray, IntArray], BoolArray, GroupBucket]): The padded indices of the queries,
        keys and relative positions, a mask that is True for queries and False for padding, and the bucket. *Shape:*
        (groups, padded length) for each index array
    """
    queries, is_query = pad_arrays([group.queries for group in groups])
    keys, is_key = pad_arrays([group.keys for group in groups])
    columns, _ = pad_arrays([group.columns for group in groups])
    pairs = np.zeros((len(groups), 1, queries.shape[1], keys.shape[1]), np.int64)
    for padded, group in zip(pairs, groups, strict=True):
        padded[0, : len(group.queries), : len(group.keys)] = group.pairs
    positions = np.array([group.position for group in groups])[:, None] + np.arange(queries.shape[1])
    key_mask = None if is_key.all() else on_device(key_mask_of(is_key), device)
    shape = *queries.shape, keys.shape[1], columns.shape[1]
    bucket = GroupBucket(shape, on_device(positions, device), on_device(pairs, device), key_mask)
    return (queries, keys, columns), is_query, bucket
