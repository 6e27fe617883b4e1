"""Masks of allowed tags, which constrain the tag sequences of the CRF. Each function implements one rule.

`allowed_tags` combines the rules for prediction: rules about characters and sentences, existing entities, and blocked
tokens. `learning/targets.py` uses some of the rules for the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from ..tagging import TagLayout
from ..types import BoolArray, IntArray
from .tags import UNKNOWN, LabelIndex, Mask, encode_units
from .units import INSIDE, DocView, Units, join_units, letter_neighbours

# Key of `doc.spans` for words in existing entities that the blocklist of `entity_lists` contains. No nested entity can
# overlap these spans.
NO_ENTITIES = "tener_no_entities"


def allowed_tags(views: Sequence[DocView], labels: LabelIndex, depth: int) -> Mask | None:
    """Return a mask of the tags that are allowed in prediction. Return None if all tags are allowed.

    Existing entities and blocked tokens are kept. As in spaCy's `ner`, other tokens with the tag O may become part of
    an entity.

    views (Sequence[DocView]): The Docs, as sequences of tokens or characters.
    depth (int): The number of nesting levels that the model predicts.
    RETURNS (Mask | None): Allowed tags of all Docs, concatenated. *Shape:* (depth, units, tags)
    """
    units = join_units(views)
    limits: list[Mask | None] = [tags_of_whole_words(views, labels)]
    if units is not None:
        limits += [possible_tags(units, labels), tags_within_sentences(units, labels)]
    if units is None or not units.preset.any():
        mask = intersect(limits)
        return mask if mask is None else np.stack([mask] * depth)
    limit = intersect(limits)
    outer = preset_tags(units, labels, limit)
    if depth == 1:
        return outer[None]
    inner = tags_within_preset(units, blocked_within_preset(views), labels)
    return np.stack([outer, *[inner if limit is None else inner & limit] * (depth - 1)])


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
    model does not have the label of an existing entity, the tokens of the entity are tagged O.

    possible (Mask | None): Mask of the tags that are allowed for all other units. *Shape:* (units, tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    tags = np.where(units.preset, encode_units(units, labels), UNKNOWN)
    return agreeing_tags(tags, possible, labels.layout)


def tags_within_preset(units: Units, blocked_units: BoolArray, labels: LabelIndex) -> Mask:
    """Return a mask for nested entities. They must not cross the boundaries of existing entities or contain blocked
    tokens.

    blocked_units (BoolArray): Mask of the tokens or characters that `blocked_within_preset` returns. *Shape:* (units,)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    # A boundary is at the first unit of an existing entity, and at the first unit after it.
    mask = _new_segments((units.iob != INSIDE) & (units.preset | np.append(False, units.preset[:-1])), labels.layout)
    mask[blocked_units | (units.preset & (units.label == 0))] = np.arange(labels.layout.n_tags) == labels.layout.outside
    return mask


def blocked_within_preset(views: Sequence[DocView]) -> BoolArray:
    """Return a mask of the tokens or characters that are blocked by the span group `NO_ENTITIES` of their Doc.

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
    possible (Mask | None): Mask of the possible tags without annotation. None allows all tags. *Shape:* (units, tags)
    agreeing (Mask | None): Additional mask for texts that are annotated for some labels only. *Shape:* (units, tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    annotated = np.flatnonzero(tags != UNKNOWN)
    allowed = np.ones((len(tags), layout.n_tags), dtype=bool) if possible is None else possible.copy()
    allowed[annotated] = False
    allowed[annotated, tags[annotated]] = True
    return allowed if agreeing is None else allowed & agreeing
