"""Plans of a batch, made once for all layers: pairs of a character and a word over it, and groups of queries.

In FLAT and MECT, the relative position of two spans depends only on the length of the query, the length of the key and
the offset of their heads. So queries are grouped with their neighbours. The distinct relative positions of a group's
pairs are its columns: one product of its queries with the embeddings of the columns has the scores of all its pairs.

The rows of a batch are its spans: the characters of all sentences, then the words of all sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...embedders.lattice import Lattice
from ...sequences import ranges, starts
from ...types import IntArray


@dataclass(frozen=True)
class Covers:
    """The pairs of a character and a word that covers it, word after word.

    characters, words (IntArray): Those of each pair, as indices in the batch. *Shape:* (pairs,)
    from_head, from_tail (IntArray): The character's distances `i - head` and `tail - i`, from 0. *Shape:* (pairs,)
    longest (int): Length of the longest word.
    """

    characters: IntArray
    words: IntArray
    from_head: IntArray
    from_tail: IntArray
    longest: int

    @classmethod
    def of(cls, lattice: Lattice) -> Covers:
        """Return the pairs of a batch."""
        sizes = lattice.tails - lattice.heads + 1
        first = np.repeat(starts(lattice.lengths), lattice.counts) + lattice.heads
        words = np.repeat(np.arange(len(sizes)), sizes)
        from_head = ranges(np.zeros_like(sizes), sizes)
        from_tail = sizes[words] - 1 - from_head
        return cls(ranges(first, sizes), words, from_head, from_tail, int(sizes.max(initial=0)))


MOST_QUERIES = 48
"""Maximum number of queries of a group. Smaller groups have fewer columns per query, but need more operations."""


@dataclass(frozen=True)
class QueryGroup:
    """Neighbouring spans of a sentence as queries. Their keys are all spans of the sentence.

    sentence (int): Index of the sentence.
    position (int): Position of the first query in its sentence: characters come first, then words.
    queries (IntArray): Rows of the queries. *Shape:* (queries,)
    keys (IntArray): Rows of the keys: the sentence's characters, then its words. *Shape:* (keys,)
    columns (IntArray): Relative positions of the group, as rows of the plan's `distances`. *Shape:* (columns,)
    pairs (IntArray): The column of each query and key. *Shape:* (queries, keys)
    """

    sentence: int
    position: int
    queries: IntArray
    keys: IntArray
    columns: IntArray
    pairs: IntArray


@dataclass(frozen=True)
class SpanPlan:
    """Groups of queries of a batch, and the relative positions of their pairs.

    character_groups (tuple[QueryGroup, ...]): Groups of all characters, in the order of the batch.
    word_groups (tuple[QueryGroup, ...]): Groups of all words, in the order of the batch; none where words are no
        queries.
    distances (IntArray): Distances from query to key of each relative position: head to head, head to tail, tail to
        head, tail to tail. *Shape:* (relative positions, 4)
    longest (int): Characters of the longest sentence. All distances are smaller, in absolute value.
    """

    character_groups: tuple[QueryGroup, ...]
    word_groups: tuple[QueryGroup, ...]
    distances: IntArray
    longest: int


def plan_spans(lattice: Lattice, *, word_queries: bool) -> SpanPlan:
    """Plan a batch.

    word_queries (bool): Whether words are queries too. In the last layer they are not, as their output is not used.
    """
    n_characters, n_offsets = lattice.n_characters, 2 * lattice.longest + 1
    heads = np.concatenate((ranges(np.zeros_like(lattice.lengths), lattice.lengths), lattice.heads))
    sizes = np.concatenate((np.ones(n_characters, np.int64), lattice.tails - lattice.heads + 1))
    # The code of a relative position has three digits: length of the query, length of the key, offset of their heads.
    distinct_sizes, size = np.unique(sizes, return_inverse=True)
    query_codes = size * len(distinct_sizes) * n_offsets + heads + lattice.longest
    key_codes = size * n_offsets - heads

    def group_queries(queries: Sequence[IntArray], positions: IntArray) -> list[QueryGroup]:
        groups = []
        for sentence, position in enumerate(positions.tolist()):
            n_groups = -(-len(queries[sentence]) // MOST_QUERIES)
            for rows in np.array_split(queries[sentence], n_groups) if n_groups else []:
                columns, pairs = _distinct(query_codes[rows, None] + key_codes[keys[sentence]])
                groups.append(QueryGroup(sentence, position, rows, keys[sentence], columns, pairs))
                position += len(rows)
        return groups

    characters = _split(np.arange(n_characters), lattice.lengths)
    words = _split(np.arange(n_characters, len(heads)), lattice.counts)
    keys = [np.concatenate(rows) for rows in zip(characters, words, strict=True)]
    character_groups = group_queries(characters, np.zeros_like(lattice.lengths))
    groups = character_groups + (group_queries(words, lattice.lengths) if word_queries else [])
    codes, columns = _distinct(np.concatenate([np.zeros(0, np.int64), *(group.columns for group in groups)]))
    columns_of_groups = _split(columns, np.array([len(group.columns) for group in groups], np.int64))
    groups = [replace(group, columns=rows) for group, rows in zip(groups, columns_of_groups, strict=True)]

    sizes_of_pair, offset = np.divmod(codes, n_offsets)
    query, key = distinct_sizes[np.stack(np.divmod(sizes_of_pair, len(distinct_sizes)))]
    offset -= lattice.longest
    distances = np.stack([offset, offset - key + 1, offset + query - 1, offset + query - key], axis=1)
    n = len(character_groups)
    return SpanPlan(tuple(groups[:n]), tuple(groups[n:]), distances, lattice.longest)


def _distinct(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct codes in ascending order, and the index of each code among them."""
    # A sixth of the time of np.unique.
    is_used = np.zeros(codes.max(initial=-1) + 1, np.bool_)
    is_used[codes] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[codes]


def _split(array: IntArray, counts: IntArray) -> list[IntArray]:
    """Split an array into consecutive parts of the given sizes."""
    return [array[end - count : end] for count, end in zip(counts.tolist(), np.cumsum(counts).tolist(), strict=True)]
