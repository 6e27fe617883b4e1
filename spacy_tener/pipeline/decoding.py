"""What the CRF computes from the emissions of texts: best entities, k best readings, and exact probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span
from spacy.training import Example

from ..crf.decode import ScoredPath
from ..crf.forward import ForwardBackward
from ..crf.marginals import EntitySpans, entropy, probable_spans, span_marginals
from ..crf.scorer import PathScorer
from ..processes import cached_property
from ..sequences import ranges, starts
from ..types import AnyFloats, BoolArray, IntArray
from .entities import EntityOffsets, FoundEntity, offsets_of
from .learning.targets import make_target
from .nesting import split_reference
from .tags import Mask, agreeing_tags, index_labels
from .units import DocView

Probabilities = NDArray[np.float64]
ScoredSpans = tuple[EntitySpans, Probabilities]
"""Spans and their probabilities. *Shape:* (spans,)"""
NO_SPANS = EntitySpans(*np.empty((4, 0), dtype=np.int64))
ScoredReading = tuple[float, EntitySpans, Probabilities]
"""The log-probability of a path, its entities, and their marginal probabilities. *Shape:* (entities,)"""


@dataclass(frozen=True)
class Reading:
    """One possible set of entities of a whole text: a path of the CRF.

    entities (list[FoundEntity]): The probability of each is its marginal over all readings, not of this one alone.
    log_probability (float): Also finite for a long text, where `probability` underflows to 0.
    """

    probability: float
    entities: list[FoundEntity]
    log_probability: float


@dataclass(frozen=True)
class Marginals:
    """Marginal probabilities over all readings of a text.

    entities (list[FoundEntity]): Spans that may be entities, including those that exclude each other.
    outside (Probabilities): Probability that each character of `doc.text` is in no entity. *Shape:* (characters,)
    """

    entities: list[FoundEntity]
    outside: Probabilities


@dataclass(frozen=True, eq=False)
class BatchDecoding:
    """A CRF and the emissions of a batch of texts. Results are computed for all texts together, when first needed.

    With a depth above 1 (entities within entities), each text is one sequence for each depth: those of all texts at
    the first depth come first. Depths are independent given the emissions, which makes all probabilities exact.

    emissions (AnyFloats): Of all sequences, joined. *Shape:* (units, tags)
    lengths (list[int]): Units of each sequence.
    allowed (Mask | None): The tags that the CRF may choose; None for all. *Shape:* (units, tags)
    temperature (float): Divisor of all scores of the CRF in probabilities. The best path does not depend on it.
    preset (BatchDecoding | None): The same batch, where the entities that the Docs have are kept; None if it is this.
    depth (int): How deep entities may be nested.
    labels (tuple[str, ...]): The entity types of the CRF, and further ones of forced entities.
    forced (EntitySpans): The entities that lists decide. Those of further types are outside for the CRF.
    blocked (Collection[tuple[int, int, int, int]]): Spans in no result: text, start, end and label, -1 for all.
    """

    crf: PathScorer
    emissions: AnyFloats
    lengths: list[int]
    allowed: Mask | None
    temperature: float = 1.0
    preset: BatchDecoding | None = None
    depth: int = 1
    labels: tuple[str, ...] = ()
    forced: EntitySpans = NO_SPANS
    blocked: Collection[tuple[int, int, int, int]] = ()
    _readings: dict[int, list[list[ScoredReading]]] = field(default_factory=dict, init=False)
    _candidates: dict[float, list[ScoredSpans]] = field(default_factory=dict, init=False)

    @cached_property
    def with_preset(self) -> BatchDecoding:
        """The same batch, where the entities that the Docs have are kept."""
        return self.preset or self

    @property
    def n_texts(self) -> int:
        return len(self.lengths) // self.depth

    @cached_property
    def offsets(self) -> IntArray:
        """First unit of each sequence in the joined emissions. *Shape:* (depth * texts,)"""
        return starts(np.asarray(self.lengths, dtype=np.int64))

    @cached_property
    def passes(self) -> ForwardBackward:
        return self.crf.passes(self.emissions, self.lengths, self.allowed, temperature=self.temperature)

    @cached_property
    def best(self) -> EntitySpans:
        """The entities of the best path of each text, in order, those around others first."""
        spans = self.best_of_sequences
        return self._with_further(spans if self.depth == 1 else self._join_depths(spans))

    @cached_property
    def best_of_sequences(self) -> EntitySpans:
        """The entities of the best path of each sequence, in order."""
        start, end, label = self.crf.layout.decode(self.crf.decode(self.emissions, self.lengths, self.allowed))
        sequence = np.repeat(np.arange(len(self.lengths)), self.lengths)[start]
        return EntitySpans(sequence, start - self.offsets[sequence], end - self.offsets[sequence], label)

    @cached_property
    def best_probabilities(self) -> Probabilities:
        """The probability of each of the best entities. *Shape:* (entities,)"""
        return self.probabilities(self.best)

    @cached_property
    def best_by_text(self) -> list[ScoredSpans]:
        """The best entities of each text, and their probabilities."""
        return self._split(self.best, self.best_probabilities)

    @cached_property
    def entropies(self) -> list[float]:
        """The entropy of the distribution over all paths of each text, in nats."""
        return self._add_depths(entropy(self.passes))

    def slices(self, spans: EntitySpans) -> list[slice]:
        """Return the slice of each text's spans, which are sorted by text."""
        ends = np.searchsorted(spans.sequence, np.arange(self.n_texts), side="right").tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def probabilities(self, spans: EntitySpans) -> Probabilities:
        """Return the marginal probability that each span is an entity, at any depth. *Shape:* (spans,)"""
        either = np.zeros(spans.label.size)
        is_further = spans.label >= self.crf.layout.n_labels
        if is_further.any():
            certain = set(zip(*(column.tolist() for column in self.forced), strict=True))
            rows = zip(*(column.tolist() for column in spans), strict=True)
            either = np.array([float(row in certain) for row in rows])
            either[~is_further] = self.probabilities(select_spans(spans, np.flatnonzero(~is_further)))
            return either
        if not spans.label.size:
            return either
        for level in range(self.depth):
            at_depth = spans._replace(sequence=spans.sequence + level * self.n_texts)
            either += (1.0 - either) * span_marginals(self.passes, at_depth)
        either[self.is_blocked(spans)] = 0.0
        return either

    def is_blocked(self, spans: EntitySpans) -> BoolArray:
        """Return a mask of the spans of texts that are blocked."""
        if not self.blocked:
            return np.zeros(spans.label.size, dtype=bool)
        rows = zip(*(column.tolist() for column in spans), strict=True)
        return np.array([row in self.blocked or (*row[:3], -1) in self.blocked for row in rows], dtype=bool)

    @cached_property
    def _further(self) -> EntitySpans:
        """The forced entities of labels that the CRF lacks."""
        return select_spans(self.forced, np.flatnonzero(self.forced.label >= self.crf.layout.n_labels))

    def _with_further(self, spans: EntitySpans, text: int | None = None) -> EntitySpans:
        """Add the forced entities of further labels, of all texts or of one, to spans that are sorted, and stay so."""
        if not self._further.label.size:
            return spans
        further = self._further
        if text is not None:
            further = select_spans(further, np.flatnonzero(further.sequence == text))
        joined = join_spans([spans, further])
        return select_spans(joined, np.lexsort((-joined.end, joined.start, joined.sequence)))

    def readings(self, k: int) -> list[list[ScoredReading]]:
        """Return the k best paths of each text, best first; fewer where there are fewer."""
        if k not in self._readings:
            paths = self.crf.k_best(self.emissions.astype(np.float64), self.lengths, k, self.allowed)
            found = [self._best_sums(paths[text :: self.n_texts], k) for text in range(self.n_texts)]
            spans = [[self._entities(text, tags) for _, tags in sums] for text, sums in enumerate(found)]
            probabilities, end = self.probabilities(join_spans(list(itertools.chain(*spans)))), 0
            readings: list[list[ScoredReading]] = [[] for _ in found]
            for text, sums in enumerate(found):
                for (score, _), path_spans in zip(sums, spans[text], strict=True):
                    start, end = end, end + path_spans.label.size
                    if self.is_blocked(path_spans).any():
                        continue
                    log_probability = score / self.temperature - self.log_partitions[text]
                    readings[text].append((log_probability, path_spans, probabilities[start:end]))
            self._readings[k] = readings
        return self._readings[k]

    def _best_sums(self, paths: Sequence[list[ScoredPath]], k: int) -> list[ScoredPath]:
        """Return the k best combinations of a path of each depth, with their tags joined."""
        best = paths[0]
        for inner in paths[1:]:
            sums = [
                (score + inner_score, np.concatenate([tags, inner_tags]))
                for (score, tags), (inner_score, inner_tags) in itertools.product(best, inner)
            ]
            best = sorted(sums, key=lambda path: -path[0])[:k]
        return best

    def _entities(self, text: int, tags: IntArray) -> EntitySpans:
        """Return the entities of a path of each depth."""
        start, end, label = self.crf.layout.decode(tags)
        if self.depth == 1:
            return self._with_further(EntitySpans(np.full(start.size, text), start, end, label), text)
        level = start // max(self.lengths[text], 1)
        sequence = text + level * self.n_texts
        first = level * self.lengths[text]
        return self._with_further(self._join_depths(EntitySpans(sequence, start - first, end - first, label)), text)

    def _join_depths(self, spans: EntitySpans) -> EntitySpans:
        """Return the spans of sequences as those of texts, each once, sorted: longer ones before those in them."""
        rows = np.stack([spans.sequence % self.n_texts, spans.start, -spans.end, spans.label])
        text, start, end, label = np.unique(rows, axis=1)
        return EntitySpans(text, start, -end, label)

    def _add_depths(self, values: AnyFloats) -> list[float]:
        """Return the sum over the sequences of each text. *Shape:* (depth * texts,)"""
        sums: list[float] = values.reshape(self.depth, self.n_texts).sum(axis=0).tolist()
        return sums

    def candidates(self, minimum: float) -> list[ScoredSpans]:
        """Return all spans of each text whose probability is at least `minimum`, in no order."""
        if minimum not in self._candidates:
            spans, probabilities = probable_spans(self.passes, minimum / self.depth)
            if self.depth > 1:
                spans = self._join_depths(spans)
                probabilities = self.probabilities(spans)
                kept = np.flatnonzero(probabilities >= minimum)
                spans, probabilities = select_spans(spans, kept), probabilities[kept]
            spans = join_spans([spans, self._further])
            probabilities = np.append(probabilities, np.ones(self._further.label.size))
            order = np.argsort(spans.sequence, kind="stable")
            order = order[~self.is_blocked(select_spans(spans, order))]
            sorted_probabilities = probabilities[order].astype(np.float64, copy=False)
            self._candidates[minimum] = self._split(select_spans(spans, order), sorted_probabilities)
        return self._candidates[minimum]

    def _split(self, spans: EntitySpans, probabilities: Probabilities) -> list[ScoredSpans]:
        return [(select_spans(spans, part), probabilities[part]) for part in self.slices(spans)]

    @cached_property
    def outside(self) -> list[Probabilities]:
        """The probability that each unit is in no entity, and that none goes on from the unit before it.

        *Shape:* (units, 2) for each text
        """
        layout, marginals = self.crf.layout, self.passes.marginals().astype(np.float64)
        parted = 1.0 - marginals[:, layout.continuers].sum(axis=1)
        columns = np.stack([marginals[:, layout.outside], parted.clip(0.0, 1.0)], axis=1)
        columns = columns.reshape(self.depth, -1, 2).prod(axis=0)
        first, sizes = (
            self.offsets[self._further.sequence] + self._further.start,
            self._further.end - self._further.start,
        )
        columns[ranges(first, sizes), 0] = 0.0
        columns[ranges(first + 1, sizes - 1), 1] = 0.0
        return np.split(columns, np.cumsum(self.lengths[: self.n_texts])[:-1])

    @cached_property
    def log_partitions(self) -> list[float]:
        """The logarithm of the sum over all paths of each text."""
        return self._add_depths(self.passes.log_partition())


@dataclass(frozen=True, eq=False)
class Decoding:
    """What the model says of one text, from one run over it: `pipe.decode(docs)` yields one for each Doc.

    Probabilities are exact. Entities that the Doc had are ignored; `with_preset` keeps them. Offsets are those of the
    text. Ask before tokens of the Doc are merged or split; nothing here changes it.

    view (DocView): The Doc as the model's units: its tokens or characters.
    labels (tuple[str, ...]): The entity types of the model, and further ones of forced words.
    batch (BatchDecoding): What was decoded together with this text.
    index (int): The position of this text in the batch.
    spans_key (str | None): The group of annotated entities that lie within others.
    """

    view: DocView
    labels: tuple[str, ...]
    batch: BatchDecoding
    index: int
    spans_key: str | None = None

    @property
    def doc(self) -> Doc:
        """The Doc that was decoded."""
        return self.view.doc

    @property
    def with_preset(self) -> Decoding:
        """The same text, where the entities that the Doc had are certain, as for `nlp.pipe`."""
        return replace(self, batch=self.batch.with_preset)

    @property
    def entities(self) -> list[FoundEntity]:
        """The entities of the best reading with their probabilities, in the order of the text."""
        return self._found(*self.batch.best_by_text[self.index])

    @property
    def forced(self) -> list[FoundEntity]:
        """The entities that a list decides, in the order of the text."""
        part = self.batch.slices(self.batch.forced)[self.index]
        spans = select_spans(self.batch.forced, part)
        return self._found(spans, np.ones(spans.label.size))

    @property
    def entropy(self) -> float:
        """How undecided the model is: the entropy of all readings, in nats; 0 if only one is possible."""
        return self.batch.entropies[self.index]

    @property
    def allowed(self) -> Mask:
        """The tags that the model may give to each unit at each depth. *Shape:* (depth * units, tags)"""
        if self.batch.allowed is None:
            return np.ones((len(self._rows), self.batch.crf.layout.n_tags), dtype=bool)
        return self.batch.allowed[self._rows]

    @property
    def _rows(self) -> IntArray:
        """The rows of this text in the batch. *Shape:* (depth * units,)"""
        first: IntArray = self.batch.offsets[self.index :: self.batch.n_texts, None]
        return (first + np.arange(len(self.view))).ravel()

    def probabilities(self, spans: Iterable[Span | EntityOffsets]) -> list[float]:
        """Return the probability that each span is an entity of its label.

        spans (Iterable[Union[Span, Tuple[int, int, str]]]): Spans of the Doc, or their start and end in characters of
            its text, and their label.
        RETURNS (List[float]): The probabilities; 0 for a span that the model cannot find: one that is not made of
            whole tokens in the view `tokens`, or whose label is not one of the model's.
        """
        offsets = [offsets_of(span) if isinstance(span, Span) else span for span in spans]
        size, rows = len(self.doc.text), dict[int, tuple[int, ...]]()
        for i, (start, end, label) in enumerate(offsets):
            if not 0 <= start < end <= size:
                raise ValueError(f"The span {start}, {end} does not lie in the Doc's {size} characters.")
            units = self.view.unit_span(start, end)
            if units and label in self.labels:
                rows[i] = (self.index, *units, self.labels.index(label))
        probabilities = np.zeros(len(offsets))
        columns = np.array(list(rows.values()), dtype=np.int64).reshape(-1, 4).T
        probabilities[list(rows)] = self.batch.probabilities(EntitySpans(*columns))
        return probabilities.tolist()

    def k_best(self, k: int = 5) -> list[Reading]:
        """Return the k most probable readings of the whole text, best first; fewer where there are fewer.

        k (int): Maximum number of readings.
        RETURNS (List[Reading]): The readings. An empty text has one, of no entities.
        """
        return [
            Reading(float(np.exp(log_probability)), self._found(spans, probabilities), log_probability)
            for log_probability, spans, probabilities in self.batch.readings(k)[self.index]
        ]

    def rivals(self, n: int = 3, minimum: float = 0.01) -> list[list[FoundEntity]]:
        """Return the alternatives to each entity: spans that share characters with it and are not found, with other
        edges, another label or both.

        n (int): Maximum number of rivals of an entity.
        minimum (float): Minimum probability of a rival, above 0. All spans of this probability are compared.
        RETURNS (List[List[FoundEntity]]): For each of `entities`, its rivals, most probable first.
        """
        _check_minimum(minimum, "a rival")
        spans, probabilities = self.batch.candidates(minimum)[self.index]
        best, _ = self.batch.best_by_text[self.index]
        found = set(zip(best.start.tolist(), best.end.tolist(), best.label.tolist(), strict=True))
        candidates = zip(spans.start.tolist(), spans.end.tolist(), spans.label.tolist(), strict=True)
        is_other = np.array([span not in found for span in candidates], dtype=bool)
        rivals = []
        for start, end in zip(best.start.tolist(), best.end.tolist(), strict=True):
            overlapping = np.flatnonzero((spans.start < end) & (spans.end > start) & is_other)
            chosen = overlapping[np.argsort(-probabilities[overlapping], kind="stable")[:n]]
            rivals.append(self._found(select_spans(spans, chosen), probabilities[chosen]))
        return rivals

    def marginals(self, minimum: float = 0.05) -> Marginals:
        """Return the probabilities of all possible entities, and that each character is in none.

        minimum (float): Minimum probability of an entity, above 0.
        RETURNS (Marginals): The possible entities, and the probability that each character is in none.
        """
        _check_minimum(minimum, "an entity")
        found = self._found(*self.batch.candidates(minimum)[self.index])
        return Marginals(found, _by_character(self.view, self.batch.outside[self.index]))

    def likelihood(self, reference: Doc) -> float:
        """Return the probability of a gold annotation as a whole: of all readings that agree with it.

        reference (Doc): The same text with gold entities, of labels that the component has. Tokens without annotation
            agree with every reading.
        RETURNS (float): 0 if the model has no such reading, as for an entity across a known sentence start.
        """
        return likelihoods([self], [reference])[0]

    def agreeing(self, reference: Doc) -> Mask:
        """Return the allowed tags that agree with a gold annotation, at each depth. *Shape:* (depth * units, tags)"""
        references = split_reference(reference, self.spans_key, self.batch.depth)
        labels = index_labels(self.labels[: self.batch.crf.layout.n_labels])
        targets = [make_target(Example(self.doc, part), self.view, labels, None) for part in references]
        tags = np.concatenate([target.tags for target in targets])
        return agreeing_tags(tags, None, self.batch.crf.layout) & self.allowed

    @property
    def emissions(self) -> AnyFloats:
        """The scores of tags at each depth. *Shape:* (depth * units, tags)"""
        return self.batch.emissions[self._rows]

    def _found(self, spans: EntitySpans, probabilities: Probabilities) -> list[FoundEntity]:
        columns = spans.start.tolist(), spans.end.tolist(), spans.label.tolist(), probabilities.tolist()
        return [
            FoundEntity(*self.view.char_span(start, end), self.labels[label], probability)
            for start, end, label, probability in zip(*columns, strict=True)
        ]


def likelihoods(decodings: Sequence[Decoding], references: Sequence[Doc]) -> list[float]:
    """Return `Decoding.likelihood` of several texts, by one pass of the CRF for each batch."""
    shares: list[float] = []
    pairs = zip(decodings, references, strict=True)
    for batch, group in itertools.groupby(pairs, lambda pair: pair[0].batch):
        texts = list(group)
        agreeing = np.concatenate([decoding.agreeing(reference) for decoding, reference in texts])
        emissions = np.concatenate([decoding.emissions for decoding, _ in texts])
        lengths = [len(decoding.view) for decoding, _ in texts for _ in range(batch.depth)]
        partitions = np.array([batch.log_partitions[decoding.index] for decoding, _ in texts])
        passes = batch.crf.passes(emissions, lengths, agreeing, temperature=batch.temperature)
        log_shares = passes.log_partition().reshape(len(texts), batch.depth).sum(axis=1)
        shares += np.nan_to_num(np.exp(log_shares - partitions)).clip(0.0, 1.0).tolist()
    return shares


def without_blocked(batch: BatchDecoding, blocked: Collection[tuple[int, int, int, int]]) -> BatchDecoding:
    """Return the decoding in which none of the blocked spans is found.

    Where the best path has one, its place is outside, or has an entity of another label.

    blocked (Collection[tuple[int, int, int, int]]): Text, start, end and label; -1 for all labels.
    """
    layout, n_texts = batch.crf.layout, batch.n_texts
    batch = replace(batch, blocked=blocked)
    while True:
        best = list(zip(*(column.tolist() for column in batch.best_of_sequences), strict=True))
        spans = [(*row, blocked_label) for row in best for blocked_label in (row[-1], -1)]
        found = [span for span in spans if (span[0] % n_texts, *span[1:3], span[-1]) in blocked]
        if not found:
            return batch
        allowed = np.ones(batch.emissions.shape, dtype=bool) if batch.allowed is None else batch.allowed.copy()
        for sequence, start, end, label, blocked_label in found:
            rows = np.arange(start, end) + batch.offsets[sequence]
            choice = np.zeros((len(rows), layout.n_tags), dtype=bool)
            choice[:, layout.outside] = True
            for other in {*range(layout.n_labels)} - {label} if blocked_label >= 0 else ():
                tags = layout.encode(np.array([0]), np.array([len(rows)]), np.array([other]), len(rows))
                choice[np.arange(len(rows)), tags] = True
            allowed[rows] &= choice
        batch = replace(batch, allowed=allowed)


def decode_nothing(labels: Sequence[str], n_texts: int, depth: int = 1) -> BatchDecoding:
    """Return the decoding of empty texts, by a CRF whose weights are all 0: the model need not be trained."""
    n_labels = len(labels)
    n_open = 2 * n_labels + 1
    shapes = (n_open, n_open, (n_open, n_open), (2, 2 * n_labels))
    start, end, outside, inside = (np.zeros(shape, dtype=np.float32) for shape in shapes)
    emissions = np.empty((0, 4 * n_labels + 1), dtype=np.float32)
    return BatchDecoding(
        PathScorer((start, end, outside, inside)),
        emissions,
        [0] * n_texts * depth,
        None,
        depth=depth,
        labels=tuple(labels),
    )


def to_spans(rows: Sequence[tuple[int, int, int, int]]) -> EntitySpans:
    """Return rows of text, start, end and label as columns."""
    return EntitySpans(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def select_spans(spans: EntitySpans, rows: slice | IntArray) -> EntitySpans:
    """Return some of the spans."""
    return EntitySpans(*(column[rows] for column in spans))


def join_spans(parts: Sequence[EntitySpans]) -> EntitySpans:
    """Concatenate columns of spans."""
    return EntitySpans(*(np.concatenate(columns) for columns in zip(NO_SPANS, *parts, strict=True)))


def _check_minimum(minimum: float, what: str) -> None:
    if not 0.0 < minimum <= 1.0:
        raise ValueError(f"The minimum probability of {what} must be above 0 and at most 1, not {minimum}.")


def _by_character(view: DocView, values: Probabilities) -> Probabilities:
    """Spread the values of units and of the gaps before them over characters.

    *Shape:* (units, 2) to (characters,)
    """
    begins, sizes = view.char_extents().T
    ends = np.append(0, begins + sizes)
    spread = np.ones(len(view.doc.text))
    for first, lengths, column in ((begins, sizes, 0), (ends[:-1], begins - ends[:-1], 1)):
        spread[ranges(first, lengths)] = np.repeat(values[:, column], lengths)
    return spread
