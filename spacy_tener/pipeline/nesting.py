"""Entities within entities: how deep each lies, and the annotation of each depth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spacy.tokens import Doc, Span

from ..errors import RemedyError
from .entities import EntityOffsets, FoundEntity


def nesting_depths(entities: Sequence[EntityOffsets]) -> list[int]:
    """Return the depth of each entity: 0 if it overlaps no longer one.

    The longest come first, and of equal ones those of the first label in the alphabet. Each lies at the first depth
    where it overlaps none before it.
    """
    depths, taken = [0] * len(entities), list[set[int]]()
    for index in sorted(range(len(entities)), key=lambda i: (entities[i][0] - entities[i][1], *entities[i])):
        positions = range(*entities[index][:2])
        depth = next((i for i, others in enumerate(taken) if others.isdisjoint(positions)), len(taken))
        taken += [set()] * (depth == len(taken))
        taken[depth] = taken[depth].union(positions)
        depths[index] = depth
    return depths


def outermost(entities: Iterable[FoundEntity]) -> list[FoundEntity]:
    """Return the entities that overlap no longer one."""
    entities = list(entities)
    depths = nesting_depths([entity.offsets for entity in entities])
    return [entity for entity, depth in zip(entities, depths, strict=True) if depth == 0]


def all_entities(doc: Doc, key: str | None) -> list[Span]:
    """Return the entities of `doc.ents` and of the group `key` of `doc.spans`, each once."""
    group = doc.spans.get(key, ())
    return list({(span.start, span.end, span.label): span for span in (*doc.ents, *group)}.values())


def check_annotation(docs: Iterable[Doc], key: str | None, depth: int) -> None:
    """Raise if no Doc has entities within others annotated, or if these are nested deeper than a model can find."""
    is_annotated, deepest, text = False, 0, ""
    for doc in docs:
        is_annotated |= key in doc.spans
        annotated = max(_depths(all_entities(doc, key)), default=0) + 1
        if annotated > deepest:
            deepest, text = annotated, doc.text
    _check_depth(text, deepest, depth)
    if not is_annotated:
        raise RemedyError(
            f"No text of the training data has doc.spans['{key}']",
            "Convert it with `--overlap spans`, or set spans_key to the group that it has.",
        )


def _depths(spans: Sequence[Span]) -> list[int]:
    return nesting_depths([(span.start, span.end, span.label_) for span in spans])


def _check_depth(text: str, annotated: int, depth: int) -> None:
    if annotated > depth:
        raise RemedyError(
            f"Entities are nested {annotated} deep, but the model has a depth of {depth}: {text[:60]!r}",
            f"Set depth = {annotated} in the section of CRFTagger, or remove the innermost entities.",
        )


def split_reference(reference: Doc, key: str | None, depth: int) -> list[Doc]:
    """Return the annotation of each depth as a Doc with these entities in `doc.ents`.

    Where annotation is missing in `doc.ents`, it is at each depth. Without the group, it is missing within entities.
    """
    if depth == 1:
        return [reference]
    spans = all_entities(reference, key)
    depths = _depths(spans)
    _check_depth(reference.text, max(depths, default=0) + 1, depth)
    missing = {token.i for token in reference if token.ent_iob == 0}
    references = []
    for level in range(depth):
        doc = reference.copy()
        ents = [span for span, span_depth in zip(spans, depths, strict=True) if span_depth == level]
        unknown = missing.difference(*(range(span.start, span.end) for span in ents))
        if level and key not in reference.spans:
            unknown = set(range(len(doc)))
        doc.set_ents(
            [Span(doc, span.start, span.end, label=span.label) for span in ents],
            missing=[doc[i : i + 1] for i in unknown],
            default="outside",
        )
        references.append(doc)
    return references
