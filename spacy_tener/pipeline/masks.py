"""Masks of allowed tags, which constrain the CRF's tag sequences. Each function implements one rule.

`allowed_tags` and `allowed_nested_tags` combine the rules for prediction: rules about characters and sentences,
existing entities, and blocked tokens. `learning/targets.py` uses some of the rules for the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import numpy as np

from ..tagging import TagLayout
from ..types import BoolArray, IntArray
from .tags import UNKNOWN, LabelIndex, Mask, encode_units
from .units import INSIDE, DocView, Units, join_units, letter_neighbours

# Key in `doc.spans` for words in existing entities that are on the blocklist of `entity_lists`. No nested entity can
# overlap these spans.
NO_ENTITIES = "tener_no_entities"


def allowed_tags(views: Sequence[DocView], labels: LabelIndex) -> Mask | None:
    """Return a mask of the tags that are allowed in prediction. Return None if all tags are allowed.

    Existing entities and blocked tokens are kept. As in spaCy's `ner`, other tokens with the tag O may become part of
    an entity.

    views (Sequence[DocView]): The Docs, as sequences of tokens or characters.
    RETURNS (Mask | None): Allowed tags for all Docs, concatenated. *Shape:* (1, units, tags)
    """
    units, possible = _possible_tags_in_context(views, labels)
    if units is not None and units.preset.any():
        possible = preset_tags(units, labels, possible)
    return None if possible is None else possible[None]


def allowed_nested_tags(
    views: Sequence[DocView], labels: LabelIndex, depth: int, best_tags: Callable[[Mask], IntArray]
) -> Mask | None:
    """Return a mask of the tags that a model for nested entities may predict. Return None if all tags are allowed.

    Existing entities and blocked tokens are kept. Other entities may be inside an existing entity or enclose it, but
    must not cross its boundaries. A mask cannot express this rule, because it has to allow or forbid a tag without
    knowing the tags around it. Therefore, the best tag sequence without existing entities decides for each depth:

        text                       北 京 大 学     existing entity: 北京
        best tags have 北京大学    B|I I|E . .     an entity may continue through 北京
        otherwise, at depth 0      B   E   . .     only 北京 itself
        otherwise, inner depths    any tags within 北京, and no entity continues into or out of it

    views (Sequence[DocView]): The Docs, as sequences of tokens or characters.
    depth (int): The number of nesting levels that the model predicts.
    best_tags (Callable[[Mask], IntArray]): Function that returns the best tag sequences under a mask. The mask has the
        shape (depth, units, tags), and the result has the shape (depth, units).
    RETURNS (Mask | None): Allowed tags for all Docs, concatenated. *Shape:* (depth, units, tags)
    """
    units, possible = _possible_tags_in_context(views, labels)
    if units is None or not units.preset.any():
        return None if possible is None else np.stack([possible] * depth)
    layout = labels.layout
    unrestricted = np.ones((len(units.iob), layout.n_tags), dtype=bool) if possible is None else possible.copy()
    is_blocked = blocked_within_preset(views) | (units.preset & (units.label == 0))
    unrestricted[is_blocked] = np.arange(layout.n_tags) == layout.outside
    existing = preset_tags(units, labels, possible)
    return np.stack(
        [
            _nested_tags(units, unrestricted, existing if level == 0 else None, tags, layout)
            for level, tags in enumerate(best_tags(np.stack([unrestricted] * depth)))
        ]
    )


def _nested_tags(units: Units, unrestricted: Mask, existing: Mask | None, best: IntArray, layout: TagLayout) -> Mask:
    """Return the mask for one depth of a model for nested entities. See `allowed_nested_tags`.

    unrestricted (Mask): The tags that are allowed if existing entities are ignored. *Shape:* (units, tags)
    existing (Mask | None): At depth 0, the mask that keeps existing entities. *Shape:* (units, tags)
    best (IntArray): The best tag sequence at this depth if existing entities are ignored. *Shape:* (units,)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    mask = unrestricted.copy() if existing is None else existing.copy()
    is_unenclosed = units.preset.copy()
    for start, end, shares_end in _enclosed_entities(units, best, layout):
        # An existing entity may break the rules for predicted entities. Then no entity encloses it at depth 0, because
        # its tags and those of the enclosing entity could not be distinguished.
        if existing is not None and not (unrestricted & existing)[start:end].any(axis=1).all():
            continue
        is_unenclosed[start:end] = False
        allowed = np.zeros((end - start, layout.n_tags), dtype=bool)
        allowed[:, layout.inside] = True
        # An entity with the same boundaries and another label must not replace the existing one. Therefore, enclosing
        # entities may share its start or its end, but not both.
        if not shares_end or end - start == 1:
            allowed[0, layout.begin] = True
        if shares_end or end - start == 1:
            allowed[-1, layout.end] = True
        allowed &= unrestricted[start:end]
        if existing is None:
            allowed[:, layout.outside] = True
        else:
            allowed |= existing[start:end]
        mask[start:end] = allowed
    follows = np.append(False, is_unenclosed[:-1])
    mask[(units.iob != INSIDE) & (is_unenclosed | follows), layout.continuers] = False
    return mask


def _enclosed_entities(units: Units, best: IntArray, layout: TagLayout) -> Iterator[tuple[int, int, bool]]:
    """Yield the existing entities that a larger entity in a tag sequence encloses: their start and end, and whether
    both entities have the same end, but different starts.

    Larger entities that cross the boundaries of another existing entity are ignored.
    """
    starts, ends, _ = layout.decode(best)
    is_inside = np.append(units.preset & (units.iob == INSIDE), False)
    is_valid = ~(is_inside[starts] | is_inside[ends])
    starts, ends = starts[is_valid], ends[is_valid]
    for start, end, _ in units.entities():
        index = int(np.searchsorted(starts, start, side="right")) - 1
        if index >= 0 and end <= ends[index] and (starts[index], ends[index]) != (start, end):
            yield start, end, bool(ends[index] == end)


def _possible_tags_in_context(views: Sequence[DocView], labels: LabelIndex) -> tuple[Units | None, Mask | None]:
    """Return the attributes of all units (tokens or characters), and a mask of the tags that the rules about Latin
    words, white space, ornaments and sentences allow.

    Each is None if there is no restriction. The mask has the shape (units, tags).
    """
    units = join_units(views)
    rules: list[Mask | None] = [tags_of_whole_words(views, labels)]
    if units is not None:
        rules += [possible_tags(units, labels), tags_within_sentences(units, labels)]
    return units, intersect(rules)


def intersect(masks: Sequence[Mask | None]) -> Mask | None:
    """Return the intersection of masks. None is a mask that allows all tags."""
    rules = [mask for mask in masks if mask is not None]
    return reduce(np.logical_and, rules) if rules else None


def join_masks(masks: Sequence[Mask | None], lengths: list[int], n_tags: int) -> Mask | None:
    """Concatenate the masks of all texts. None is a mask that allows all tags.

    If all masks are None, return None.
    """
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.ones((length, n_tags), dtype=bool) if mask is None else mask
            for mask, length in zip(masks, lengths, strict=True)
        ]
    )


def possible_tags(units: Units, labels: LabelIndex) -> Mask | None:
    """Return a mask that applies the rules for white space and ornaments. Return None if all tags are allowed.

    Entities cannot begin or end with white space or an ornament, such as an emoji, and they cannot contain a line
    break. The rules for ornaments and line breaks do not apply to labels whose training entities break them.

    *Shape:* (units, tags)
    """
    return labels.tags_by_unit_type[units.unit_type] if units.unit_type.any() else None


def tags_within_sentences(units: Units, labels: LabelIndex) -> Mask | None:
    """Return a mask that forbids entities across sentence boundaries. Return None if no sentence start is annotated.

    *Shape:* (units, tags)
    """
    return _new_segments(units.sentence_start, labels.layout) if units.sentence_start.any() else None


def tags_of_whole_words(views: Sequence[DocView], labels: LabelIndex) -> Mask | None:
    """Return a mask that forbids entities to begin or end inside a Latin word. Return None if all tags are allowed.

    The rule matters if letters are separate tokens, as in Chinese pipelines, or with `view = "characters"`. It does not
    apply to labels whose training entities often break it.

    *Shape:* (units, tags)
    """
    neighbours = letter_neighbours(views)
    return None if neighbours is None else labels.tags_by_neighbours[neighbours]


def preset_tags(units: Units, labels: LabelIndex, possible: Mask | None) -> Mask:
    """Return a mask that keeps existing entities and blocked tokens. Only their annotated tags are allowed.

    Existing entities can break the rules for predicted entities. For example, they can contain a line break. If the
    model does not have an existing entity's label, the entity's tokens are tagged O.

    possible (Mask | None): Mask of the tags that are allowed for all other units. *Shape:* (units, tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    tags = np.where(units.preset, encode_units(units, labels), UNKNOWN)
    return agreeing_tags(tags, possible, labels.layout)


def blocked_within_preset(views: Sequence[DocView]) -> BoolArray:
    """Return a mask of the tokens or characters that their Doc blocks with the span group `NO_ENTITIES`.

    The masks of all Docs are concatenated. *Shape:* (units,)
    """
    blocked_units = [np.zeros(len(view), dtype=bool) for view in views]
    for view, is_blocked in zip(views, blocked_units, strict=True):
        for span in view.doc.spans.get(NO_ENTITIES, ()):
            start, end = view.unit_span(span.start_char, span.end_char) or (0, 0)
            is_blocked[start:end] = True
    return np.concatenate(blocked_units)


def _new_segments(boundary: BoolArray, layout: TagLayout) -> Mask:
    """Return a mask that forbids entities to continue across a boundary.

    boundary (BoolArray): Mask of the tokens or characters with a boundary before them. *Shape:* (units,)
    """
    mask = np.ones((boundary.size, layout.n_tags), dtype=bool)
    mask[boundary, layout.continuers] = False
    return mask


def agreeing_tags(tags: IntArray, possible: Mask | None, layout: TagLayout, agreeing: Mask | None = None) -> Mask:
    """Return a mask of the tags that agree with an annotation.

    If a token or character is annotated, only the annotated tag is allowed. Otherwise, all possible tags are allowed.

    tags (IntArray): Annotated tags, or `UNKNOWN`. *Shape:* (units,)
    possible (Mask | None): Mask of the tags that are possible without annotation. None allows all tags. *Shape:*
        (units, tags)
    agreeing (Mask | None): Additional mask for texts that are annotated for some labels only. *Shape:* (units, tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    annotated = np.flatnonzero(tags != UNKNOWN)
    allowed = np.ones((len(tags), layout.n_tags), dtype=bool) if possible is None else possible.copy()
    allowed[annotated] = False
    allowed[annotated, tags[annotated]] = True
    return allowed if agreeing is None else allowed & agreeing
