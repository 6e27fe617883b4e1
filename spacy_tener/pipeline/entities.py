"""The record of the entities in a Doc: the only place that stores all of them, with exact character offsets.

`doc.ents` cannot store nested entities, entities that share a token, or entities that begin or end within a token.
Therefore the components of this package (`tener_ner`, `lac`, `entity_lists`) also add their entities to a list, the
*record*, and write `doc.ents` and the documented span groups from it:

    tokens               张三 在 北京大学医学院
    record               张三 PER    北京大学医学院 ORG (depth 0)   北京大学 ORG (depth 1)   北京 GPE (depth 2)
    doc.ents             张三 PER    北京大学医学院 ORG             only the longest, aligned to tokens
    spans[spans_key]     all entities that align with tokens, and their probabilities
    spans[chars_key]     all entities, and their character offsets (only with `view = "characters"`)

The record is an attribute of the span group `doc.spans["tener_entities"]`, because spaCy keeps span groups and their
attributes in `DocBin`, `to_bytes`, `to_disk`, `pickle` and `copy`, and in the processes of `nlp.pipe`. It consists of
plain numbers and strings, which stay valid if tokens are merged or a memory zone of the vocabulary ends.

`add_entities` extends the record. `read_entities` returns the entities of a Doc: everything that shows, scores,
suggests or exports entities calls it.
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

# Key of `doc.spans` for the group that contains the record, as an attribute of the same name. The group has no spans.
RECORD_KEY = "tener_entities"

# Attribute of a span group: probability of each span, as `spancat` writes it.
SCORES = "scores"

# Attribute that marks the groups written from the record, to distinguish them from groups of other components.
_WRITTEN_FROM = "written_from"


@dataclass(frozen=True)
class FoundEntity:
    """An entity that a pipeline found in a text.

    start, end (int): Character offsets in `doc.text`, whatever the tokens are.
    probability (float | None): None if the component computes no probabilities.
    """

    start: int
    end: int
    label: str
    probability: float | None

    @property
    def offsets(self) -> EntityOffsets:
        """Start, end and label."""
        return self.start, self.end, self.label


class RecordedEntity(NamedTuple):
    """An entity in the record of a Doc. A tuple, since one is made and stored for each entity of each text.

    start, end (int): Character offsets in `doc.text`, whatever the tokens are.
    probability (float | None): None if the component computes no probabilities.
    origin (str): Where the entity comes from: a model, an entity list, or `doc.ents` as another component or the user
        set it.
    aligned (tuple[int, int] | None): Character offsets of the entity's tokens by the `alignment_mode` of the component.
        None if this mode leaves out the entity.
    ent (EntityOffsets | None): The entity of `doc.ents` that represents this one: the entity itself, aligned to tokens,
        or the one that occupies its tokens. None if there is none, which `alignment_mode = "strict"` makes possible.
    depth (int): Nesting depth: 0 for an entity that lies within no other entity.
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
        """Start, end and label."""
        return self.start, self.end, self.label


class UnitEntity(NamedTuple):
    """An entity in units of the view (tokens or characters), as `TenerNER.predict` returns it.

    probability (float | None): None if the settings of the component do not ask for probabilities.
    """

    start: int
    end: int
    label: str
    probability: float | None = None


def read_entities(doc: Doc, keys: Iterable[str] = ()) -> list[RecordedEntity]:
    """Return all entities of a Doc, sorted by start, end and label.

    `doc.ents` takes precedence over the record, since any component may change it. An entity of the record is left out
    if its representative is no longer in `doc.ents`. Other entities of `doc.ents` are returned without a probability.

    keys (Iterable[str]): Groups of `doc.spans` whose spans are entities as well, for example the group of a `spancat`.
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
    """Add the entities that a model found in a Doc to the record, to `doc.ents`, and to the span groups.

    Existing entities and blocked tokens stay as they are. Tokens without annotation become outside. If entities share
    tokens, `doc.ents` gets the longest.

    nested (bool): Whether new entities may lie within existing ones. Otherwise they are left out there.
    """
    doc = view.doc
    record: list[RecordedEntity] = []
    known, blocked = set[EntityOffsets](), list[int]()
    if doc.has_annotation(ENT_IOB):
        # A Doc that was put together by hand may have an I tag without its B tag, which spaCy corrects here.
        doc.set_ents([], default="unmodified")
        record, blocked = read_entities(doc), _blocked_tokens(doc)
        # Decoding repeats existing entities, aligned to units of the view.
        known = {entity.offsets for entity in record} | {entity.offsets for entity in existing_entities(view)}
    if settings.spans_key:
        # Decoding takes existing entities as given: their probability is 1, unless an earlier component computed it.
        record = [entity._replace(probability=1.0) if entity.probability is None else entity for entity in record]
    ents = list(doc.ents)
    ent_of_token: dict[int, EntityOffsets | None] = dict.fromkeys(blocked)
    ent_of_token |= {i: offsets_of(ent) for ent in ents for i in range(ent.start, ent.end)}
    occupied = set(ent_of_token)
    for entity in sorted(found, key=lambda entity: entity.start - entity.end):
        offsets = (*view.char_span(entity.start, entity.end), entity.label)
        overlapped = range(*view.token_span(entity.start, entity.end, "expand"))
        if offsets in known or not (nested or occupied.isdisjoint(overlapped)):
            continue
        tokens = range(*view.token_span(entity.start, entity.end, settings.alignment_mode))
        aligned = None
        if tokens:
            span = Span(doc, tokens.start, tokens.stop, label=entity.label)
            aligned = span.start_char, span.end_char
            if ent_of_token.keys().isdisjoint(tokens):
                ents.append(span)
                ent_of_token.update(dict.fromkeys(tokens, (*aligned, entity.label)))
        # The entity itself, if it is in doc.ents, and otherwise the one that occupies its tokens.
        ent = next((ent_of_token[i] for i in tokens or overlapped if i in ent_of_token), None)
        record.append(RecordedEntity(*offsets, entity.probability, "model", aligned, ent))
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


def add_listed_entities(doc: Doc, spans: Iterable[Span]) -> None:
    """Add entities from an entity list, which are in `doc.ents` already, to the record."""
    entities = {entity.offsets: entity for entity in read_entities(doc)}
    for offsets in map(offsets_of, spans):
        entities[offsets] = RecordedEntity(*offsets, 1.0, "list", aligned=offsets[:2], ent=offsets)
    _write_record(doc, sorted(entities.values(), key=lambda entity: entity.offsets))


def without_entities(doc: Doc) -> Doc:
    """Return the Doc itself if it has neither entities nor blocked tokens, otherwise a copy without them."""
    if not doc.has_annotation(ENT_IOB):
        return doc
    copy = doc.copy()
    copy.set_ents([], default="missing")
    copy.spans.pop(RECORD_KEY, None)
    return copy


def existing_entities(view: DocView) -> tuple[FoundEntity, ...]:
    """Return the entities that a Doc has before a model processes it, aligned to units of the view.

    Their probability is 1, because decoding takes them as given.
    """
    if not view.doc.has_annotation(ENT_IOB):
        return ()
    strings = view.doc.vocab.strings
    return tuple(
        FoundEntity(*view.char_span(start, end), strings[label], 1.0) for start, end, label in view.units().entities()
    )


def outermost(entities: Iterable[FoundEntity]) -> list[FoundEntity]:
    """Return the entities that lie within no other one."""
    entities = list(entities)
    depths = nesting_depths([entity.offsets for entity in entities])
    return [entity for entity, depth in zip(entities, depths, strict=True) if depth == 0]


def offsets_of(span: Span) -> EntityOffsets:
    """Return the character offsets and the label of a span."""
    return span.start_char, span.end_char, span.label_


def spans_of(doc: Doc, entities: Iterable[EntityOffsets]) -> list[Span]:
    """Return the spans of all tokens that entities overlap."""
    spans = (doc.char_span(start, end, label, alignment_mode="expand") for start, end, label in entities)
    return [span for span in spans if span is not None]


def _existing_entity(offsets: EntityOffsets, probability: float | None) -> RecordedEntity:
    return RecordedEntity(*offsets, probability, "existing", aligned=offsets[:2], ent=offsets)


def _read_record(doc: Doc) -> Iterator[RecordedEntity]:
    group = doc.spans.get(RECORD_KEY)
    for start, end, label, probability, origin, aligned, ent, depth in () if group is None else group.attrs[RECORD_KEY]:
        # msgpack, in which spaCy stores attributes, turns tuples into lists.
        pair, triple = aligned and tuple(aligned), ent and tuple(ent)
        yield RecordedEntity(start, end, label, probability, origin, pair, triple, depth)


def _write_record(doc: Doc, record: list[RecordedEntity]) -> None:
    if record or RECORD_KEY in doc.spans:
        doc.spans[RECORD_KEY] = SpanGroup(doc, name=RECORD_KEY, attrs={RECORD_KEY: record})


def _find_ent(doc: Doc, ent: EntityOffsets | None, ents: set[EntityOffsets]) -> EntityOffsets | None:
    """Return an entity that `doc.ents` had, or the one that has its place since its tokens were merged with others.

    Return None if there is neither.
    """
    if ent is None or ent in ents:
        return ent
    start, end, label = ent
    if doc.char_span(start, end) is not None:  # its tokens are still there, but the entity was removed or changed
        return None
    return next((other for other in ents if other[0] <= start and end <= other[1] and other[2] == label), None)


def _read_group(doc: Doc, key: str) -> list[tuple[EntityOffsets, float | None]]:
    """Return the spans of another component's group with their probabilities.

    A `spancat` writes no scores for a text that is shorter than its spans, and a component that replaces the spans of a
    group drops their scores.
    """
    group = doc.spans.get(key)
    if group is None or _WRITTEN_FROM in group.attrs:
        return []
    scores = group.attrs.get(SCORES, ())
    probabilities = [float(score) for score in scores] if len(scores) == len(group) else [None] * len(group)
    return list(zip(map(offsets_of, group), probabilities, strict=True))


def _blocked_tokens(doc: Doc) -> list[int]:
    """Return the indices of the tokens that no entity may contain, which spaCy marks by B without an entity type."""
    iob, label = doc.to_array([ENT_IOB, ENT_TYPE]).T
    blocked: list[int] = np.flatnonzero((iob == BEGIN) & (label == 0)).tolist()
    return blocked


def _write_scores(doc: Doc, record: Sequence[RecordedEntity], key: str) -> None:
    """Write the entities that align with tokens, and their probabilities, to a group in the form of a `spancat`."""
    group = doc.spans.get(key)
    if group is not None and len(group) and _WRITTEN_FROM not in group.attrs:
        warnings.warn(
            f"doc.spans['{key}'] of another component is overwritten. Set another spans_key for tener_ner.",
            stacklevel=2,
        )
    probabilities: dict[EntityOffsets, float | None] = {}
    # If several entities align to the same tokens, the probability of the longest is written.
    for entity in sorted(record, key=lambda entity: entity.start - entity.end):
        if entity.aligned is not None:
            probabilities.setdefault((*entity.aligned, entity.label), entity.probability)
    rows = sorted(probabilities.items(), key=lambda row: (row[0][0], -row[0][1], row[0][2]))
    scores = np.array([probability for _, probability in rows], dtype=np.float64)
    _write_group(doc, key, spans_of(doc, (offsets for offsets, _ in rows)), {SCORES: scores})


def _write_offsets(doc: Doc, record: Sequence[RecordedEntity], key: str, *, has_scores: bool) -> None:
    """Write all entities to a group, as spans of the tokens that they overlap, with their character offsets."""
    attrs: dict[str, Any] = {"char_offsets": [[entity.start, entity.end] for entity in record]}
    if has_scores:
        attrs["char_scores"] = np.array([entity.probability for entity in record], dtype=np.float64)
    _write_group(doc, key, spans_of(doc, (entity.offsets for entity in record)), attrs)


def _write_group(doc: Doc, key: str, spans: list[Span], attrs: dict[str, Any]) -> None:
    doc.spans[key] = SpanGroup(doc, name=key, spans=spans, attrs={**attrs, _WRITTEN_FROM: RECORD_KEY})
