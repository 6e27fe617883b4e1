"""Entities within entities: how deep each lies, and the annotation of each path of the CRF."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spacy.tokens import Doc, Span

from ..errors import RemedyError
from ..types import EntityOffsets


def nesting_depths(entities: Sequence[EntityOffsets]) -> list[int]:
    """Return the depth of each entity: 0 if it overlaps no longer one.

    The longest come first, and of equal ones those of the first label in the alphabet. Each lies at the first depth
    where it overlaps none before it.
    """
    return _assign_levels(entities, sorted(range(len(entities)), key=lambda i: _by_length(entities[i])))


def nesting_levels(entities: Sequence[EntityOffsets]) -> list[int]:
    """Return the level of each entity, which has its own path of the CRF: 0 for the outermost, as in `nesting_depths`;
    for the others from 1 on, the innermost first.

    Counted from inside, the level of a city in the name of an institute is the same whether the name of a university is
    around it or not.
    """
    depths = nesting_depths(entities)
    inner = [i for i, depth in enumerate(depths) if depth]
    order = sorted(range(len(inner)), key=lambda i: _by_length(entities[inner[i]]), reverse=True)
    levels = dict(zip(inner, _assign_levels([entities[i] for i in inner], order), strict=True))
    return [levels[i] + 1 if depth else 0 for i, depth in enumerate(depths)]


def _by_length(entity: EntityOffsets) -> tuple[int, int, str]:
    start, end, label = entity
    return start - end, start, label


def _assign_levels(entities: Sequence[EntityOffsets], order: Iterable[int]) -> list[int]:
    """Assign entities to levels so that those of one level do not overlap. Return the level of each entity.

    order (Iterable[int]): The indices of the entities. In this order, each gets the lowest level that is free.
    """
    size = max((end for _, end, _ in entities), default=0)
    levels = [0] * len(entities)
    occupied: list[bytearray] = []  # For each level, 1 for the positions of its entities. Searched at the speed of C.
    for index in order:
        start, end, _ = entities[index]
        level = next((i for i, positions in enumerate(occupied) if positions.find(1, start, end) < 0), len(occupied))
        if level == len(occupied):
            occupied.append(bytearray(size))
        occupied[level][start:end] = b"\1" * (end - start)
        levels[index] = level
    return levels


def all_entities(doc: Doc, key: str | None) -> list[Span]:
    """Return the entities of `doc.ents` and of the group `key` of `doc.spans`, each once."""
    group = doc.spans.get(key, ())
    return list({(span.start, span.end, span.label): span for span in (*doc.ents, *group)}.values())


def check_annotation(docs: Iterable[Doc], key: str | None, depth: int) -> None:
    """Raise if no Doc has entities within others annotated, or if these are nested deeper than a model can find."""
    is_annotated, deepest, text = False, 0, ""
    for doc in docs:
        is_annotated |= key in doc.spans
        annotated = max(_levels(all_entities(doc, key)), default=0) + 1
        if annotated > deepest:
            deepest, text = annotated, doc.text
    _check_depth(text, deepest, depth)
    if not is_annotated:
        raise RemedyError(
            f"No text of the training data has doc.spans['{key}']",
            "Convert it with `--overlap spans`, or set spans_key to the group that it has.",
        )


def _levels(spans: Sequence[Span]) -> list[int]:
    return nesting_levels([(span.start, span.end, span.label_) for span in spans])


def _check_depth(text: str, annotated: int, depth: int) -> None:
    if annotated > depth:
        raise RemedyError(
            f"Entities are nested {annotated} deep, but the model has a depth of {depth}: {text[:60]!r}",
            f"Set depth = {annotated} in the section of CRFTagger, or remove the innermost entities.",
        )


def split_reference(reference: Doc, key: str | None, depth: int) -> list[Doc]:
    """Return the annotation of each level as a Doc with these entities in `doc.ents`.

    Where annotation is missing in `doc.ents`, it is at each level. Without the group, it is missing within entities.
    """
    if depth == 1:
        return [reference]
    spans = all_entities(reference, key)
    levels = _levels(spans)
    _check_depth(reference.text, max(levels, default=0) + 1, depth)
    missing = {token.i for token in reference if token.ent_iob == 0}
    references = []
    for level in range(depth):
        doc = reference.copy()
        ents = [span for span, span_level in zip(spans, levels, strict=True) if span_level == level]
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
