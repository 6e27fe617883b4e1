"""Decoding by a CRF: best entities, k best paths and exact probabilities of a batch of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..batching.sequences import starts
from ..crf.forward import ForwardBackward
from ..crf.marginals import EntitySpans, entropy, probable_spans, span_marginals
from ..crf.scorer import PathScorer
from ..types import AnyFloats, IntArray
from .tags import Mask

Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class Decoding:
    """A CRF and the emissions of a batch of texts.

    emissions: Of all texts, joined. *Shape* [N, n_tags]
    allowed: The tags that the CRF may choose; None for all. *Shape* [N, n_tags]
    temperature: Divisor of all scores of the CRF in probabilities. The best path does not depend on it.
    """

    crf: PathScorer
    emissions: AnyFloats
    lengths: list[int]
    allowed: Mask | None
    temperature: float = 1.0

    @cached_property
    def offsets(self) -> IntArray:
        """First unit of each text in the joined emissions."""
        return starts(np.asarray(self.lengths, dtype=np.int64))

    @cached_property
    def passes(self) -> ForwardBackward:
        return self.crf.passes(self.emissions, self.lengths, self.allowed, temperature=self.temperature)

    def best(self) -> EntitySpans:
        """Return the entities of the best path of each text, in order."""
        start, end, label = self.crf.layout.decode(self.crf.decode(self.emissions, self.lengths, self.allowed))
        text = np.repeat(np.arange(len(self.lengths)), self.lengths)[start]
        return EntitySpans(text, start - self.offsets[text], end - self.offsets[text], label)

    def per_text(self, spans: EntitySpans) -> Iterator[slice]:
        """Return the slice of each text's spans. The spans are sorted by text."""
        ends = np.searchsorted(spans.sequence, np.arange(len(self.lengths)), side="right").tolist()
        return (slice(start, end) for start, end in zip([0, *ends], ends, strict=False))

    def probabilities(self, spans: EntitySpans) -> Probabilities:
        """Return the marginal probability that each span is an entity. *Shape* [n_spans]"""
        if not spans.label.size:
            return np.zeros(0)
        return span_marginals(self.passes, spans).astype(np.float64, copy=False)

    def k_best(self, k: int) -> list[list[tuple[float, EntitySpans]]]:
        """Return the k best paths of each text, or fewer, best first: each one's log probability and entities."""
        found = self.crf.k_best(self.emissions.astype(np.float64), self.lengths, k, self.allowed)
        log_z = self.passes.log_partition().tolist()
        return [
            [(score / self.temperature - total, self._entities(text, tags)) for score, tags in paths]
            for text, (paths, total) in enumerate(zip(found, log_z, strict=True))
        ]

    def _entities(self, text: int, tags: IntArray) -> EntitySpans:
        start, end, label = self.crf.layout.decode(tags)
        return EntitySpans(np.full(start.size, text), start, end, label)

    def entropy(self) -> list[float]:
        """Return the entropy of the distribution over all paths of each text, in nats."""
        values: list[float] = entropy(self.passes).tolist()
        return values

    def candidates(self, minimum: float) -> tuple[EntitySpans, Probabilities]:
        """Return all spans whose probability is at least `minimum`, in no order, and their probabilities."""
        spans, probability = probable_spans(self.passes, minimum)
        return spans, probability.astype(np.float64, copy=False)

    def outside(self) -> list[Probabilities]:
        """Return the probability that each unit is in no entity, and that none goes on from the unit before it.

        *Shape* [n, 2] for each text
        """
        layout, marginals = self.crf.layout, self.passes.marginals().astype(np.float64)
        parted = 1.0 - marginals[:, layout.continuers].sum(axis=1)
        columns = np.stack([marginals[:, layout.outside], parted.clip(0.0, 1.0)], axis=1)
        return np.split(columns, np.cumsum(self.lengths)[:-1])

    def share(self, masks: Sequence[Mask]) -> list[float]:
        """Return, for each text, the total probability of the paths that its mask allows.

        masks: *Shape* [n, n_tags] for each text
        """
        agreeing = np.concatenate(masks) if self.allowed is None else np.concatenate(masks) & self.allowed
        passes = self.crf.passes(self.emissions, self.lengths, agreeing, temperature=self.temperature)
        shares = np.exp(passes.log_partition() - self.passes.log_partition())
        values: list[float] = np.nan_to_num(shares).clip(0.0, 1.0).tolist()
        return values

    def rivals(self, entities: EntitySpans, n: int, minimum: float) -> tuple[EntitySpans, Probabilities, list[int]]:
        """Return the n most probable spans that share a unit with each entity, the most probable first.

        minimum: Minimum probability of a span.
        RETURNS: The rivals of all entities, joined, their probabilities, and the number of rivals of each entity.
        """
        spans, probability = self.candidates(minimum)
        opening, stop = (self.offsets[spans.sequence] + edge for edge in (spans.start, spans.end))
        start, end = (self.offsets[entities.sequence] + edge for edge in (entities.start, entities.end))
        chosen = []
        for first, last, label in zip(start.tolist(), end.tolist(), entities.label.tolist(), strict=True):
            same = (opening == first) & (stop == last) & (spans.label == label)
            overlapping = np.flatnonzero((opening < last) & (stop > first) & ~same)
            chosen.append(overlapping[np.argsort(-probability[overlapping], kind="stable")[:n]])
        rows = np.concatenate([np.empty(0, dtype=np.int64), *chosen])
        return EntitySpans(*(column[rows] for column in spans)), probability[rows], [own.size for own in chosen]


def joined(spans: Sequence[EntitySpans]) -> EntitySpans:
    """Concatenate columns of spans."""
    none = EntitySpans(*(np.empty(0, dtype=np.int64) for _ in EntitySpans._fields))
    return EntitySpans(*(np.concatenate(columns) for columns in zip(none, *spans, strict=True)))
