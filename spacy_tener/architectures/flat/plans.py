"""Index arrays that the encoders of FLAT, FLAT-ATSSA and MECT need for a batch, computed once and used by all layers.

`Covers` has the pairs of a character and a lexicon word that contains it, for FLAT-ATSSA's word fusion. `plan_spans`
groups the spans of a batch for the attention of FLAT and MECT. In torch and NumPy alike, the rows of a batch are its
spans: first the characters of all sentences, then the words of all sentences.

Why spans are grouped: the relative position of two spans depends only on the length of the query, the length of the key
and the offset between their heads, so that the pairs of a sentence share a small number of relative positions. A group
consists of neighbouring queries of one sentence. Its *columns* are the distinct relative positions of its pairs. One
matrix product of the queries with the embeddings of the columns gives all position scores of the group, and an index
picks the score of each pair. For a batch of ten sentences of 100 characters and 60 words, this takes a sixteenth of the
time and less than a tenth of the memory of computing each pair on its own, as in the paper.

Two queries and three keys in a sentence of single characters, with the head-to-head distance as their relative
position:

    key           0   1   2
    query 0       0  -1  -2        columns:  -2  -1   0   1
    query 1       1   0  -1        pairs:   [[2, 1, 0], [3, 2, 1]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...embedders.lattice import Lattice
from ...sequences import ranges, starts
from ...types import IntArray


@dataclass(frozen=True)
class Covers:
    """The pairs of a character and a word that contains it, ordered by words.

    characters, words (IntArray): Indices of the character and the word of each pair, in the batch. *Shape:* (pairs,)
    from_head, from_tail (IntArray): Number of characters between the word's head and the character, `i - head`, and
        between the character and the word's tail, `tail - i`. *Shape:* (pairs,)
    longest (int): Maximum word length in characters.
    """

    characters: IntArray
    words: IntArray
    from_head: IntArray
    from_tail: IntArray
    longest: int

    @classmethod
    def of(cls, lattice: Lattice) -> Covers:
        """Compute the pairs of a batch."""
        sizes = lattice.tails - lattice.heads + 1
        first = np.repeat(starts(lattice.lengths), lattice.counts) + lattice.heads
        words = np.repeat(np.arange(len(sizes)), sizes)
        from_head = ranges(np.zeros_like(sizes), sizes)
        from_tail = sizes[words] - 1 - from_head
        return cls(ranges(first, sizes), words, from_head, from_tail, int(sizes.max(initial=0)))


# Maximum number of queries in a group. Groups with fewer queries have fewer columns per query, but the number of NumPy
# or torch operations grows with the number of groups.
MAX_QUERIES = 48


@dataclass(frozen=True)
class QueryGroup:
    """Neighbouring spans of one sentence that are computed together as queries. Their keys are all spans of the
    sentence.

    sentence (int): Index of the sentence.
    position (int): Position of the first query in its sentence, where the words follow the characters.
    queries (IntArray): Row of each query. *Shape:* (queries,)
    keys (IntArray): Row of each key: the sentence's characters, then its words. *Shape:* (keys,)
    columns (IntArray): The distinct relative positions of the group, as indices of `SpanPlan.distances`. *Shape:*
        (columns,)
    pairs (IntArray): The relative position of each pair, as an index of `columns`. *Shape:* (queries, keys)
    """

    sentence: int
    position: int
    queries: IntArray
    keys: IntArray
    columns: IntArray
    pairs: IntArray


@dataclass(frozen=True)
class SpanPlan:
    """All groups of queries of a batch, and the relative positions that occur in them.

    character_groups (tuple[QueryGroup, ...]): Groups of characters, in the order of the batch.
    word_groups (tuple[QueryGroup, ...]): Groups of words, in the order of the batch. Empty if words are not used as
        queries.
    distances (IntArray): The four distances from query to key of each relative position, in the order of `DISTANCES`.
        *Shape:* (relative positions, 4)
    longest (int): Number of characters of the longest sentence. The absolute value of every distance is smaller.
    """

    character_groups: tuple[QueryGroup, ...]
    word_groups: tuple[QueryGroup, ...]
    distances: IntArray
    longest: int


def plan_spans(lattice: Lattice, *, word_queries: bool) -> SpanPlan:
    """Group the spans of a batch.

    lattice (Lattice): The characters and words of the batch.
    word_queries (bool): Whether words are used as queries. The last layer does without them, since only its output for
        characters is used.
    """
    n_characters = lattice.n_characters
    table = _PositionTable.of(lattice)
    characters = _split(np.arange(n_characters), lattice.lengths)
    words = _split(np.arange(n_characters, n_characters + lattice.n_words), lattice.counts)
    keys = [np.concatenate(spans) for spans in zip(characters, words, strict=True)]
    blocks = _query_blocks(characters, np.zeros_like(lattice.lengths))
    n_character_groups = len(blocks)
    if word_queries:
        blocks += _query_blocks(words, lattice.lengths)

    # Find the distinct relative positions of each group. Their union is the table of the batch.
    distinct = [_distinct(table.numbers(queries, keys[sentence])) for sentence, _, queries in blocks]
    n_columns = np.array([len(numbers) for numbers, _ in distinct], np.int64)
    numbers, rows = _distinct(np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in distinct)]))
    groups = [
        QueryGroup(sentence, position, queries, keys[sentence], columns, pairs)
        for (sentence, position, queries), columns, (_, pairs) in zip(
            blocks, _split(rows, n_columns), distinct, strict=True
        )
    ]
    character_groups, word_groups = groups[:n_character_groups], groups[n_character_groups:]
    return SpanPlan(tuple(character_groups), tuple(word_groups), table.distances(numbers), lattice.longest)


@dataclass(frozen=True)
class _PositionTable:
    """A numbered table of all relative positions that a batch can have.

    A relative position is a triple: the size of the query, the size of the key, and the offset `head of the query -
    head of the key`. Its number is its row-major index in an array with the shape (sizes, sizes, offsets).

    sizes (IntArray): The distinct sizes of the batch's spans, in characters. *Shape:* (sizes,)
    shape (tuple[int, int, int]): Number of sizes, of sizes, and of offsets from `-longest` to `longest`.
    query_terms, key_terms (IntArray): The contribution of each span to the numbers of its pairs, as a query and as a
        key: the number of a pair is their sum. *Shape:* (spans,)
    """

    sizes: IntArray
    shape: tuple[int, int, int]
    query_terms: IntArray
    key_terms: IntArray

    @classmethod
    def of(cls, lattice: Lattice) -> _PositionTable:
        """Build the table of a batch, whose spans are all characters, then all words."""
        positions = ranges(np.zeros_like(lattice.lengths), lattice.lengths)
        heads = np.concatenate((positions, lattice.heads))
        tails = np.concatenate((positions, lattice.tails))
        sizes, size_index = np.unique(tails - heads + 1, return_inverse=True)
        n_offsets = 2 * lattice.longest + 1
        # The row-major index is (query_size * n_sizes + key_size) * n_offsets + query_head - key_head + longest, here
        # split into a term of the query and a term of the key. Measured on Weibo with 48 queries and 90 keys: adding
        # the terms takes 9 µs, computing the formula 32 µs, and np.ravel_multi_index 61 µs. With a group for every
        # 33 characters, np.ravel_multi_index would make FLAT's prediction 5 % slower.
        query_terms = size_index * len(sizes) * n_offsets + heads + lattice.longest
        key_terms = size_index * n_offsets - heads
        return cls(sizes, (len(sizes), len(sizes), n_offsets), query_terms, key_terms)

    def numbers(self, queries: IntArray, keys: IntArray) -> IntArray:
        """Return the number of the relative position of each query and key. *Shape:* (queries, keys)"""
        return self.query_terms[queries, None] + self.key_terms[keys]

    def distances(self, numbers: IntArray) -> IntArray:
        """Return the four distances of relative positions, in the order of `DISTANCES`.

        *Shape:* (relative positions,) to (relative positions, 4)
        """
        query_index, key_index, offset_index = np.unravel_index(numbers, self.shape)
        query_size, key_size = self.sizes[query_index], self.sizes[key_index]
        head_to_head = offset_index - self.shape[2] // 2
        head_to_tail = head_to_head - (key_size - 1)
        tail_to_head = head_to_head + (query_size - 1)
        tail_to_tail = head_to_head + query_size - key_size
        return np.stack((head_to_head, head_to_tail, tail_to_head, tail_to_tail), axis=1)


def _query_blocks(queries: Sequence[IntArray], first: IntArray) -> list[tuple[int, int, IntArray]]:
    """Divide the queries of each sentence evenly into blocks of at most `MAX_QUERIES`.

    queries (Sequence[IntArray]): The rows of the queries of each sentence.
    first (IntArray): Position of the first query in each sentence. *Shape:* (sentences,)
    RETURNS (list[tuple[int, int, IntArray]]): For each block its sentence, the position of its first query, and the
        rows of its queries.
    """
    blocks = []
    for sentence, position in enumerate(first.tolist()):
        n_blocks = -(-len(queries[sentence]) // MAX_QUERIES)
        for rows in np.array_split(queries[sentence], n_blocks) if n_blocks else []:
            blocks.append((sentence, position, rows))
            position += len(rows)
    return blocks


def _distinct(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct numbers in ascending order, and the index of each number in this list.

    The result is that of `np.unique(numbers, return_inverse=True)`, which sorts and takes four to six times as long.
    """
    is_used = np.zeros(numbers.max(initial=-1) + 1, np.bool_)
    is_used[numbers] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[numbers]


def _split(array: IntArray, counts: IntArray) -> list[IntArray]:
    """Split an array into consecutive parts of the given lengths."""
    return [array[end - count : end] for count, end in zip(counts.tolist(), np.cumsum(counts).tolist(), strict=True)]
