"""The CRF's answers about the emissions of some texts: best entities, k best, and probabilities, calibrated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from thinc.backends import get_array_ops
from thinc.types import Floats2d

from ..batching.sequences import ranges, starts
from ..crf.forward import ForwardBackward
from ..crf.marginals import EntitySpans, candidate_spans, entropy, span_marginals
from ..crf.scorer import PathScorer
from ..types import AnyFloats, BoolArray, IntArray
from .tags import Mask, join_masks

Probabilities = NDArray[np.float64]

CALIBRATION = "calibration"
"""Key of a component's `cfg`."""


@dataclass(frozen=True)
class Calibration:
    """What all scores of the CRF are divided by, and for each entity type a line through the log-odds that result.

    Both lines and temperature rise, so that of two readings, or two entities of a type, the surer one stays that.

    *Shape* slope, intercept: [n_labels]
    """

    temperature: float
    slope: Probabilities
    intercept: Probabilities

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> Calibration:
        """The calibration in a component's `cfg`; without one, probabilities stay the CRF's own."""
        stored = cfg.get(CALIBRATION)
        if not stored:
            return _uncalibrated(len(cfg["labels"]))
        lines = [stored.get("labels", {}).get(label, (1.0, 0.0)) for label in cfg["labels"]]
        slope, intercept = np.array(lines, dtype=np.float64).reshape(-1, 2).T
        return cls(float(stored.get("temperature", 1.0)), slope, intercept)

    def __post_init__(self) -> None:
        numbers = np.concatenate([[self.temperature], self.slope])
        if not (np.isfinite(numbers).all() and (numbers > 0).all() and np.isfinite(self.intercept).all()):
            raise ValueError(
                f"The calibration of tener_ner has the temperature {self.temperature} and the slopes "
                f"{self.slope.tolist()}: they must be numbers above 0. Run `spacy tener calibrate` again."
            )

    def calibrated(self, probabilities: Probabilities, label: IntArray) -> Probabilities:
        """Probabilities of entities at this temperature, put on the lines of their types. *Shape* [n], [n] to [n]"""
        return sigmoid(self.slope[label] * log_odds(probabilities) + self.intercept[label])

    def uncalibrated(self, probability: float) -> Probabilities:
        """What an entity of each type has, at this temperature, that gets this probability. *Shape* [n_labels]"""
        return sigmoid((log_odds(np.array(probability)) - self.intercept) / self.slope)


@lru_cache(maxsize=64)
def _uncalibrated(n_labels: int) -> Calibration:
    return Calibration(1.0, np.ones(n_labels), np.zeros(n_labels))


def log_odds(probabilities: Probabilities) -> Probabilities:
    """-inf for 0 and inf for 1, which stay what they are."""
    inside = np.clip(probabilities, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        return np.log(inside) - np.log1p(-inside)


def sigmoid(scores: Probabilities) -> Probabilities:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-scores))


class Rivals(NamedTuple):
    """Spans that exclude an entity, one per position of three parallel columns."""

    entity: IntArray
    """Which entity."""
    spans: EntitySpans
    probability: Probabilities


@dataclass(frozen=True)
class Decoding:
    """The emissions of some texts joined, [N, n_tags], and the tags that the CRF may choose, [N, n_tags] or all."""

    crf: PathScorer
    emissions: AnyFloats
    lengths: list[int]
    allowed: Mask | None
    calibration: Calibration

    @classmethod
    def of(
        cls, crf: PathScorer, scores: list[Floats2d], masks: Sequence[Mask | None], calibration: Calibration
    ) -> Decoding:
        """scores, masks: of each text. *Shape* [n, n_tags]"""
        lengths = [len(part) for part in scores]
        ops = get_array_ops(scores[0])
        emissions = scores[0] if len(scores) == 1 else ops.xp.concatenate(scores)
        allowed = join_masks(masks, lengths, crf.layout.n_tags)
        return cls(crf, ops.to_numpy(emissions), lengths, allowed, calibration)

    @cached_property
    def offsets(self) -> IntArray:
        """Where each text begins."""
        return starts(np.asarray(self.lengths, dtype=np.int64))

    @cached_property
    def passes(self) -> ForwardBackward:
        return self.crf.passes(self.emissions, self.lengths, self.allowed, temperature=self.calibration.temperature)

    def best(self) -> EntitySpans:
        """The entities of the best reading of each text, in order."""
        start, end, label = self.crf.layout.decode(self.crf.decode(self.emissions, self.lengths, self.allowed))
        text = np.repeat(np.arange(len(self.lengths)), self.lengths)[start]
        return EntitySpans(text, start - self.offsets[text], end - self.offsets[text], label)

    def per_text(self, spans: EntitySpans) -> Iterator[slice]:
        """Of spans in the order of their texts, those of each text."""
        ends = np.searchsorted(spans.sequence, np.arange(len(self.lengths)), side="right").tolist()
        return (slice(start, end) for start, end in zip([0, *ends], ends, strict=False))

    def probabilities(self, spans: EntitySpans) -> Probabilities:
        """How probable each span is as one entity. *Shape* [n_spans]"""
        return self.calibration.calibrated(
            span_marginals(self.passes, spans).astype(np.float64, copy=False), spans.label
        )

    def probabilities_of_few(self, spans: EntitySpans) -> Probabilities:
        """The same, quicker as long as nothing else is asked of the texts. *Shape* [n_spans]"""
        if not spans.label.size:
            return np.zeros(0)
        found = self.crf.span_probabilities(
            self.emissions, self.lengths, spans, self.allowed, temperature=self.calibration.temperature
        )
        return self.calibration.calibrated(found.astype(np.float64, copy=False), spans.label)

    def kbest(self, k: int) -> list[list[tuple[float, EntitySpans]]]:
        """Up to k readings of each text, best first: the logarithm of their probability, and their entities."""
        found = self.crf.kbest(self.emissions.astype(np.float64), self.lengths, k, self.allowed)
        log_z = self.passes.log_partition().tolist()
        return [
            [(score / self.calibration.temperature - total, self._entities(text, tags)) for score, tags in paths]
            for text, (paths, total) in enumerate(zip(found, log_z, strict=True))
        ]

    def _entities(self, text: int, tags: IntArray) -> EntitySpans:
        start, end, label = self.crf.layout.decode(tags)
        return EntitySpans(np.full(start.size, text), start, end, label)

    def entropy(self) -> list[float]:
        """Of the distribution over all readings of each text, in nats."""
        values: list[float] = entropy(self.passes).tolist()
        return values

    def candidates(self, minimum: float) -> tuple[EntitySpans, Probabilities]:
        """All spans, in no order, that are entities at least so probably, some others, and how probably."""
        spans = candidate_spans(self.passes, self.calibration.uncalibrated(minimum))
        return spans, self.probabilities(spans)

    def outside(self) -> list[Probabilities]:
        """How probable it is that each unit lies in no entity. *Shape* [n] for each text"""
        column = self.passes.marginals()[:, self.crf.layout.outside].astype(np.float64)
        return np.split(column, np.cumsum(self.lengths)[:-1])

    def share(self, masks: Sequence[Mask]) -> list[float]:
        """How probable the readings of each text are together in which each unit has one of the masks' tags.

        masks: of each text. *Shape* [n, n_tags]
        """
        agreeing = np.concatenate(masks) if self.allowed is None else np.concatenate(masks) & self.allowed
        passes = self.crf.passes(self.emissions, self.lengths, agreeing, temperature=self.calibration.temperature)
        shares = np.exp(passes.log_partition() - self.passes.log_partition())
        values: list[float] = np.nan_to_num(shares).clip(0.0, 1.0).tolist()
        return values

    def rivals(self, entities: EntitySpans, n: int, minimum: float) -> Rivals:
        """For each entity the n most probable of all other spans that share a unit with it, most probable first.

        entities: without overlap, in order.
        minimum: only spans that are at least so probable.
        """
        spans, probability = self.candidates(minimum)
        owner, span = self._overlaps(entities, spans)
        other = (probability[span] >= minimum) & ~_same(_rows(entities, owner), _rows(spans, span))
        owner, span = owner[other], span[other]
        order = np.lexsort((-probability[span], owner))
        owner, span = owner[order], span[order]
        rank = np.arange(owner.size) - np.searchsorted(owner, owner)
        first = rank < n
        return Rivals(owner[first], _rows(spans, span[first]), probability[span[first]])

    def _overlaps(self, entities: EntitySpans, spans: EntitySpans) -> tuple[IntArray, IntArray]:
        """Every pair of an entity and a span that share a unit, as their indices."""
        begins, ends = self._edges(entities)
        openings, stops = self._edges(spans)
        first = np.searchsorted(ends, openings, side="right")
        counts = np.searchsorted(begins, stops, side="left") - first
        return ranges(first, counts), np.repeat(np.arange(counts.size), counts)

    def _edges(self, spans: EntitySpans) -> tuple[IntArray, IntArray]:
        """Start and end of each span in the joined texts."""
        offset = self.offsets[spans.sequence]
        return spans.start + offset, spans.end + offset


def _rows(spans: EntitySpans, index: IntArray) -> EntitySpans:
    return EntitySpans(*(column[index] for column in spans))


def _same(left: EntitySpans, right: EntitySpans) -> BoolArray:
    """Where two columns of spans have the same edges and label."""
    same: BoolArray = (left.start == right.start) & (left.end == right.end) & (left.label == right.label)
    return same


def joined(spans: Sequence[EntitySpans]) -> EntitySpans:
    none = EntitySpans(*(np.empty(0, dtype=np.int64) for _ in EntitySpans._fields))
    return EntitySpans(*(np.concatenate(columns) for columns in zip(none, *spans, strict=True)))
