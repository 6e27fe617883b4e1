"""Results from `tener_ner` for a single text: entities, the k best sets of entities, and exact probabilities.

`pipe.decode(docs)` yields a `Decoding` for each Doc:

    for decoding in nlp.get_pipe("tener_ner").decode([nlp.make_doc("王小明去了上海")]):
        print(decoding.entities, decoding.k_best(3))

`batch_decoding.py` computes these results for batches of texts.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from spacy.attrs import ENT_IOB
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
    """One possible set of entities in a text, which `Decoding.k_best` returns.

    probability (float): The set's probability. For nested entities, this is a lower bound (see `BatchDecoding.k_best`).
    entities (list[FoundEntity]): The entities with their marginal probabilities.
    log_probability (float): Logarithm of `probability`, which can underflow to 0 for long texts.
    """

    probability: float
    entities: list[FoundEntity]
    log_probability: float


@dataclass(frozen=True)
class Marginals:
    """Marginal probabilities for all possible entities in a text, which `Decoding.marginals` returns.

    entities (list[FoundEntity]): Possible entities with their marginal probabilities. They can overlap.
    outside (Probabilities): Probability that a character of `doc.text` is not part of an entity. *Shape:* (characters,)
    """

    entities: list[FoundEntity]
    outside: Probabilities


@dataclass(frozen=True, eq=False, repr=False)
class Decoding:
    """The results from `tener_ner` for one text: entities, alternatives and probabilities.

    Each result is computed on first access, without running the model again. The Doc is not changed.

    Existing entities, which are in `doc.ents` before decoding, are part of every result. Their probability is 1, and
    all other probabilities are conditional on the existing entities. Probabilities are exact, and offsets are character
    offsets. Use the results before another component merges or splits tokens in the Doc.

    view (DocView): The Doc's units, which are tokens or characters.
    labels (tuple[str, ...]): The model's labels.
    batch (BatchDecoding): The results for the batch that contains this text.
    index (int): Text index in the batch.
    spans_key (str | None): Key in `doc.spans` with nested gold entities.
    existing (tuple[FoundEntity, ...]): The existing entities.
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
        """The entities in the best tag sequence with their marginal probabilities, in text order."""
        return self._found(*self.batch.best_by_text[self.index])

    @property
    def entropy(self) -> float:
        """Entropy of the distribution over all tag sequences, in nats.

        The entropy is 0 if only one tag sequence is possible. It increases with the model's uncertainty.
        """
        return self.batch.entropies[self.index]

    @property
    def allowed(self) -> Mask:
        """Mask that marks the allowed tags for each unit. *Shape:* (depth * units, tags)

        In a model for nested entities, the rows for all units at depth 0 are followed by those at depth 1, and so on.
        """
        n_tags = self.batch.crf.layout.n_tags
        if self.batch.allowed is None:
            return np.ones((self.batch.depth * len(self.view), n_tags), dtype=bool)
        return self.batch.allowed[:, self._units].reshape(-1, n_tags)

    @property
    def emissions(self) -> AnyFloats:
        """Emission scores for each unit. *Shape:* (depth * units, tags)

        In a model for nested entities, the rows for all units at depth 0 are followed by those at depth 1, and so on.
        """
        return self.batch.emissions[:, self._units].reshape(-1, self.batch.crf.layout.n_tags)

    @property
    def _units(self) -> slice:
        """Slice with this text's units in the batch."""
        first = int(self.batch.offsets[self.index])
        return slice(first, first + len(self.view))

    def probabilities(self, spans: Iterable[Span | EntityOffsets]) -> list[float]:
        """Return the probability that each span is an entity with the given label.

        spans (Iterable[Union[Span, Tuple[int, int, str]]]): Spans in the Doc, or tuples with two character offsets and
            a label.
        RETURNS (List[float]): The marginal probabilities. The probability is 1 for existing entities. It is 0 for spans
            that the model can't predict: if the model has no such label, or if a token-based model gets a span that
            does not align with tokens.
        """
        offsets = [offsets_of(span) if isinstance(span, Span) else span for span in spans]
        size, rows = len(self.doc.text), dict[int, tuple[int, ...]]()
        for i, (start, end, label) in enumerate(offsets):
            if not 0 <= start < end <= size:
                raise ValueError(f"The span {start}, {end} is outside of the Doc's {size} characters.")
            units = self.view.unit_span(start, end)
            if units and label in self.labels:
                rows[i] = (self.index, *units, self.labels.index(label))
        probabilities = np.zeros(len(offsets))
        columns = np.array(list(rows.values()), dtype=np.int64).reshape(-1, 4).T
        probabilities[list(rows)] = self.batch.probabilities(EntitySpans(*columns))
        existing = {entity.offsets for entity in self.existing}
        return [1.0 if span in existing else p for span, p in zip(offsets, probabilities.tolist(), strict=True)]

    def k_best(self, k: int = 5) -> list[LabelSequence]:
        """Return the k best sets of entities in the text, best first.

        The sets are ranked by their best tag sequence. The first set contains the same entities as `entities`.

        k (int): Maximum number of sets. A short text can have fewer possible sets.
        RETURNS (List[LabelSequence]): The sets of entities. An empty text has a single set without entities.
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
        """Return alternatives to each predicted entity.

        An alternative is a span that overlaps with the entity and has other boundaries or another label. It is not
        itself a predicted entity.

        n (int): Maximum number of alternatives per entity.
        minimum (float): Minimum probability for an alternative. It must be above 0.
        RETURNS (List[List[FoundEntity]]): The alternatives to each entity in `entities`, most probable first.
        """
        _check_minimum(minimum, "an alternative")
        if n < 0:
            raise ValueError(f"The number of alternatives must be at least 0, got {n}.")
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
        """Return the marginal probabilities of all possible entities.

        minimum (float): Minimum probability for an entity. It must be above 0.
        RETURNS (Marginals): The possible entities, and the probability that each character is not part of an entity.
        """
        _check_minimum(minimum, "an entity")
        outside = self.batch.outside[self.index]
        if self.existing:
            outside = outside.copy()
            for entity in self.existing:
                # No unit in an existing entity can be O, and no entity boundary is possible inside.
                start, end = self._units_of(entity)
                outside[start:end, 0] = outside[start + 1 : end, 1] = 0.0
        found = self._found(*self.batch.candidates(minimum)[self.index])
        return Marginals(found, _by_character(self.view, outside))

    def likelihood(self, reference: Doc) -> float:
        """Return the probability of a gold annotation.

        This is the total probability of all tag sequences that match the gold annotation. Tokens with missing
        annotation match any tag. If the model predicts nested entities, each gold entity must be at the depth that it
        would have in training. The same entities may also be predicted at other depths, so the result is a lower bound.

        reference (Doc): The same text with gold entities. Their labels must be labels of the component or of existing
            entities.
        RETURNS (float): The probability. It is 0 if no allowed tag sequence matches, for example because a gold entity
            crosses the start of a sentence in the Doc. It is also 0 if an existing entity is not annotated.
        """
        return likelihoods([self], [reference])[0]

    def consistent_tags(self, reference: Doc) -> Mask:
        """Return a mask of the allowed tags that are consistent with a gold annotation.

        Existing entities are part of every result, so that they need not be in the tag sequences. The mask is
        computed in three steps: existing entities are moved to the outermost level of the annotation, they are removed
        from it, and their own tags are added to the mask.

        reference (Doc): The same text with gold entities.
        RETURNS (Mask): The mask, with rows in the same order as in `allowed`. *Shape:* (depth * units, tags)
        """
        levels = split_reference(reference, self.spans_key, self.batch.depth)
        annotated = {offsets_of(ent) for level in levels for ent in level.ents}
        if self.existing:
            levels = self._move_existing_outside(levels)
        outermost = {offsets_of(ent) for ent in levels[0].ents}
        is_consistent = all(self._is_consistent(levels, entity, annotated) for entity in self.existing)
        levels[0] = self._remove_existing(levels[0])
        labels, layout = index_labels(self.labels), self.batch.crf.layout
        targets = [make_target(Example(self.doc, part), self.view, labels, None) for part in levels]
        masks = [agreeing_tags(target.tags, None, layout) for target in targets]
        for entity in self.existing:
            start, end = self._units_of(entity)
            own = np.full(end - start, layout.outside)
            if entity.label in self.labels:
                first, last, label = np.array([[0], [end - start], [self.labels.index(entity.label)]])
                own = layout.encode(first, last, label, end - start)
            if entity.offsets in outermost:
                masks[0][start:end] = own[:, None] == np.arange(layout.n_tags)
            # A tag sequence at an inner level may repeat the entity.
            for target, mask in zip(targets[1:], masks[1:], strict=True):
                if (target.tags[start:end] == layout.outside).all():
                    mask[np.arange(start, end), own] = True
        return np.concatenate(masks) & self.allowed & is_consistent

    def _move_existing_outside(self, levels: list[Doc]) -> list[Doc]:
        """Move existing entities from the inner levels of a gold annotation to the outermost level.

        If another gold entity encloses the existing one, it is only removed from the inner level. If another gold
        entity has the same boundaries, both change places, since the order of their levels is arbitrary.
        """
        existing = {entity.offsets for entity in self.existing}
        outer = {(ent.start, ent.end): ent.label_ for ent in levels[0].ents}
        levels = [level.copy() for level in levels]
        for level in levels[1:]:
            for ent in level.ents:
                if offsets_of(ent) not in existing:
                    continue
                other = outer.get((ent.start, ent.end))
                if other is None:
                    level.set_ents([], outside=[ent], default="unmodified")
                else:
                    levels[0].set_ents([Span(levels[0], ent.start, ent.end, ent.label)], default="unmodified")
                    level.set_ents([Span(level, ent.start, ent.end, other)], default="unmodified")
        return levels

    def _is_consistent(self, levels: Sequence[Doc], entity: FoundEntity, annotated: Collection[EntityOffsets]) -> bool:
        """Return whether a gold annotation contains an existing entity, or has missing annotation there.

        levels (Sequence[Doc]): The gold annotation of each nesting level.
        annotated (Collection[EntityOffsets]): The gold entities of all levels.
        """
        span = levels[0].char_span(entity.start, entity.end, alignment_mode="expand")
        has_inner = len(levels) > 1 and levels[1].has_annotation(ENT_IOB)
        return (
            entity.offsets in annotated
            or span is None
            or all(token.ent_iob == MISSING for token in span)
            or (not has_inner and self._is_enclosed(levels[0], entity))
        )

    def _remove_existing(self, outer: Doc) -> Doc:
        """Replace existing entities at the outermost level by missing annotation. Their labels may be unknown to the
        model, which is an error in gold annotation."""
        reference = outer.copy()
        for entity in self.existing:
            span = reference.char_span(entity.start, entity.end, alignment_mode="expand")
            if span is not None and not self._is_enclosed(outer, entity):
                reference.set_ents([], missing=[span], default="unmodified")
        return reference

    @staticmethod
    def _is_enclosed(doc: Doc, entity: FoundEntity) -> bool:
        """Return whether a larger entity in `doc.ents` contains an entity."""
        return any(
            start <= entity.start and entity.end <= end and (start, end) != (entity.start, entity.end)
            for start, end, _ in map(offsets_of, doc.ents)
        )

    def _units_of(self, entity: FoundEntity) -> tuple[int, int]:
        return self.view.unit_span(entity.start, entity.end) or (0, 0)

    def _found(self, spans: EntitySpans, probabilities: Probabilities) -> list[FoundEntity]:
        """Convert spans to entities with character offsets, and add the existing entities.

        The result has no duplicates and is sorted by position.

        spans (EntitySpans): Entities in this text, with unit indices.
        probabilities (Probabilities): Marginal probability of each entity. *Shape:* (entities,)
        """
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
    """Return the probabilities of several gold annotations.

    The result is the same as that of `Decoding.likelihood` for each text. This function is faster, because it runs the
    CRF once for all texts in a batch.

    decodings (Sequence[Decoding]): The results from `tener_ner` for each text.
    references (Sequence[Doc]): The same texts with gold entities.
    """
    found: list[float] = []
    pairs = zip(decodings, references, strict=True)
    for batch, group in itertools.groupby(pairs, lambda pair: pair[0].batch):
        texts = list(group)
        agreeing = np.concatenate([decoding.consistent_tags(reference) for decoding, reference in texts])
        emissions = np.concatenate([decoding.emissions for decoding, _ in texts])
        lengths = [len(decoding.view) for decoding, _ in texts for _ in range(batch.depth)]
        partitions = np.array([batch.log_partitions[decoding.index] for decoding, _ in texts])
        forward_backward = batch.crf.forward_backward(emissions, lengths, agreeing, temperature=batch.temperature)
        # The probability is Z(matching) / Z(allowed), where Z is the partition function over the matching or allowed
        # tag sequences.
        agreeing_partitions = forward_backward.log_partition().reshape(len(texts), batch.depth).sum(axis=1)
        found += np.nan_to_num(np.exp(agreeing_partitions - partitions)).clip(0.0, 1.0).tolist()
    return found


def _check_minimum(minimum: float, what: str) -> None:
    if not 0.0 < minimum <= 1.0:
        raise ValueError(f"The minimum probability of {what} must be above 0 and at most 1, not {minimum}.")


def _by_character(view: DocView, values: Probabilities) -> Probabilities:
    """Convert the probabilities for units, and for the gaps between units, to probabilities for characters.

    Characters that are not part of a unit, such as white space, get the probability for the gap.

    view (DocView): The Doc's units, which are tokens or characters.
    values (Probabilities): Probability for each unit, and for the gap before the unit. *Shape:* (units, 2)
    RETURNS (Probabilities): *Shape:* (characters,)
    """
    begins, sizes = view.char_extents().T
    ends = np.append(0, begins + sizes)
    spread = np.ones(len(view.doc.text))
    for first, lengths, column in ((begins, sizes, 0), (ends[:-1], begins - ends[:-1], 1)):
        spread[ranges(first, lengths)] = np.repeat(values[:, column], lengths)
    return spread
