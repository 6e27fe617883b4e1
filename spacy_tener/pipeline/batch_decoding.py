"""Decode a batch of texts with the CRF: the best entities, the k best sets of entities, and probabilities.

The results refer to texts, units and labels by their indices. A unit is a token or a character. `decoding.py` converts
the results for a single Doc to entities with character offsets and labels.

A model for nested entities has a `depth` above 1. It computes separate emission scores for each of `depth` tag
sequences. The index of a tag sequence is called its level. In 北京大学医学院, level 0 contains 北京大学医学院, level 1
contains 北京, the innermost entity, and level 2 contains 北京大学 (see `nesting.py`). Names in this module that contain
`depth` refer to these levels.

The entities at one level do not overlap. The CRF decodes the levels independently, so their probabilities can be
multiplied. The CRF's input consists of all texts at level 0, followed by all texts at level 1, and so on.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..crf.crf_numpy import CRFPredictor
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
# With nested entities, several tag sequences can contain the same set of entities. To find k sets, `k_best` searches
# for k tag sequences, then for 4 * k and 16 * k until there are enough sets.
_SEQUENCES_PER_SET = (1, 4, 16)


class RankedEntities(NamedTuple):
    """One of a text's k best sets of entities.

    log_probability (float): The set's log probability.
    spans (EntitySpans): The entities, in text order.
    probabilities (Probabilities): Marginal probability of each entity, over all possible sets. *Shape:* (entities,)
    """

    log_probability: float
    spans: EntitySpans
    probabilities: Probabilities


@dataclass(frozen=True, eq=False, repr=False)
class BatchDecoding:
    """The entities and probabilities that the CRF computes for a batch of texts.

    Each result is computed on first access, for all texts in the batch. In all results, `EntitySpans.sequence` is the
    text index. A unit is a token or a character.

    crf (CRFPredictor): The CRF.
    emissions (AnyFloats): Emission scores for all texts, concatenated. *Shape:* (depth, units, tags)
    lengths (list[int]): Number of units in each text.
    allowed (Mask | None): Mask that marks the allowed tags for each unit. None allows all tags. *Shape:* (depth, units,
        tags)
    temperature (float): Temperature for calibrated probabilities. All scores are divided by it. The best tag sequence
        does not depend on the temperature.
    existing_rows (frozenset[tuple[int, int, int, int]]): For a model for nested entities, the existing entities in the
        texts, as text index, start unit, end unit and label index. They are part of every set of entities, even if the
        tag sequence does not contain them.
    _k_best (dict[int, list[list[RankedEntities]]]): Cache for `k_best`. The key is k.
    _candidates (dict[float, list[ScoredSpans]]): Cache for `candidates`. The key is the minimum probability.
    """

    crf: CRFPredictor
    emissions: AnyFloats
    lengths: list[int]
    allowed: Mask | None
    temperature: float = 1.0
    existing_rows: frozenset[tuple[int, int, int, int]] = frozenset()
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
        """Index of each text's first unit in the concatenated texts. *Shape:* (texts,)"""
        return starts(np.asarray(self.lengths, dtype=np.int64))

    @cached_property
    def text_of_unit(self) -> IntArray:
        """Index of the text that contains each unit. *Shape:* (units,)"""
        return np.repeat(np.arange(self.n_texts), self.lengths)

    @cached_property
    def sequences(self) -> IntArray:
        """Index of the CRF's input sequence for each level and text. *Shape:* (depth, texts)"""
        return np.arange(self.depth * self.n_texts).reshape(self.depth, self.n_texts)

    @property
    def _sequence_emissions(self) -> AnyFloats:
        """Emission scores for all texts at all levels, concatenated. *Shape:* (depth * units, tags)"""
        return self.emissions.reshape(-1, self.crf.layout.n_tags)

    @property
    def _sequence_lengths(self) -> list[int]:
        return self.lengths * self.depth

    @property
    def _sequence_allowed(self) -> Mask | None:
        return None if self.allowed is None else self.allowed.reshape(-1, self.crf.layout.n_tags)

    @cached_property
    def forward_backward(self) -> ForwardBackward:
        """Forward and backward scores for all texts at all levels."""
        return self.crf.forward_backward(
            self._sequence_emissions, self._sequence_lengths, self._sequence_allowed, temperature=self.temperature
        )

    @cached_property
    def best(self) -> EntitySpans:
        """The entities in each text's best tag sequence.

        They are sorted by text and position. Outer entities come before the entities that they contain.
        """
        tags = self.crf.decode(self._sequence_emissions, self._sequence_lengths, self._sequence_allowed)
        return merge_depths([self._entities(tags_at_depth) for tags_at_depth in tags.reshape(self.depth, -1)])

    def _entities(self, tags: IntArray) -> EntitySpans:
        """Convert the tags of all texts at one level to entities.

        tags (IntArray): The tags for all texts, concatenated. *Shape:* (units,)
        """
        start, end, label = self.crf.layout.decode(tags)
        text = self.text_of_unit[start]
        offset = self.offsets[text]
        return EntitySpans(text, start - offset, end - offset, label)

    @cached_property
    def best_probabilities(self) -> Probabilities:
        """Marginal probability of each entity in `best`. *Shape:* (entities,)"""
        return self.probabilities(self.best)

    @cached_property
    def best_by_text(self) -> list[ScoredSpans]:
        """The entities in `best` and their marginal probabilities, as a separate list item for each text."""
        return self._split(self.best, self.best_probabilities)

    def probabilities(self, spans: EntitySpans) -> Probabilities:
        """Return the marginal probability of each span.

        This is the probability that the span is an entity with its label, at any level.

        spans (EntitySpans): Labelled spans, which do not have to be in `best`.
        RETURNS (Probabilities): *Shape:* (spans,)
        """
        probabilities = np.zeros(spans.label.size)
        for sequences in self.sequences:
            at_depth = span_marginals(self.forward_backward, spans._replace(sequence=sequences[spans.sequence])).clip(
                0.0, 1.0
            )
            # P(A or B) = P(A) + (1 - P(A)) P(B), where A is an entity at the previous levels, and B at this level. The
            # levels are independent.
            probabilities += (1.0 - probabilities) * at_depth
        return probabilities

    def empty_probabilities(self, text: int, starts: IntArray, ends: IntArray) -> Probabilities:
        """Return the probability that all units in a segment are O, at all levels.

        text (int): Index of the text that contains the segments.
        starts (IntArray): Each segment's first unit in the text. *Shape:* (segments,)
        ends (IntArray): Each segment's last unit in the text, plus 1. *Shape:* (segments,)
        RETURNS (Probabilities): *Shape:* (segments,)
        """
        probabilities = np.ones(starts.size)
        if not starts.size:
            return probabilities
        for sequence in self.sequences[:, text]:
            probabilities *= outside_marginals(self.forward_backward, np.full(starts.size, sequence), starts, ends)
        return probabilities

    def candidates(self, minimum: float) -> list[ScoredSpans]:
        """Return all possible entities in each text whose marginal probability is at least `minimum`.

        They are in no particular order.
        """
        if minimum not in self._candidates:
            # Union bound: if the probability of a span is at least `minimum`, the probability at one of the levels is
            # at least `minimum / depth`.
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
        """Return the k best sets of entities for each text.

        The sets are ranked by their best tag sequence, so the first set is the same as in `best`. With nested entities,
        several tag sequences can contain the same set, because an entity can be at different levels. The probabilities
        of these tag sequences are summed. Since at most `16 * k` tag sequences are searched, the sum is a lower bound
        for the set's probability. So a set can be more probable than a set before it.

        k (int): Maximum number of sets per text. A short text can have fewer possible sets.
        RETURNS (list[list[RankedEntities]]): The sets for each text, best first.
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
        """Return up to k different sets of entities for each text, with their log probabilities."""
        emissions = self._sequence_emissions.astype(np.float64)
        ranked: list[list[tuple[EntitySpans, float]]] = []
        for n_sequences in [k] if self.depth == 1 else [k * n for n in _SEQUENCES_PER_SET]:
            paths = self.crf.k_best(emissions, self._sequence_lengths, n_sequences, self._sequence_allowed)
            ranked, is_complete = [], True
            for text, sequences in enumerate(self.sequences.T.tolist()):
                combinations = best_combinations([paths[sequence] for sequence in sequences], n_sequences)
                sets = self._merge_by_set(text, combinations)
                ranked.append(sets[:k])
                # A text is complete if it has k sets, or if it has no further tag sequences.
                is_complete &= len(sets) >= k or len(combinations) < n_sequences
            if is_complete:
                break
        return ranked

    def _merge_by_set(
        self, text: int, combinations: Sequence[tuple[float, tuple[IntArray, ...]]]
    ) -> list[tuple[EntitySpans, float]]:
        """Merge tag sequences that contain the same set of entities, and sum their probabilities.

        text (int): Index of the text.
        combinations (Sequence[tuple[float, tuple[IntArray, ...]]]): Each tag sequence's score, and its tags at each
            level, best first.
        RETURNS (list[tuple[EntitySpans, float]]): The sets with their log probabilities, ranked by their best tag
            sequence.
        """
        sets: dict[frozenset[tuple[int, ...]], tuple[EntitySpans, float]] = {}
        for score, tags_by_depth in combinations:
            log_probability = score / self.temperature - self.log_partitions[text]
            levels = [self.crf.layout.decode(tags) for tags in tags_by_depth]
            spans = merge_depths([EntitySpans(np.full(start.size, text), start, *rest) for start, *rest in levels])
            key = frozenset(zip(*(column.tolist() for column in spans), strict=True)) - self.existing_rows
            if key in sets:
                log_probability = float(np.logaddexp(sets[key][1], log_probability))
            sets[key] = spans, log_probability
        return list(sets.values())

    @cached_property
    def outside(self) -> list[Probabilities]:
        """Probabilities that units and the gaps before them are outside entities, for each text. *Shape:* (units, 2)
        each

        The first column is the probability that the unit is O at all levels. The second column is the probability that
        no entity contains both the unit and the previous unit.
        """
        layout, marginals = self.crf.layout, self.forward_backward.marginals().astype(np.float64)
        p_outside = marginals[:, layout.outside]
        # An entity continues from the previous unit if the unit's tag is I or E.
        p_boundary = (1.0 - marginals[:, layout.continuers].sum(axis=1)).clip(0.0, 1.0)
        by_depth = np.stack([p_outside, p_boundary], axis=1).reshape(self.depth, -1, 2)
        return np.split(by_depth.prod(axis=0), self.offsets[1:])

    @cached_property
    def entropies(self) -> list[float]:
        """Entropy of the distribution over each text's possible tag sequences, in nats."""
        return self._sum_depths(entropy(self.forward_backward))

    @cached_property
    def log_partitions(self) -> list[float]:
        """Each text's log-partition function, summed over all levels."""
        return self._sum_depths(self.forward_backward.log_partition())

    def _sum_depths(self, values: AnyFloats) -> list[float]:
        """Sum each text's values over all levels.

        values (AnyFloats): A value for each text at each level. *Shape:* (depth * texts,)
        RETURNS (list[float]): *Shape:* (texts,)
        """
        sums: list[float] = values.reshape(self.depth, self.n_texts).sum(axis=0).tolist()
        return sums

    def slices(self, spans: EntitySpans) -> list[slice]:
        """Return the slice of each text's spans in an array that contains the spans for all texts.

        spans (EntitySpans): The spans in all texts, sorted by text.
        """
        ends = np.searchsorted(spans.sequence, np.arange(self.n_texts), side="right").tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def _split(self, spans: EntitySpans, probabilities: Probabilities) -> list[ScoredSpans]:
        return [(select_spans(spans, part), probabilities[part]) for part in self.slices(spans)]


def best_combinations(paths_by_depth: Sequence[list[ScoredPath]], k: int) -> list[tuple[float, tuple[IntArray, ...]]]:
    """Return the k best combinations of tag sequences, with one tag sequence for each level.

    The score of a combination is the sum of its tag sequences' scores.

    paths_by_depth (Sequence[list[ScoredPath]]): For each level, a text's k best tag sequences.
    k (int): Maximum number of combinations.
    RETURNS (list[tuple[float, tuple[IntArray, ...]]]): Each combination's score, and its tags at each level, best
        first.
    """
    best: list[tuple[float, tuple[IntArray, ...]]] = [(0.0, ())]
    for paths in paths_by_depth:
        sums = (
            (score + path_score, (*tags, path_tags))
            for (score, tags), (path_score, path_tags) in itertools.product(best, paths)
        )
        # Scores are summed over levels, so only the k best combinations of the previous levels have to be extended.
        best = heapq.nlargest(k, sums, key=lambda combination: combination[0])
    return best


def merge_depths(levels: Sequence[EntitySpans]) -> EntitySpans:
    """Merge the entities at all levels, without duplicates.

    They are sorted by text and position. Outer entities come before the entities that they contain.
    """
    return levels[0] if len(levels) == 1 else sort_unique(join_spans(levels))


def sort_unique(spans: EntitySpans) -> EntitySpans:
    """Sort spans by text and position, and remove duplicates.

    Outer spans come before the spans that they contain.
    """
    # `np.unique` also sorts. With negative ends, the longer of two spans with the same start comes first.
    rows = np.unique(np.stack([spans.sequence, spans.start, -spans.end, spans.label]), axis=1)
    text, start, negative_end, label = rows
    return EntitySpans(text, start, -negative_end, label)


def decode_nothing(n_labels: int, n_texts: int, depth: int = 1) -> BatchDecoding:
    """Return a `BatchDecoding` for empty texts.

    All weights of its CRF are 0, so that the model does not have to be initialized.
    """
    n_open = 2 * n_labels + 1
    shapes = (n_open, n_open, (n_open, n_open), (2, 2 * n_labels))
    start, end, outside, inside = (np.zeros(shape, dtype=np.float32) for shape in shapes)
    emissions = np.empty((depth, 0, 4 * n_labels + 1), dtype=np.float32)
    return BatchDecoding(CRFPredictor((start, end, outside, inside)), emissions, [0] * n_texts, None)


def select_spans(spans: EntitySpans, rows: slice | IntArray | Mask) -> EntitySpans:
    """Select spans by slice, index or mask."""
    return EntitySpans(*(column[rows] for column in spans))


def join_spans(parts: Sequence[EntitySpans]) -> EntitySpans:
    """Concatenate several `EntitySpans`."""
    return EntitySpans(*(np.concatenate(columns) for columns in zip(NO_SPANS, *parts, strict=True)))
