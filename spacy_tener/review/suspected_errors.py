"""Find suspected annotation errors: differences between gold annotation and a model's predictions.

A model overfits to the errors in its training data, and would reproduce them. To find errors in a training corpus, use
`cross_validation.py`, which trains models on parts of the corpus. Used by the command `review`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import minibatch

from ..evaluation.scores import Confusion, count_confusions
from ..pipeline.decoding import likelihoods
from ..pipeline.entities import FoundEntity, offsets_of, outermost
from ..pipeline.finding import PipelineNER, crf_pipes
from ..pipeline.nesting import all_entities
from ..types import EntityOffsets

BATCH = 256
# Gold entities and predicted entities at the same position in a text.
EntityPair = tuple[Sequence[FoundEntity], Sequence[FoundEntity]]


@dataclass(frozen=True)
class SuspectedError:
    """A difference between the gold annotation and the model's best label sequence.

    doc (int): The Doc's index in the corpus.
    gold (tuple[FoundEntity, ...]): Gold entities that the model did not predict, with their probabilities.
    found (tuple[FoundEntity, ...]): Entities that the model predicted instead.
    suspicion (float): Score between 0 and 1 to rank suspected errors. See `rank_suspected_errors`.
    """

    doc: int
    gold: tuple[FoundEntity, ...]
    found: tuple[FoundEntity, ...]
    suspicion: float = 0.0

    @property
    def start(self) -> int:
        """Return the character offset at which the first entity starts."""
        return min(entity.start for entity in (*self.gold, *self.found))

    @property
    def end(self) -> int:
        """Return the character offset at which the last entity ends."""
        return max(entity.end for entity in (*self.gold, *self.found))

    @property
    def kind(self) -> str:
        """Return the error type in the gold annotation, assuming that the model is right.

        RETURNS (str): "missing" or "extra" entity, wrong "label", or "edges" for wrong boundaries.
        """
        if not self.gold:
            return "missing"
        if not self.found:
            return "extra"
        gold, found = ({(entity.start, entity.end) for entity in side} for side in (self.gold, self.found))
        return "label" if gold == found else "edges"


@dataclass(frozen=True)
class ReviewedDoc:
    """A Doc with gold annotation and its suspected errors.

    number (int): The Doc's index in the corpus.
    doc (Doc): The Doc.
    probability (float): Probability of the Doc's gold annotation according to the model. If tokens have missing
        annotation, the probabilities of all possible tags are summed.
    suspected_errors (tuple[SuspectedError, ...]): The suspected errors, ordered by position.
    unknown (int): Number of gold entities whose label the model doesn't have. These entities are not reviewed.
    group (str | None): Key in `doc.spans` for the span group with nested entities. None if only outermost entities are
        reviewed.
    counts (Mapping[str, Confusion]): The numbers of true positives, false positives and false negatives by label.
    fold (int): Index of the cross-validation fold that contains the Doc.
    """

    number: int
    doc: Doc
    probability: float
    suspected_errors: tuple[SuspectedError, ...]
    unknown: int
    group: str | None = None
    counts: Mapping[str, Confusion] = field(default_factory=dict)
    fold: int = 0

    @property
    def entities(self) -> list[Span]:
        """Return all gold entities, including entities whose label the model doesn't have."""
        return all_entities(self.doc, self.group)


def rank_suspected_errors(reviewed_docs: Iterable[ReviewedDoc]) -> list[SuspectedError]:
    """Compute the suspicion of all suspected errors, and sort the errors by descending suspicion.

    The suspicion is `p(predicted) * (1 - p(gold))`, with the probabilities of the predicted and the gold entity. If
    there is no gold entity, `p(gold)` is 0. If there is no predicted entity, `p(predicted)` is replaced by the model's
    recall: a model with a low recall misses many correct entities, so a missed entity rarely indicates an error.
    """
    docs = list(reviewed_docs)
    entities = sum(len(reviewed.entities) - reviewed.unknown for reviewed in docs)
    missed = sum(len(error.gold) for reviewed in docs for error in reviewed.suspected_errors)
    recall = 1.0 - missed / max(1, entities)
    errors = [
        replace(error, suspicion=_suspicion(error, recall)) for reviewed in docs for error in reviewed.suspected_errors
    ]
    return sorted(errors, key=lambda error: (-error.suspicion, error.doc, error.start))


def _suspicion(error: SuspectedError, recall: float) -> float:
    gold = max((entity.probability or 0.0 for entity in error.gold), default=0.0)
    return (1.0 - gold) * max((entity.probability or 0.0 for entity in error.found), default=recall)


def most_suspicious(errors: Sequence[SuspectedError], limit: int) -> list[SuspectedError]:
    """Return the suspected errors in the most suspicious texts.

    errors (Sequence[SuspectedError]): All suspected errors, sorted by suspicion.
    limit (int): Maximum number of texts.
    """
    numbers = {*list(dict.fromkeys(error.doc for error in errors))[:limit]}
    return [error for error in errors if error.doc in numbers]


def find_suspected_errors(nlp: Language, docs: Iterable[tuple[int, Doc]]) -> Iterator[ReviewedDoc]:
    """Compare gold annotation with a pipeline's predictions, and yield a `ReviewedDoc` for each Doc.

    The pipeline tokenizes the texts with its own tokenizer. If its training config evaluates on gold
    tokens (`gold_preproc` in [corpora.dev]), the Docs' tokens are used instead.

    nlp (Language): The pipeline.
    docs (Iterable[tuple[int, Doc]]): Docs with gold annotation, and their indices in the corpus.
    """
    for batch in minibatch(docs, BATCH):
        yield from _review_batch(nlp, batch)


def _review_batch(nlp: Language, batch: Sequence[tuple[int, Doc]]) -> Iterator[ReviewedDoc]:
    pipeline = PipelineNER.of(nlp)
    ner = pipeline.ner
    has_gold_tokens = nlp.config.get("corpora", {}).get("dev", {}).get("gold_preproc", False)
    docs = pipeline.prepare(_without_annotation(nlp, doc) if has_gold_tokens else doc.text for _, doc in batch)
    examples = [
        Example(doc, _with_known_labels(gold, ner.labels, ner.nested_key))
        for doc, (_, gold) in zip(docs, batch, strict=True)
    ]
    decodings = list(ner.decode(docs))
    gold_probabilities = likelihoods(decodings, [example.reference for example in examples])
    for (number, doc), example, decoding, likelihood in zip(
        batch, examples, decodings, gold_probabilities, strict=True
    ):
        # If the Doc doesn't have the span group, nested entities are not annotated, and only outermost entities are
        # compared.
        group = ner.nested_key if ner.nested_key in doc.spans else None
        offsets = [offsets_of(span) for span in all_entities(doc, group)]
        scored = zip(offsets, decoding.probabilities(offsets), strict=True)
        gold = [FoundEntity(*entity, probability) for entity, probability in scored]
        found = decoding.entities if group is not None else outermost(decoding.entities)
        annotated = _annotated_only(example.reference, found, {*offsets})
        unknown = {entity for entity in gold if entity.label not in ner.labels}
        errors = disagreements(number, gold, annotated, nested=group is not None)
        known_errors = tuple(error for error in errors if unknown.isdisjoint(error.gold))
        counts = count_confusions({*offsets}, {entity.offsets for entity in annotated})
        yield ReviewedDoc(number, doc, likelihood, known_errors, len(unknown), group, counts)


def _without_annotation(nlp: Language, doc: Doc) -> Doc:
    """Return a copy of a Doc that has only tokens and sentence boundaries, with the pipeline's vocabulary."""
    starts: list[bool | int | None] = [token.is_sent_start for token in doc]
    words, spaces = [token.text for token in doc], [bool(token.whitespace_) for token in doc]
    return Doc(nlp.vocab, words=words, spaces=spaces, sent_starts=starts)


def _with_known_labels(doc: Doc, labels: Sequence[str], group: str | None) -> Doc:
    """Remove the gold entities whose label the model doesn't have. Their tokens get missing annotation.

    doc (Doc): A Doc with gold annotation. It is not modified.
    labels (Sequence[str]): The model's labels.
    group (str | None): Key in `doc.spans` for the span group with nested entities. None if the model doesn't predict
        nested entities.
    """
    unknown = [span for span in all_entities(doc, group) if span.label_ not in labels]
    if not unknown:
        return doc
    changed = doc.copy()
    if group is not None and group in changed.spans:
        changed.spans[group] = [span for span in changed.spans[group] if span.label_ in labels]
    missing = [changed[token.i : token.i + 1] for token in doc if not token.ent_iob_]
    missing += [changed[ent.start : ent.end] for ent in changed.ents if ent.label_ not in labels]
    changed.set_ents([ent for ent in changed.ents if ent.label_ in labels], missing=missing, default="outside")
    return changed


def _annotated_only(doc: Doc, found: Iterable[FoundEntity], gold: Set[EntityOffsets]) -> list[FoundEntity]:
    """Remove predicted entities that contain tokens with missing annotation, unless they are equal to a gold entity.

    Without gold annotation for a token, it is unknown whether an entity is an error.
    """
    missing = [(token.idx, token.idx + len(token)) for token in doc if not token.ent_iob_]
    return [
        entity
        for entity in found
        if entity.offsets in gold or all(end <= entity.start or entity.end <= start for start, end in missing)
    ]


def disagreements(
    number: int, gold: Sequence[FoundEntity], found: Sequence[FoundEntity], *, nested: bool = False
) -> list[SuspectedError]:
    """Group the gold entities and predicted entities that differ into suspected errors.

    By default, overlapping entities belong to the same suspected error. Overlapping nested entities may all be correct,
    so a gold entity and a predicted entity are grouped only if their overlap is large (see `_similar`).

    number (int): The Doc's index in the corpus.
    gold (Sequence[FoundEntity]): The gold entities.
    found (Sequence[FoundEntity]): The predicted entities.
    nested (bool): Whether entities may be nested.
    RETURNS (list[SuspectedError]): The suspected errors, ordered by position.
    """
    # Entities in both sets are correct. Only the others can be errors.
    agreed = {entity.offsets for entity in gold} & {entity.offsets for entity in found}
    sides = [[entity for entity in entities if entity.offsets not in agreed] for entities in (gold, found)]
    groups = _similar(*sides) if nested else _overlapping(*sides)
    errors = [SuspectedError(number, tuple(gold), tuple(found)) for gold, found in groups]
    return sorted(errors, key=lambda error: error.start)


def _overlapping(gold: Sequence[FoundEntity], found: Sequence[FoundEntity]) -> Sequence[EntityPair]:
    """Group gold entities and predicted entities by transitive overlap.

    If an entity overlaps two other entities, all three are in the same group.
    """
    groups: list[tuple[list[FoundEntity], list[FoundEntity]]] = []
    # Sweep over all entities in order of their start. An entity that starts after all earlier entities have ended
    # begins a new group.
    end = 0
    for entity, side in sorted([*((e, 0) for e in gold), *((e, 1) for e in found)], key=lambda pair: pair[0].start):
        if entity.start >= end:
            groups.append(([], []))
        groups[-1][side].append(entity)
        end = max(end, entity.end)
    return groups


def _similar(gold: Sequence[FoundEntity], found: Sequence[FoundEntity]) -> Sequence[EntityPair]:
    """Match gold entities with predicted entities that have a Jaccard index above 0.5.

    Pairs with the largest Jaccard index are matched first. Unmatched entities form groups with a single entity.
    """
    pairs = [(a, b) for a in gold for b in found if _overlap_ratio(a, b) > 0.5]
    groups, occupied = list[EntityPair](), set[FoundEntity]()
    for pair in sorted(pairs, key=lambda pair: (-_overlap_ratio(*pair), pair[0].label != pair[1].label)):
        if occupied.isdisjoint(pair):
            occupied.update(pair)
            groups.append(([pair[0]], [pair[1]]))
    groups += [([entity], []) for entity in gold if entity not in occupied]
    return groups + [([], [entity]) for entity in found if entity not in occupied]


def _overlap_ratio(a: FoundEntity, b: FoundEntity) -> float:
    """Return the Jaccard index (intersection over union) of two entities' characters."""
    shared = min(a.end, b.end) - max(a.start, b.start)
    return shared / (a.end - a.start + b.end - b.start - shared)


def describe_model(nlp: Language, model: str) -> str:
    """Return a name for a pipeline. If the pipeline has several `tener_ner` components, the name contains the first
    one.

    model (str): The pipeline's name on the command line.
    """
    names = list(crf_pipes(nlp))
    return f"{names[0]}, the first tener_ner of {model}" if len(names) > 1 else model
