"""What a `tener_ner` computes for one text: best entities, k best label sequences, and exact probabilities.

`pipe.decode(docs)` yields a `Decoding` for each Doc:

    for decoding in nlp.get_pipe("tener_ner").decode([nlp.make_doc("王小明去了上海")]):
        print(decoding.entities, decoding.k_best(3))

`batch_decoding.py` has the numerical part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from spacy.tokens import Doc, Span
from spacy.training import Example

from ..crf.marginals import EntitySpans
from ..sequences import ranges
from ..types import AnyFloats, EntityOffsets
from .batch_decoding import BatchDecoding, Probabilities
from .entities import FoundEntity, offsets_of
from .learning.targets import make_target
from .masks import agreeing_tags
from .nesting import split_reference
from .tags import Mask, index_labels
from .units import MISSING, DocView


@dataclass(frozen=True)
class LabelSequence:
    """One possible set of entities of a whole text.

    probability (float): Probability of the set. If the model finds nested entities, it is a lower bound: see
        `BatchDecoding.k_best`.
    entities (list[FoundEntity]): The entities. The probability of an entity is its marginal probability, not the
        probability of this set.
    log_probability (float): Logarithm of `probability`, which underflows to 0 for long texts.
    """

    probability: float
    entities: list[FoundEntity]
    log_probability: float


@dataclass(frozen=True)
class Marginals:
    """Marginal probabilities over all label sequences of a text.

    entities (list[FoundEntity]): Spans that may be entities. They may exclude each other.
    outside (Probabilities): Probability that a character of `doc.text` is not part of an entity. *Shape:* (characters,)
    """

    entities: list[FoundEntity]
    outside: Probabilities


@dataclass(frozen=True, eq=False, repr=False)
class Decoding:
    """The model's results for one text. They are computed when they are first needed, without another run of the model.

    All probabilities are exact, and conditional on the entities that the Doc already had: these are part of every
    result, with the probability 1. Offsets are in characters of the text. The Doc is not changed. Use a decoding before
    a later component merges or splits tokens of the Doc.

    view (DocView): The Doc as units of the model: tokens or characters.
    labels (tuple[str, ...]): The entity types of the model.
    batch (BatchDecoding): The results for the batch that contains this text.
    index (int): Index of this text in the batch.
    spans_key (str | None): Key of `doc.spans` with the nested entities of an annotation.
    existing (tuple[FoundEntity, ...]): Existing entities: those that the Doc already had, such as matches of a list.
    """

    view: DocView
    labels: tuple[str, ...]
    batch: BatchDecoding
    index: int
    spans_key: str | None = None
    existing: tuple[FoundEntity, ...] = ()

    def __repr__(self) -> str:
        return f"<Decoding of {self.doc.text[:40]!r} in {len(self.view)} units, labels {', '.join(self.labels[:10])}>"

    @property
    def doc(self) -> Doc:
        """The Doc that was decoded."""
        return self.view.doc

    @property
    def entities(self) -> list[FoundEntity]:
        """The entities of the best label sequence with their probabilities, in the order of the text."""
        return self._found(*self.batch.best_by_text[self.index])

    @property
    def entropy(self) -> float:
        """Entropy of the distribution over all label sequences, in nats: 0 if only one is possible, and the higher, the
        more uncertain the model is."""
        return self.batch.entropies[self.index]

    @property
    def allowed(self) -> Mask:
        """The tags that the model may give to each unit, first those of all units at the first depth.

        *Shape:* (depth * units, tags)
        """
        n_tags = self.batch.crf.layout.n_tags
        if self.batch.allowed is None:
            return np.ones((self.batch.depth * len(self.view), n_tags), dtype=bool)
        return self.batch.allowed[:, self._units].reshape(-1, n_tags)

    @property
    def emissions(self) -> AnyFloats:
        """The scores of the tags, first those of all units at the first depth. *Shape:* (depth * units, tags)"""
        return self.batch.emissions[:, self._units].reshape(-1, self.batch.crf.layout.n_tags)

    @property
    def _units(self) -> slice:
        """The units of this text in the batch."""
        first = int(self.batch.offsets[self.index])
        return slice(first, first + len(self.view))

    def probabilities(self, spans: Iterable[Span | EntityOffsets]) -> list[float]:
        """Return the probability that each span is an entity of its label.

        spans (Iterable[Union[Span, Tuple[int, int, str]]]): Spans of the Doc, or the start and end in characters of the
            text, and the label.
        RETURNS (List[float]): The probabilities. The probability of an existing entity is 1. It is 0 for a span that
            the model cannot find, because it has another label or, in the view `tokens`, because it does not consist
            of whole tokens.
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
        existing = {entity.offsets for entity in self.existing}
        return [1.0 if span in existing else p for span, p in zip(offsets, probabilities.tolist(), strict=True)]

    def k_best(self, k: int = 5) -> list[LabelSequence]:
        """Return the k best sets of entities of the whole text, best first; fewer if there are fewer.

        They are ranked by their best label sequence, so the first one has the same entities as `entities`.

        k (int): Maximum number of sets.
        RETURNS (List[LabelSequence]): The sets of entities. An empty text has one, without entities.
        """
        return [
            LabelSequence(
                float(np.exp(ranked.log_probability)),
                self._found(ranked.spans, ranked.probabilities),
                ranked.log_probability,
            )
            for ranked in self.batch.k_best(k)[self.index]
        ]

    def alternatives(self, n: int = 3, minimum: float = 0.01) -> list[list[FoundEntity]]:
        """Return alternatives to each entity: probable spans that overlap with it but are not found, because they have
        other boundaries or another label.

        n (int): Maximum number of alternatives to an entity.
        minimum (float): Minimum probability of an alternative. It must be above 0.
        RETURNS (List[List[FoundEntity]]): For each of `entities`, the alternatives, most probable first.
        """
        _check_minimum(minimum, "an alternative")
        found = self.entities
        known = {entity.offsets for entity in found}
        candidates = self._found(*self.batch.candidates(minimum)[self.index])
        others = [entity for entity in candidates if entity.offsets not in known]
        starts, ends, probabilities = np.array([(e.start, e.end, e.probability) for e in others]).reshape(-1, 3).T
        alternatives = []
        for entity in found:
            overlapping = np.flatnonzero((starts < entity.end) & (ends > entity.start))
            chosen = overlapping[np.argsort(-probabilities[overlapping], kind="stable")[:n]]
            alternatives.append([others[i] for i in chosen.tolist()])
        return alternatives

    def marginals(self, minimum: float = 0.05) -> Marginals:
        """Return the probabilities of all possible entities, and the probability that a character is outside of them.

        minimum (float): Minimum probability of an entity. It must be above 0.
        RETURNS (Marginals): The possible entities, and the probability of each character to be outside.
        """
        _check_minimum(minimum, "an entity")
        outside = self.batch.outside[self.index]
        if self.existing:
            outside = outside.copy()
            for entity in self.existing:
                start, end = self._units_of(entity)
                outside[start:end, 0] = outside[start + 1 : end, 1] = 0.0
        found = self._found(*self.batch.candidates(minimum)[self.index])
        return Marginals(found, _by_character(self.view, outside))

    def likelihood(self, reference: Doc) -> float:
        """Return the probability of a gold annotation as a whole, summed over all label sequences that agree with it.

        reference (Doc): The same text with gold entities, whose labels are the component's or those of existing
            entities. Tokens with missing annotation may have any tag.
        RETURNS (float): The probability. It is 0 if no allowed label sequence agrees, for example because a gold entity
            crosses a known sentence start, or if an existing entity is not annotated.
        """
        return likelihoods([self], [reference])[0]

    def agreeing(self, reference: Doc) -> Mask:
        """Return the allowed tags that agree with a gold annotation, in the order of `allowed`.

        *Shape:* (depth * units, tags)
        """
        outer, *inner = split_reference(reference, self.spans_key, self.batch.depth)
        outer, is_contradicted = self._without_existing(outer)
        labels = index_labels(self.labels)
        targets = [make_target(Example(self.doc, part), self.view, labels, None) for part in (outer, *inner)]
        tags = np.concatenate([target.tags for target in targets])
        return agreeing_tags(tags, None, self.batch.crf.layout) & self.allowed & (not is_contradicted)

    def _without_existing(self, reference: Doc) -> tuple[Doc, bool]:
        """Return a gold annotation with missing annotation in place of existing entities, and whether it contradicts
        these."""
        if not self.existing:
            return reference, False
        annotated = set(map(offsets_of, reference.ents))
        reference, is_contradicted = reference.copy(), False
        for entity in self.existing:
            span = reference.char_span(entity.start, entity.end, alignment_mode="expand")
            is_missing = span is None or all(token.ent_iob == MISSING for token in span)
            is_contradicted |= not is_missing and entity.offsets not in annotated
            if span is not None:
                reference.set_ents([], missing=[span], default="unmodified")
        return reference, is_contradicted

    def _units_of(self, entity: FoundEntity) -> tuple[int, int]:
        return self.view.unit_span(entity.start, entity.end) or (0, 0)

    def _found(self, spans: EntitySpans, probabilities: Probabilities) -> list[FoundEntity]:
        """Return entities of this text and the existing entities, each once, in the order of the text."""
        columns = spans.start.tolist(), spans.end.tolist(), spans.label.tolist(), probabilities.tolist()
        found = [
            FoundEntity(*self.view.char_span(start, end), self.labels[label], probability)
            for start, end, label, probability in zip(*columns, strict=True)
        ]
        if not self.existing:
            return found
        entities = {entity.offsets: entity for entity in (*found, *self.existing)}
        return sorted(entities.values(), key=lambda entity: (entity.start, -entity.end, entity.label))


def likelihoods(decodings: Sequence[Decoding], references: Sequence[Doc]) -> list[float]:
    """Return `Decoding.likelihood` of several texts, with one pass of the CRF for each batch."""
    found: list[float] = []
    pairs = zip(decodings, references, strict=True)
    for batch, group in itertools.groupby(pairs, lambda pair: pair[0].batch):
        texts = list(group)
        agreeing = np.concatenate([decoding.agreeing(reference) for decoding, reference in texts])
        emissions = np.concatenate([decoding.emissions for decoding, _ in texts])
        lengths = [len(decoding.view) for decoding, _ in texts for _ in range(batch.depth)]
        partitions = np.array([batch.log_partitions[decoding.index] for decoding, _ in texts])
        forward_backward = batch.crf.forward_backward(emissions, lengths, agreeing, temperature=batch.temperature)
        agreeing_partitions = forward_backward.log_partition().reshape(len(texts), batch.depth).sum(axis=1)
        found += np.nan_to_num(np.exp(agreeing_partitions - partitions)).clip(0.0, 1.0).tolist()
    return found


def _check_minimum(minimum: float, what: str) -> None:
    if not 0.0 < minimum <= 1.0:
        raise ValueError(f"The minimum probability of {what} must be above 0 and at most 1, not {minimum}.")


def _by_character(view: DocView, values: Probabilities) -> Probabilities:
    """Return the value of each character: that of its unit, or of the gap before a unit.

    values (Probabilities): Values of units and of the gaps before them. *Shape:* (units, 2)
    RETURNS (Probabilities): *Shape:* (characters,)
    """
    begins, sizes = view.char_extents().T
    ends = np.append(0, begins + sizes)
    spread = np.ones(len(view.doc.text))
    for first, lengths, column in ((begins, sizes, 0), (ends[:-1], begins - ends[:-1], 1)):
        spread[ranges(first, lengths)] = np.repeat(values[:, column], lengths)
    return spread
