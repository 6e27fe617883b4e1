"""What the CRF computes from the emissions of texts: best entities, k best readings, and exact probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span
from spacy.training import Example

from ..crf.crf_numpy import PathScorer
from ..crf.decode import ScoredPath
from ..crf.forward import ForwardBackward
from ..crf.marginals import EntitySpans, entropy, outside_marginals, probable_spans, span_marginals
from ..processes import cached_property
from ..sequences import ranges, starts
from ..types import AnyFloats, IntArray
from .entities import EntityOffsets, FoundEntity, offsets_of
from .learning.targets import make_target
from .masks import agreeing_tags
from .nesting import split_reference
from .tags import Mask, index_labels
from .units import MISSING, DocView

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


@dataclass(frozen=True, eq=False, repr=False)
class BatchDecoding:
    """A CRF and the emissions of a batch of texts. Results are computed for all texts together, when first needed.

    With a depth above 1 (entities within entities), each text is one sequence for each depth: those of all texts at
    the first depth come first. Depths are independent given the emissions, which makes all probabilities exact.

    emissions (AnyFloats): Of all sequences, joined. *Shape:* (units, tags)
    lengths (list[int]): Units of each sequence.
    allowed (Mask | None): The tags that the CRF may choose; None for all. *Shape:* (units, tags)
    temperature (float): Divisor of all scores of the CRF in probabilities. The best path does not depend on it.
    depth (int): How deep entities may be nested.
    """

    crf: PathScorer
    emissions: AnyFloats
    lengths: list[int]
    allowed: Mask | None
    temperature: float = 1.0
    depth: int = 1
    _readings: dict[int, list[list[ScoredReading]]] = field(default_factory=dict, init=False)
    """By their maximum number."""
    _candidates: dict[float, list[ScoredSpans]] = field(default_factory=dict, init=False)
    """By their minimum probability."""

    def __repr__(self) -> str:
        return f"<BatchDecoding of {self.n_texts} texts, {len(self.emissions)} units, depth {self.depth}>"

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
        start, end, label = self.crf.layout.decode(self.crf.decode(self.emissions, self.lengths, self.allowed))
        sequence = np.repeat(np.arange(len(self.lengths)), self.lengths)[start]
        spans = EntitySpans(sequence, start - self.offsets[sequence], end - self.offsets[sequence], label)
        return spans if self.depth == 1 else self._join_depths(spans)

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
        for level in range(self.depth):
            at_depth = spans._replace(sequence=spans.sequence + level * self.n_texts)
            either += (1.0 - either) * span_marginals(self.passes, at_depth).clip(0.0, 1.0)
        return either

    def empty_probabilities(self, text: int, starts: IntArray, ends: IntArray) -> Probabilities:
        """Return the probability that parts of a text, in its units, have no entity at any depth. *Shape:* (parts,)"""
        none = np.ones(starts.size)
        for level in range(self.depth if starts.size else 0):
            sequences = np.full(starts.size, text + level * self.n_texts)
            none *= outside_marginals(self.passes, sequences, starts, ends)
        return none

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
            return EntitySpans(np.full(start.size, text), start, end, label)
        level = start // max(self.lengths[text], 1)
        sequence = text + level * self.n_texts
        first = level * self.lengths[text]
        return self._join_depths(EntitySpans(sequence, start - first, end - first, label))

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
            order = np.argsort(spans.sequence, kind="stable")
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
        return np.split(columns, np.cumsum(self.lengths[: self.n_texts])[:-1])

    @cached_property
    def log_partitions(self) -> list[float]:
        """The logarithm of the sum over all paths of each text."""
        return self._add_depths(self.passes.log_partition())


@dataclass(frozen=True, eq=False, repr=False)
class Decoding:
    """What the model says of one text, from one run over it: `pipe.decode(docs)` yields one for each Doc.

    Probabilities are exact. Entities that the Doc had are certain, of whatever label, and the model's are those beside
    them. Offsets are those of the text. Ask before tokens of the Doc are merged or split; nothing here changes it.

    view (DocView): The Doc as the model's units: its tokens or characters.
    labels (tuple[str, ...]): The entity types of the model.
    batch (BatchDecoding): What was decoded together with this text.
    index (int): The position of this text in the batch.
    spans_key (str | None): The group of annotated entities that lie within others.
    certain (tuple[FoundEntity, ...]): The entities that the Doc had, from a list for instance.
    """

    view: DocView
    labels: tuple[str, ...]
    batch: BatchDecoding
    index: int
    spans_key: str | None = None
    certain: tuple[FoundEntity, ...] = ()

    def __repr__(self) -> str:
        return f"<Decoding of {self.doc.text[:40]!r} in {len(self.view)} units, labels {', '.join(self.labels[:10])}>"

    @property
    def doc(self) -> Doc:
        """The Doc that was decoded."""
        return self.view.doc

    @property
    def entities(self) -> list[FoundEntity]:
        """The entities of the best reading with their probabilities, in the order of the text."""
        return self._found(*self.batch.best_by_text[self.index])

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
            whole tokens in the view `tokens`, or whose label is not one of the model's. 1 for an entity that the Doc
            had.
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
        certain = {entity.offsets for entity in self.certain}
        return [1.0 if span in certain else p for span, p in zip(offsets, probabilities.tolist(), strict=True)]

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
        found = self.entities
        known = {entity.offsets for entity in found}
        candidates = self._found(*self.batch.candidates(minimum)[self.index])
        others = [entity for entity in candidates if entity.offsets not in known]
        starts, ends, probabilities = np.array([(e.start, e.end, e.probability) for e in others]).reshape(-1, 3).T
        rivals = []
        for entity in found:
            overlapping = np.flatnonzero((starts < entity.end) & (ends > entity.start))
            chosen = overlapping[np.argsort(-probabilities[overlapping], kind="stable")[:n]]
            rivals.append([others[i] for i in chosen.tolist()])
        return rivals

    def marginals(self, minimum: float = 0.05) -> Marginals:
        """Return the probabilities of all possible entities, and that each character is in none.

        minimum (float): Minimum probability of an entity, above 0.
        RETURNS (Marginals): The possible entities, and the probability that each character is in none.
        """
        _check_minimum(minimum, "an entity")
        outside = self.batch.outside[self.index]
        if self.certain:
            outside = outside.copy()
            for entity in self.certain:
                start, end = self._units_of(entity)
                outside[start:end, 0] = outside[start + 1 : end, 1] = 0.0
        found = self._found(*self.batch.candidates(minimum)[self.index])
        return Marginals(found, _by_character(self.view, outside))

    def likelihood(self, reference: Doc) -> float:
        """Return the probability of a gold annotation as a whole: of all readings that agree with it.

        reference (Doc): The same text with gold entities, of labels that the component has, or that the Doc had. Tokens
            without annotation agree with every reading.
        RETURNS (float): 0 if the model has no such reading, as for an entity across a known sentence start, or if one
            that the Doc had is not annotated.
        """
        return likelihoods([self], [reference])[0]

    def agreeing(self, reference: Doc) -> Mask:
        """Return the allowed tags that agree with a gold annotation, at each depth. *Shape:* (depth * units, tags)"""
        outer, *inner = split_reference(reference, self.spans_key, self.batch.depth)
        outer, is_contradicted = self._without_certain(outer)
        labels = index_labels(self.labels)
        targets = [make_target(Example(self.doc, part), self.view, labels, None) for part in (outer, *inner)]
        tags = np.concatenate([target.tags for target in targets])
        return agreeing_tags(tags, None, self.batch.crf.layout) & self.allowed & (not is_contradicted)

    def _without_certain(self, reference: Doc) -> tuple[Doc, bool]:
        """Return a gold annotation without what is certain: nothing is annotated there. Also, whether it differs from
        that."""
        if not self.certain:
            return reference, False
        annotated = set(map(offsets_of, reference.ents))
        reference, is_contradicted = reference.copy(), False
        for entity in self.certain:
            span = reference.char_span(entity.start, entity.end, alignment_mode="expand")
            is_missing = span is None or all(token.ent_iob == MISSING for token in span)
            is_contradicted |= not is_missing and entity.offsets not in annotated
            if span is not None:
                reference.set_ents([], missing=[span], default="unmodified")
        return reference, is_contradicted

    @property
    def emissions(self) -> AnyFloats:
        """The scores of tags at each depth. *Shape:* (depth * units, tags)"""
        return self.batch.emissions[self._rows]

    def _units_of(self, entity: FoundEntity) -> tuple[int, int]:
        return self.view.unit_span(entity.start, entity.end) or (0, 0)

    def _found(self, spans: EntitySpans, probabilities: Probabilities) -> list[FoundEntity]:
        """Return entities of this text. Those that the Doc had are among them, each once, in the order of the text."""
        columns = spans.start.tolist(), spans.end.tolist(), spans.label.tolist(), probabilities.tolist()
        found = [
            FoundEntity(*self.view.char_span(start, end), self.labels[label], probability)
            for start, end, label, probability in zip(*columns, strict=True)
        ]
        if not self.certain:
            return found
        entities = {entity.offsets: entity for entity in (*found, *self.certain)}
        return sorted(entities.values(), key=lambda entity: (entity.start, -entity.end, entity.label))


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


def decode_nothing(n_labels: int, n_texts: int, depth: int = 1) -> BatchDecoding:
    """Return the decoding of empty texts, by a CRF whose weights are all 0: the model need not be trained."""
    n_open = 2 * n_labels + 1
    shapes = (n_open, n_open, (n_open, n_open), (2, 2 * n_labels))
    start, end, outside, inside = (np.zeros(shape, dtype=np.float32) for shape in shapes)
    emissions = np.empty((0, 4 * n_labels + 1), dtype=np.float32)
    return BatchDecoding(PathScorer((start, end, outside, inside)), emissions, [0] * n_texts * depth, None, depth=depth)


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
