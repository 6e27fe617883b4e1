"""A Doc's entity record, a list that stores all its entities with exact character offsets.

`doc.ents` cannot store entities that overlap, or entities that begin or end within a token. So `tener_ner`, `lac` and
`entity_lists` store their entities in the entity record, and derive `doc.ents` and span groups from it:

    tokens               张三 在 北京大学医学院
    entity record        张三 PER    北京大学医学院 ORG (depth 0)   北京大学 ORG (depth 1)   北京 GPE (depth 2)
    doc.ents             张三 PER    北京大学医学院 ORG             only the longest, aligned to tokens
    spans[spans_key]     all entities that align with tokens, and their probabilities
    spans[chars_key]     all entities, and their character offsets (only with `view = "characters"`)

The entity record is an attribute of the span group `doc.spans["tener_entities"]`. spaCy preserves this attribute when a
Doc is copied, serialized, or passed between processes. The entity record consists of plain numbers and strings. They
stay valid if tokens are merged or if one of the vocabulary's memory zones ends.

`add_entities` adds entities to the record, and `read_entities` returns all entities in a Doc. All tools that display,
score or export entities call `read_entities`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.tokens import Doc, Span, SpanGroup

from ..types import EntityOffsets
from .nesting import nesting_depths
from .settings import NERSettings
from .units import BEGIN, DocView

# Key of the span group that stores the entity record, and name of the group's attribute with the record. The span group
# itself is empty.
RECORD_KEY = "tener_entities"

# Name of the span group attribute with each span's probability, as in `spancat`.
SCORES = "scores"

# Name of the attribute that marks span groups derived from the entity record. Span groups from other components don't
# have it.
_WRITTEN_FROM = "written_from"


@dataclass(frozen=True)
class FoundEntity:
    """An entity that a pipeline has predicted in a text.

    start, end (int): Character offsets in `doc.text`, which need not align with tokens.
    label (str): The label.
    probability (float | None): Marginal probability. None if the component does not compute probabilities.
    """

    start: int
    end: int
    label: str
    probability: float | None

    @property
    def offsets(self) -> EntityOffsets:
        """The entity's start, end and label."""
        return self.start, self.end, self.label


class RecordedEntity(NamedTuple):
    """An entity in a Doc's entity record.

    Entities are created and serialized often, so this class is a named tuple.

    start, end (int): Character offsets in `doc.text`, which need not align with tokens.
    label (str): The label.
    probability (float | None): Marginal probability. None if the component does not compute probabilities.
    origin (str): "model" for a predicted entity, "list" for an entity from an entity list, and "existing" for any other
        entity in `doc.ents`.
    aligned (tuple[int, int] | None): Character offsets after the entity is aligned to tokens with the component's
        `alignment_mode`. None if the entity can't be aligned.
    ent (EntityOffsets | None): The corresponding entity in `doc.ents`: either this entity, aligned to tokens, or an
        entity that contains its tokens. None if there is no such entity, which is possible with `alignment_mode =
        "strict"`.
    depth (int): Nesting depth. 0 for an outermost entity.
    """

    start: int
    end: int
    label: str
    probability: float | None
    origin: Literal["model", "list", "existing"] = "model"
    aligned: tuple[int, int] | None = None
    ent: EntityOffsets | None = None
    depth: int = 0

    @property
    def offsets(self) -> EntityOffsets:
        """The entity's start, end and label."""
        return self.start, self.end, self.label


class UnitEntity(NamedTuple):
    """An entity that `TenerNER.predict` returns. A unit is a token or a character.

    start, end (int): Unit indices. The end is exclusive.
    label (str): The label.
    probability (float | None): Marginal probability. None if the component's settings do not require probabilities.
    """

    start: int
    end: int
    label: str
    probability: float | None = None


def read_entities(doc: Doc, keys: Iterable[str] = ()) -> list[RecordedEntity]:
    """Return all entities in a Doc, sorted by start, end and label.

    These are the entities in the entity record, and other entities in `doc.ents`, which have no probability. If another
    component has removed an entity from `doc.ents`, the entity and those nested in it are left out.

    doc (Doc): The Doc.
    keys (Iterable[str]): Keys of additional span groups whose spans are returned as entities, for example the key that
        a `spancat` uses.
    """
    ents = {offsets_of(ent) for ent in doc.ents} if doc.has_annotation(ENT_IOB) else set()
    entities = []
    for entity in _read_record(doc):
        ent = _find_ent(doc, entity.ent, ents)
        if ent is not None or entity.ent is None:
            entities.append(entity if ent == entity.ent else entity._replace(ent=ent))
    represented = {entity.ent for entity in entities}
    entities += [_existing_entity(ent, None) for ent in ents if ent not in represented]
    known = {entity.offsets for entity in entities}
    for key in keys:
        others = {offsets: probability for offsets, probability in _read_group(doc, key) if offsets not in known}
        entities += [_existing_entity(offsets, probability) for offsets, probability in others.items()]
        known.update(others)
    return sorted(entities, key=lambda entity: entity.offsets)


def add_entities(view: DocView, found: Iterable[UnitEntity], settings: NERSettings, *, nested: bool = False) -> None:
    """Add predicted entities to a Doc's entity record, `doc.ents` and span groups.

    Existing entities and blocked tokens are kept. Tokens without annotation are set to O. If entities overlap, only the
    longest one is added to `doc.ents`.

    view (DocView): The Doc's units, which are tokens or characters.
    found (Iterable[UnitEntity]): The predicted entities.
    settings (NERSettings): The component's settings.
    nested (bool): Whether to add predicted entities that overlap with existing entities.
    """
    doc, found = view.doc, list(found)
    record: list[RecordedEntity] = []
    known, blocked = set[EntityOffsets](), list[int]()
    if doc.has_annotation(ENT_IOB):
        # A Doc that was created manually can have an I tag without a B tag before it. `set_ents` corrects such tags.
        doc.set_ents([], default="unmodified")
        record, blocked = read_entities(doc), _blocked_tokens(doc)
        # `found` also contains the existing entities, aligned to units. They should not be added twice. Decoding does
        # not know entities that have no corresponding entity in `doc.ents`. If it finds one again, it is replaced.
        known = {entity.offsets for entity in record if entity.ent is not None}
        known |= {entity.offsets for entity in existing_entities(view)}
    if settings.spans_key:
        # Decoding treats existing entities as certain, so their probability is 1 unless an earlier component has set
        # it.
        record = [entity._replace(probability=1.0) if entity.probability is None else entity for entity in record]
    ents = list(doc.ents)
    ent_of_token: dict[int, EntityOffsets | None] = dict.fromkeys(blocked)
    ent_of_token |= {i: offsets_of(ent) for ent in ents for i in range(ent.start, ent.end)}
    occupied = set(ent_of_token)
    new: dict[EntityOffsets, RecordedEntity] = {}
    kept = _covered_characters(view, found, record)
    # The longest entities come first, since they take precedence in `doc.ents`.
    for entity in sorted(found, key=lambda entity: entity.start - entity.end):
        offsets = (*view.char_span(entity.start, entity.end), entity.label)
        overlapped = range(*view.token_span(entity.start, entity.end, "expand"))
        if offsets in known or not (nested or occupied.isdisjoint(overlapped)):
            continue
        if not nested and kept.find(1, *offsets[:2]) >= 0:
            continue
        tokens = range(*view.token_span(entity.start, entity.end, settings.alignment_mode))
        aligned = None
        if tokens:
            span = Span(doc, tokens.start, tokens.stop, label=entity.label)
            aligned = span.start_char, span.end_char
            if ent_of_token.keys().isdisjoint(tokens):
                ents.append(span)
                ent_of_token.update(dict.fromkeys(tokens, (*aligned, entity.label)))
        # The corresponding entity in `doc.ents`: the entity itself, or an entity that already contains its tokens.
        ent = next((ent_of_token[i] for i in tokens or overlapped if i in ent_of_token), None)
        new[offsets] = RecordedEntity(*offsets, entity.probability, "model", aligned, ent)
    record = [*(entity for entity in record if entity.offsets not in new), *new.values()]
    doc.set_ents(ents, blocked=[doc[i : i + 1] for i in blocked], default="outside")
    record.sort(key=lambda entity: entity.offsets)
    if nested:
        depths = nesting_depths([entity.offsets for entity in record])
        record = [entity._replace(depth=depth) for entity, depth in zip(record, depths, strict=True)]
    _write_record(doc, record)
    if settings.spans_key:
        _write_scores(doc, record, settings.spans_key)
    if settings.view == "characters" and settings.chars_key:
        _write_offsets(doc, record, settings.chars_key, has_scores=settings.spans_key is not None)


def _covered_characters(view: DocView, found: Iterable[UnitEntity], record: Sequence[RecordedEntity]) -> bytearray:
    """Mark the characters of recorded entities that are kept: those that are not found again with the same offsets."""
    covered = bytearray(len(view.doc.text)) if record else bytearray()
    again = {(*view.char_span(entity.start, entity.end), entity.label) for entity in found} if record else set()
    for entity in record:
        if entity.ent is not None or entity.offsets not in again:
            covered[entity.start : entity.end] = b"\1" * (entity.end - entity.start)
    return covered


def add_listed_entities(doc: Doc, spans: Iterable[Span]) -> None:
    """Add entities from an entity list to the entity record. They must already be in `doc.ents`."""
    entities = {entity.offsets: entity for entity in read_entities(doc)}
    for offsets in map(offsets_of, spans):
        entities[offsets] = RecordedEntity(*offsets, 1.0, "list", aligned=offsets[:2], ent=offsets)
    _write_record(doc, sorted(entities.values(), key=lambda entity: entity.offsets))


def without_entities(doc: Doc) -> Doc:
    """Return a copy of a Doc without entities and blocked tokens.

    If the Doc has neither, it is returned without a copy.
    """
    if not doc.has_annotation(ENT_IOB):
        return doc
    copy = doc.copy()
    copy.set_ents([], default="missing")
    copy.spans.pop(RECORD_KEY, None)
    return copy


def existing_entities(view: DocView) -> tuple[FoundEntity, ...]:
    """Return the existing entities in a Doc, aligned to units. A unit is a token or a character.

    Existing entities are in `doc.ents` before the model is run. Their probability is 1, because decoding always keeps
    them.
    """
    if not view.doc.has_annotation(ENT_IOB):
        return ()
    strings = view.doc.vocab.strings
    return tuple(
        FoundEntity(*view.char_span(start, end), strings[label], 1.0) for start, end, label in view.units().entities()
    )


def outermost(entities: Iterable[FoundEntity]) -> list[FoundEntity]:
    """Return the entities that are not nested in another entity."""
    entities = list(entities)
    depths = nesting_depths([entity.offsets for entity in entities])
    return [entity for entity, depth in zip(entities, depths, strict=True) if depth == 0]


def offsets_of(span: Span) -> EntityOffsets:
    """Return a span's character offsets and label."""
    return span.start_char, span.end_char, span.label_


def spans_of(doc: Doc, entities: Iterable[EntityOffsets]) -> list[Span]:
    """Convert entities to spans. Each span contains all tokens that the entity overlaps with."""
    spans = (doc.char_span(start, end, label, alignment_mode="expand") for start, end, label in entities)
    return [span for span in spans if span is not None]


def _existing_entity(offsets: EntityOffsets, probability: float | None) -> RecordedEntity:
    return RecordedEntity(*offsets, probability, "existing", aligned=offsets[:2], ent=offsets)


def _read_record(doc: Doc) -> Iterator[RecordedEntity]:
    group = doc.spans.get(RECORD_KEY)
    # `Doc.to_json`, `Doc.from_docs` and `Example.to_dict` keep span groups, but drop their attributes.
    rows = () if group is None else group.attrs.get(RECORD_KEY, ())
    for start, end, label, probability, origin, aligned, ent, depth in rows:
        # spaCy serializes attributes with msgpack, which converts tuples to lists.
        pair, triple = aligned and tuple(aligned), ent and tuple(ent)
        yield RecordedEntity(start, end, label, probability, origin, pair, triple, depth)


def _write_record(doc: Doc, record: list[RecordedEntity]) -> None:
    if record or RECORD_KEY in doc.spans:
        doc.spans[RECORD_KEY] = SpanGroup(doc, name=RECORD_KEY, attrs={RECORD_KEY: record})


def _find_ent(doc: Doc, ent: EntityOffsets | None, ents: set[EntityOffsets]) -> EntityOffsets | None:
    """Return the entity in `doc.ents` that corresponds to an entity from the entity record.

    This is the same entity or, if its tokens were merged with others, an entity with the same label that contains it.

    doc (Doc): The Doc.
    ent (EntityOffsets | None): The entity as it was in `doc.ents` when the entity record was written.
    ents (set[EntityOffsets]): The current entities in `doc.ents`.
    RETURNS (EntityOffsets | None): The corresponding entity, or None if it was removed or changed.
    """
    if ent is None or ent in ents:
        return ent
    start, end, label = ent
    if doc.char_span(start, end) is not None:  # The tokens were not merged, so the entity was removed.
        return None
    return next((other for other in ents if other[0] <= start and end <= other[1] and other[2] == label), None)


def _read_group(doc: Doc, key: str) -> list[tuple[EntityOffsets, float | None]]:
    """Return the spans in another component's span group, with their probabilities.

    The probabilities are None if the span group has no scores.
    """
    group = doc.spans.get(key)
    if group is None or _WRITTEN_FROM in group.attrs:
        return []
    # `spancat` writes no scores for texts that are shorter than its spans. Components that replace the spans drop the
    # scores.
    scores = group.attrs.get(SCORES, ())
    probabilities = [float(score) for score in scores] if len(scores) == len(group) else [None] * len(group)
    return list(zip(map(offsets_of, group), probabilities, strict=True))


def _blocked_tokens(doc: Doc) -> list[int]:
    """Return the indices of blocked tokens, which can't be part of an entity."""
    # spaCy marks a blocked token with the tag B and an empty label.
    iob, label = doc.to_array([ENT_IOB, ENT_TYPE]).T
    blocked: list[int] = np.flatnonzero((iob == BEGIN) & (label == 0)).tolist()
    return blocked


def _write_scores(doc: Doc, record: Sequence[RecordedEntity], key: str) -> None:
    """Write entities that align with tokens to a span group, together with their probabilities.

    The span group has the same format as one from a `spancat`.
    """
    group = doc.spans.get(key)
    if group is not None and len(group) and _WRITTEN_FROM not in group.attrs:
        warnings.warn(
            f"doc.spans['{key}'] of another component is overwritten. Set another spans_key for tener_ner.",
            stacklevel=2,
        )
    probabilities: dict[EntityOffsets, float | None] = {}
    # If several entities with the same label align to the same tokens, the probability of the longest one is used.
    for entity in sorted(record, key=lambda entity: entity.start - entity.end):
        if entity.aligned is not None:
            probabilities.setdefault((*entity.aligned, entity.label), entity.probability)
    rows = sorted(probabilities.items(), key=lambda row: (row[0][0], -row[0][1], row[0][2]))
    scores = np.array([probability for _, probability in rows], dtype=np.float64)
    _write_group(doc, key, spans_of(doc, (offsets for offsets, _ in rows)), {SCORES: scores})


def _write_offsets(doc: Doc, record: Sequence[RecordedEntity], key: str, *, has_scores: bool) -> None:
    """Write all entities to a span group, together with their character offsets.

    Each span contains all tokens that the entity overlaps with.
    """
    attrs: dict[str, Any] = {"char_offsets": [[entity.start, entity.end] for entity in record]}
    if has_scores:
        attrs["char_scores"] = np.array([entity.probability for entity in record], dtype=np.float64)
    _write_group(doc, key, spans_of(doc, (entity.offsets for entity in record)), attrs)


def _write_group(doc: Doc, key: str, spans: list[Span], attrs: dict[str, Any]) -> None:
    doc.spans[key] = SpanGroup(doc, name=key, spans=spans, attrs={**attrs, _WRITTEN_FROM: RECORD_KEY})
