"""The groups of queries of a batch (`plans.QueryGroup`) as tensors, for the attention of `flat_torch`.

Matrix products of many small groups would each be a call of torch. So groups of similar size are padded to a common
size and form a bucket, which is computed at once.
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

# Cost of one more bucket, in pairs of a query and a key or column: another bucket pays if it saves more padding.
SPAN_PAIRS_PER_BUCKET = {"cpu": 1 << 12, "cuda": 1 << 20}
# Maximum number of pairs in a bucket with more than one group. On a CPU, larger buckets do not fit into the cache.
MAX_PAIRS = {"cpu": 1 << 16, "cuda": 1 << 21}


@dataclass(frozen=True)
class GroupBucket:
    """Groups that are padded to the same numbers of queries, keys and columns.

    shape (tuple[int, int, int, int]): Numbers of groups, queries, keys and columns.
    positions (Tensor): Position of each query in its sentence. *Shape:* (groups, queries)
    pairs (Tensor): Column of each pair of a query and a key. *Shape:* (groups, 1, queries, keys)
    key_mask (Tensor | None): Mask that is added to scores: -inf for padded keys, 0 for others. None without padding.
        *Shape:* (groups, 1, 1, keys)
    """

    shape: tuple[int, int, int, int]
    positions: Tensor
    pairs: Tensor
    key_mask: Tensor | None


@dataclass(frozen=True)
class PaddedGroups:
    """All groups of a batch, in buckets.

    buckets (tuple[GroupBucket, ...]): The buckets.
    queries, keys, columns (Segments): The query, key or relative position in each row of the padded buckets, as a
        gather index.
    to_flat (Tensor): The padded row of each query, which removes the padding. *Shape:* (queries,)
    max_positions (tuple[int, int]): Largest number of queries, and of keys, in a sentence.
    """

    buckets: tuple[GroupBucket, ...]
    queries: Segments
    keys: Segments
    columns: Segments
    to_flat: Tensor
    max_positions: tuple[int, int]

    @classmethod
    def of(cls, groups: Sequence[QueryGroup], n_columns: int, device: torch.device | str) -> PaddedGroups:
        """Divide groups into buckets, and compute the indices for padding them.

        groups (Sequence[QueryGroup]): The groups of all queries.
        n_columns (int): Number of relative positions in the batch.
        device (torch.device | str): Device for the result.
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
        # A query is in one group only, so sorting the padded rows by their query inverts the gather index.
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
        """Yield the padded queries, keys and columns of each bucket, split into heads.

        queries, keys, columns (Tensor): The rows of the batch. *Shape:* (rows, heads, width)
        YIELDS (Tuple[Tensor, Tensor, Tensor]): *Shape:* (groups, heads, padded queries, keys or columns, width) each
        """
        padded = []
        for i, (segments, x) in enumerate([(self.queries, queries), (self.keys, keys), (self.columns, columns)], 1):
            padded_rows = segments.gather(x.flatten(1)).unflatten(1, x.shape[1:])
            parts = padded_rows.split([bucket.shape[0] * bucket.shape[i] for bucket in self.buckets])
            # Transposed tensors are made contiguous here, which copies whole rows. Otherwise torch.matmul would do it,
            # but number by number.
            padded.append(
                [
                    part.unflatten(0, (bucket.shape[0], -1)).transpose(1, 2).contiguous()
                    for part, bucket in zip(parts, self.buckets, strict=True)
                ]
            )
        return zip(*padded, strict=True)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Remove the padding, and return a row for each query.

        parts (Sequence[Tensor]): The output for each bucket. *Shape:* (groups, heads, queries, width)
        RETURNS (Tensor): *Shape:* (queries, heads, width)
        """
        return torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts]).index_select(0, self.to_flat)


def _pad_bucket(
    groups: Sequence[QueryGroup], device: torch.device | str
) -> tuple[tuple[IntArray, IntArray, IntArray], BoolArray, GroupBucket]:
    """Pad the groups of a bucket.

    RETURNS (tuple[tuple[IntArray, IntArray, IntArray], BoolArray, GroupBucket]): The indices of queries, keys and
        columns, *Shape:* (groups, padded length) each; a mask of the queries that are not padding; and the bucket.
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
