"""Masks of allowed tags, which restrict the tag sequences of the CRF. There is one function for each rule.

`allowed_tags` combines all rules for prediction: limits that follow from the text, existing entities, and blocked
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

# Key of `doc.spans` for blocked words within existing entities: no nested entity may overlap with these spans. The
# component `entity_lists` writes the group.
NO_ENTITIES = "tener_no_entities"


def allowed_tags(views: Sequence[DocView], labels: LabelIndex, depth: int) -> Mask | None:
    """Return the tags that are allowed for the units of all texts at each depth, or None if all tags are allowed.

    As in spaCy's `ner`, a token with the tag O may still become part of an entity. Only blocked tokens may not.

    RETURNS (Mask | None): The units of all texts are concatenated. *Shape:* (depth, units, tags)
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
    """Return the intersection of masks. None stands for a mask that allows all tags."""
    rules = [mask for mask in masks if mask is not None]
    return reduce(np.logical_and, rules) if rules else None


def join_masks(masks: Sequence[Mask | None], lengths: list[int], n_tags: int) -> Mask | None:
    """Concatenate the masks of all texts. None stands for a mask that allows all tags, and is returned if all masks are
    None."""
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.ones((length, n_tags), dtype=bool) if mask is None else mask
            for mask, length in zip(masks, lengths, strict=True)
        ]
    )


def possible_tags(units: Units, labels: LabelIndex) -> Mask | None:
    """Return the tags that are allowed for the type of each unit, or None if all tags are allowed.

    No entity begins or ends with white space or an ornament, such as an emoji, and no entity contains a line break.
    Labels whose training entities break these rules are exempt.

    *Shape:* (units, tags)
    """
    return labels.tags_by_unit_type[units.unit_type] if units.unit_type.any() else None


def tags_within_sentences(units: Units, labels: LabelIndex) -> Mask | None:
    """Return a mask in which no entity crosses a known sentence start, or None if no sentence start is known.

    *Shape:* (units, tags)
    """
    return _new_segments(units.sentence_start, labels.layout) if units.sentence_start.any() else None


def tags_of_whole_words(views: Sequence[DocView], labels: LabelIndex) -> Mask | None:
    """Return a mask in which no entity begins or ends within a Latin word, or None if no Latin word has several units.

    This matters if letters are units, as in Chinese pipelines. Labels whose training entities often break the rule are
    exempt.

    *Shape:* (units, tags)
    """
    neighbours = letter_neighbours(views)
    return None if neighbours is None else labels.tags_by_neighbours[neighbours]


def preset_tags(units: Units, labels: LabelIndex, possible: Mask | None) -> Mask:
    """Return a mask that keeps existing entities and blocked tokens.

    Existing entities may break the rules for other entities, for example contain a line break. Tokens of existing
    entities with a label unknown to the model are tagged O.

    possible (Mask | None): The tags that are allowed for other units. *Shape:* (units, tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    tags = np.where(units.preset, encode_units(units, labels), UNKNOWN)
    return agreeing_tags(tags, possible, labels.layout)


def tags_within_preset(units: Units, blocked_units: BoolArray, labels: LabelIndex) -> Mask:
    """Return a mask for nested entities: they may lie within existing entities, but not cross their boundaries, and not
    contain blocked tokens.

    blocked_units (BoolArray): Mask of blocked units within existing entities, see `NO_ENTITIES`. *Shape:* (units,)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    # A boundary is a unit that does not continue an entity, and belongs to an existing entity or follows one.
    mask = _new_segments((units.iob != INSIDE) & (units.preset | np.append(False, units.preset[:-1])), labels.layout)
    mask[blocked_units | (units.preset & (units.label == 0))] = np.arange(labels.layout.n_tags) == labels.layout.outside
    return mask


def blocked_within_preset(views: Sequence[DocView]) -> BoolArray:
    """Return a mask of the units in the span groups `NO_ENTITIES` of all Docs. *Shape:* (units,)"""
    blocked_units = [np.zeros(len(view), dtype=bool) for view in views]
    for view, is_blocked in zip(views, blocked_units, strict=True):
        for span in view.doc.spans.get(NO_ENTITIES, ()):
            start, end = view.unit_span(span.start_char, span.end_char) or (0, 0)
            is_blocked[start:end] = True
    return np.concatenate(blocked_units)


def _new_segments(boundary: BoolArray, layout: TagLayout) -> Mask:
    """Return a mask in which no entity continues from the previous unit to the given units."""
    mask = np.ones((boundary.size, layout.n_tags), dtype=bool)
    mask[boundary, layout.continuers] = False
    return mask


def agreeing_tags(tags: IntArray, possible: Mask | None, layout: TagLayout, agreeing: Mask | None = None) -> Mask:
    """Return a mask of the tags that agree with an annotation: the annotated tag, or all possible tags if it is
    unknown.

    tags (IntArray): Annotated tags, or `UNKNOWN`. *Shape:* (units,)
    possible (Mask | None): The tags that are allowed for units without annotation. *Shape:* (units, tags)
    agreeing (Mask | None): A further restriction, for texts that are annotated for some labels only. *Shape:* (units,
        tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    annotated = np.flatnonzero(tags != UNKNOWN)
    allowed = np.ones((len(tags), layout.n_tags), dtype=bool) if possible is None else possible.copy()
    allowed[annotated] = False
    allowed[annotated, tags[annotated]] = True
    return allowed if agreeing is None else allowed & agreeing
