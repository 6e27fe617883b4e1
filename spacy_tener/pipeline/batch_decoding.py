"""Entities and probabilities for a batch of texts, computed by the CRF from the emissions of the texts.

The classes in this module represent texts, units and labels as indices. `decoding.py` converts the results for a single
Doc to entities with offsets and labels.

A model with a `depth` above 1 predicts nested entities. It has separate emissions for each depth, and the entities of
one depth do not overlap. Given the emissions, the depths are independent, so their probabilities can be multiplied. The
CRF gets one sequence for each depth and text, in the order of the array `(depth, texts)`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..crf.crf_numpy import PathScorer
from ..crf.decode import ScoredPath
from ..crf.forward import ForwardBackward
from ..crf.marginals import EntitySpans, entropy, outside_marginals, probable_spans, span_marginals
from ..processes import cached_property
from ..sequences import starts
from ..types import AnyFloats, IntArray
from .tags import Mask

Probabilities = NDArray[np.float64]
# Spans and their probabilities. *Shape:* (spans,)
ScoredSpans = tuple[EntitySpans, Probabilities]
NO_SPANS = EntitySpans(*np.empty((4, 0), dtype=np.int64))
# If the depth is above 1, several label sequences may result in the same set of entities. To find k different sets, k
# times these numbers of sequences are enumerated, one after the other, until there are enough.
_SEQUENCES_PER_SET = (1, 4, 16)


class RankedEntities(NamedTuple):
    """One of the k best sets of entities of a text.

    log_probability (float): Logarithm of the probability of the set.
    spans (EntitySpans): The entities, sorted.
    probabilities (Probabilities): Marginal probability of each entity, in this set or any other. *Shape:* (entities,)
    """

    log_probability: float
    spans: EntitySpans
    probabilities: Probabilities


@dataclass(frozen=True, eq=False, repr=False)
class BatchDecoding:
    """The results of the CRF for a batch of texts. Each result is computed for all texts together when it is first
    needed.

    In all results, `EntitySpans.sequence` is the index of the text.

    crf (PathScorer): The CRF.
    emissions (AnyFloats): Emissions of all texts, concatenated. *Shape:* (depth, units, tags)
    lengths (list[int]): The number of units in each text.
    allowed (Mask | None): The tags that the CRF may choose, or None for all tags. *Shape:* (depth, units, tags)
    temperature (float): Divisor of all scores of the CRF when probabilities are computed. The best label sequence does
        not depend on it.
    _k_best (dict[int, list[list[RankedEntities]]]): Cached results of `k_best` by k.
    _candidates (dict[float, list[ScoredSpans]]): Cached results of `candidates` by minimum probability.
    """

    crf: PathScorer
    emissions: AnyFloats
    lengths: list[int]
    allowed: Mask | None
    temperature: float = 1.0
    _k_best: dict[int, list[list[RankedEntities]]] = field(default_factory=dict, init=False)
    _candidates: dict[float, list[ScoredSpans]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<BatchDecoding of {self.n_texts} texts, {sum(self.lengths)} units, depth {self.depth}>"

    @property
    def depth(self) -> int:
        return len(self.emissions)

    @property
    def n_texts(self) -> int:
        return len(self.lengths)

    @cached_property
    def offsets(self) -> IntArray:
        """Index of the first unit of each text in the concatenated units. *Shape:* (texts,)"""
        return starts(np.asarray(self.lengths, dtype=np.int64))

    @cached_property
    def text_of_unit(self) -> IntArray:
        """Index of the text of each unit. *Shape:* (units,)"""
        return np.repeat(np.arange(self.n_texts), self.lengths)

    @cached_property
    def sequences(self) -> IntArray:
        """Index of the CRF's sequence for each depth and text. *Shape:* (depth, texts)"""
        return np.arange(self.depth * self.n_texts).reshape(self.depth, self.n_texts)

    @property
    def _sequence_emissions(self) -> AnyFloats:
        """The emissions of the CRF's sequences, concatenated. *Shape:* (depth * units, tags)"""
        return self.emissions.reshape(-1, self.crf.layout.n_tags)

    @property
    def _sequence_lengths(self) -> list[int]:
        return self.lengths * self.depth

    @property
    def _sequence_allowed(self) -> Mask | None:
        return None if self.allowed is None else self.allowed.reshape(-1, self.crf.layout.n_tags)

    @cached_property
    def forward_backward(self) -> ForwardBackward:
        """Forward and backward scores of the CRF's sequences."""
        return self.crf.forward_backward(
            self._sequence_emissions, self._sequence_lengths, self._sequence_allowed, temperature=self.temperature
        )

    @cached_property
    def best(self) -> EntitySpans:
        """The entities of the best label sequence of each text, sorted. Outer entities come before those inside."""
        tags = self.crf.decode(self._sequence_emissions, self._sequence_lengths, self._sequence_allowed)
        return merge_depths([self._entities(tags_at_depth) for tags_at_depth in tags.reshape(self.depth, -1)])

    def _entities(self, tags: IntArray) -> EntitySpans:
        """Return the entities of all texts at one depth. *Shape:* (units,)"""
        start, end, label = self.crf.layout.decode(tags)
        text = self.text_of_unit[start]
        offset = self.offsets[text]
        return EntitySpans(text, start - offset, end - offset, label)

    @cached_property
    def best_probabilities(self) -> Probabilities:
        """The probability of each of the best entities. *Shape:* (entities,)"""
        return self.probabilities(self.best)

    @cached_property
    def best_by_text(self) -> list[ScoredSpans]:
        """The best entities of each text, and their probabilities."""
        return self._split(self.best, self.best_probabilities)

    def probabilities(self, spans: EntitySpans) -> Probabilities:
        """Return the marginal probability that each span is an entity at any depth. *Shape:* (spans,)"""
        probabilities = np.zeros(spans.label.size)
        for sequences in self.sequences:
            at_depth = span_marginals(self.forward_backward, spans._replace(sequence=sequences[spans.sequence])).clip(
                0.0, 1.0
            )
            # Depths are independent: P(A or B) = P(A) + (1 - P(A)) P(B).
            probabilities += (1.0 - probabilities) * at_depth
        return probabilities

    def empty_probabilities(self, text: int, starts: IntArray, ends: IntArray) -> Probabilities:
        """Return the probability that parts of a text contain no entity at any depth, not even a part of one.

        text (int): Index of the text.
        starts (IntArray): First unit of each part. *Shape:* (parts,)
        ends (IntArray): One past the last unit of each part. *Shape:* (parts,)
        RETURNS (Probabilities): *Shape:* (parts,)
        """
        probabilities = np.ones(starts.size)
        if not starts.size:
            return probabilities
        for sequence in self.sequences[:, text]:
            probabilities *= outside_marginals(self.forward_backward, np.full(starts.size, sequence), starts, ends)
        return probabilities

    def candidates(self, minimum: float) -> list[ScoredSpans]:
        """Return all spans of each text whose probability is at least `minimum`, in no particular order."""
        if minimum not in self._candidates:
            # A span whose probability is at least `minimum` has at least the probability `minimum / depth` at one of
            # the depths.
            spans, probabilities = probable_spans(self.forward_backward, minimum / self.depth)
            if self.depth > 1:
                _, text = np.unravel_index(spans.sequence, self.sequences.shape)
                spans = sort_unique(spans._replace(sequence=text))
                probabilities = self.probabilities(spans)
                is_probable = probabilities >= minimum
                spans, probabilities = select_spans(spans, is_probable), probabilities[is_probable]
            order = np.argsort(spans.sequence, kind="stable")
            sorted_probabilities = probabilities[order].astype(np.float64, copy=False)
            self._candidates[minimum] = self._split(select_spans(spans, order), sorted_probabilities)
        return self._candidates[minimum]

    def k_best(self, k: int) -> list[list[RankedEntities]]:
        """Return the k best sets of entities of each text, or fewer if there are fewer.

        The sets are ranked by their most probable label sequence, so the first set is always `best`. With a depth of 1,
        each set has exactly one label sequence. With a higher depth, a set may have several label sequences, since an
        entity may be predicted at different depths. The probability of a set is then the sum over the label sequences
        that were enumerated. This is a lower bound, and it may be larger than the probability of a set with a better
        rank. To find k different sets, up to `16 * k` label sequences are enumerated.
        """
        if k not in self._k_best:
            ranked = self._best_sets(k)
            all_spans = [spans for sets in ranked for spans, _ in sets]
            ends = np.cumsum([spans.label.size for spans in all_spans])
            probabilities = iter(np.split(self.probabilities(join_spans(all_spans)), ends))
            self._k_best[k] = [
                [RankedEntities(log_probability, spans, next(probabilities)) for spans, log_probability in sets]
                for sets in ranked
            ]
        return self._k_best[k]

    def _best_sets(self, k: int) -> list[list[tuple[EntitySpans, float]]]:
        """Return up to k different sets of entities of each text with their log-probabilities."""
        emissions = self._sequence_emissions.astype(np.float64)
        ranked: list[list[tuple[EntitySpans, float]]] = []
        for n_sequences in [k] if self.depth == 1 else [k * n for n in _SEQUENCES_PER_SET]:
            paths = self.crf.k_best(emissions, self._sequence_lengths, n_sequences, self._sequence_allowed)
            ranked, is_complete = [], True
            for text, sequences in enumerate(self.sequences.T.tolist()):
                combinations = best_combinations([paths[sequence] for sequence in sequences], n_sequences)
                sets = self._merge_by_set(text, combinations)
                ranked.append(sets[:k])
                is_complete &= len(sets) >= k or len(combinations) < n_sequences
            if is_complete:
                break
        return ranked

    def _merge_by_set(
        self, text: int, combinations: Sequence[tuple[float, tuple[IntArray, ...]]]
    ) -> list[tuple[EntitySpans, float]]:
        """Merge label sequences with the same set of entities. Return the sets with the logarithm of their summed
        probabilities, in the order of their best label sequences.

        combinations (Sequence[tuple[float, tuple[IntArray, ...]]]): Score of each label sequence, and its tags at each
            depth.
        """
        sets: dict[tuple[bytes, ...], tuple[EntitySpans, float]] = {}
        for score, tags_by_depth in combinations:
            log_probability = score / self.temperature - self.log_partitions[text]
            levels = [self.crf.layout.decode(tags) for tags in tags_by_depth]
            spans = merge_depths([EntitySpans(np.full(start.size, text), start, *rest) for start, *rest in levels])
            key = tuple(column.tobytes() for column in spans)
            if key in sets:
                log_probability = float(np.logaddexp(sets[key][1], log_probability))
            sets[key] = spans, log_probability
        return list(sets.values())

    @cached_property
    def outside(self) -> list[Probabilities]:
        """The probability that a unit is not part of an entity at any depth, and the probability that no entity
        continues from the unit before.

        *Shape:* (units, 2) for each text
        """
        layout, marginals = self.crf.layout, self.forward_backward.marginals().astype(np.float64)
        is_outside = marginals[:, layout.outside]
        is_boundary = (1.0 - marginals[:, layout.continuers].sum(axis=1)).clip(0.0, 1.0)
        by_depth = np.stack([is_outside, is_boundary], axis=1).reshape(self.depth, -1, 2)
        return np.split(by_depth.prod(axis=0), self.offsets[1:])

    @cached_property
    def entropies(self) -> list[float]:
        """The entropy of the distribution over all label sequences of each text, in nats."""
        return self._sum_depths(entropy(self.forward_backward))

    @cached_property
    def log_partitions(self) -> list[float]:
        """The log-partition function of each text."""
        return self._sum_depths(self.forward_backward.log_partition())

    def _sum_depths(self, values: AnyFloats) -> list[float]:
        """Sum the values of the CRF's sequences for each text. *Shape:* (depth * texts,) to (texts,)"""
        sums: list[float] = values.reshape(self.depth, self.n_texts).sum(axis=0).tolist()
        return sums

    def slices(self, spans: EntitySpans) -> list[slice]:
        """Return the slice of each text's spans, which are sorted by text."""
        ends = np.searchsorted(spans.sequence, np.arange(self.n_texts), side="right").tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def _split(self, spans: EntitySpans, probabilities: Probabilities) -> list[ScoredSpans]:
        return [(select_spans(spans, part), probabilities[part]) for part in self.slices(spans)]


def best_combinations(paths_by_depth: Sequence[list[ScoredPath]], k: int) -> list[tuple[float, tuple[IntArray, ...]]]:
    """Return the k combinations of one label sequence for each depth with the highest sums of scores, best first.

    paths_by_depth (Sequence[list[ScoredPath]]): For each depth, the k best label sequences of a text.
    RETURNS (list[tuple[float, tuple[IntArray, ...]]]): The score of each combination, and its tags at each depth.
    """
    best: list[tuple[float, tuple[IntArray, ...]]] = [(0.0, ())]
    for paths in paths_by_depth:
        sums = (
            (score + path_score, (*tags, path_tags))
            for (score, tags), (path_score, path_tags) in itertools.product(best, paths)
        )
        best = heapq.nlargest(k, sums, key=lambda combination: combination[0])
    return best


def merge_depths(levels: Sequence[EntitySpans]) -> EntitySpans:
    """Return the entities of all depths, each once, sorted by text. Outer entities come before those inside."""
    return levels[0] if len(levels) == 1 else sort_unique(join_spans(levels))


def sort_unique(spans: EntitySpans) -> EntitySpans:
    """Return each different span once, sorted by text, with outer spans before those inside."""
    rows = np.unique(np.stack([spans.sequence, spans.start, -spans.end, spans.label]), axis=1)
    text, start, negative_end, label = rows
    return EntitySpans(text, start, -negative_end, label)


def decode_nothing(n_labels: int, n_texts: int, depth: int = 1) -> BatchDecoding:
    """Return the decoding of empty texts. It uses a CRF whose weights are 0, so the model need not be initialized."""
    n_open = 2 * n_labels + 1
    shapes = (n_open, n_open, (n_open, n_open), (2, 2 * n_labels))
    start, end, outside, inside = (np.zeros(shape, dtype=np.float32) for shape in shapes)
    emissions = np.empty((depth, 0, 4 * n_labels + 1), dtype=np.float32)
    return BatchDecoding(PathScorer((start, end, outside, inside)), emissions, [0] * n_texts, None)


def select_spans(spans: EntitySpans, rows: slice | IntArray | Mask) -> EntitySpans:
    """Select spans by index or mask."""
    return EntitySpans(*(column[rows] for column in spans))


def join_spans(parts: Sequence[EntitySpans]) -> EntitySpans:
    """Concatenate columns of spans."""
    return EntitySpans(*(np.concatenate(columns) for columns in zip(NO_SPANS, *parts, strict=True)))
