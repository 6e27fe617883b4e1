"""Masks of allowed tags: all that restricts the paths of the CRF, a function for each rule.

`allowed_tags` joins the rules of decoding: limits that the text sets, and what the Doc's tokens say already.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from ..tagging import TagLayout
from ..types import BoolArray, IntArray
from .tags import UNKNOWN, LabelIndex, Mask, encode_units
from .units import INSIDE, DocView, Units, join_units, letter_neighbours

NO_ENTITIES = "tener_no_entities"
"""Group of `doc.spans`: parts of entities that a Doc has, within which lies no other entity."""


def allowed_tags(views: Sequence[DocView], labels: LabelIndex, depth: int) -> Mask | None:
    """Return the tags that decoding may choose for the units of texts, joined, at each depth; None for all tags.

    As with spaCy's `ner`, a token set to be outside may still become an entity.

    *Shape:* (depth, units, tags)
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
    """Return the tags that all masks allow; None stands for all tags."""
    rules = [mask for mask in masks if mask is not None]
    return reduce(np.logical_and, rules) if rules else None


def join_masks(masks: Sequence[Mask | None], lengths: list[int], n_tags: int) -> Mask | None:
    """Concatenate the masks of all texts. Return None if no text has one."""
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.ones((length, n_tags), dtype=bool) if mask is None else mask
            for mask, length in zip(masks, lengths, strict=True)
        ]
    )


def possible_tags(units: Units, labels: LabelIndex) -> Mask | None:
    """No entity begins or ends with white space or an ornament, and none spans lines.

    *Shape:* (units, tags), or None if every tag is allowed.
    """
    return labels.tags_by_unit_type[units.unit_type] if units.unit_type.any() else None


def tags_within_sentences(units: Units, labels: LabelIndex) -> Mask | None:
    """No entity crosses a known sentence start. *Shape:* (units, tags), or None if every tag is allowed."""
    return _new_segments(units.sentence_start, labels.layout) if units.sentence_start.any() else None


def tags_of_whole_words(views: Sequence[DocView], labels: LabelIndex) -> Mask | None:
    """No entity begins or ends within a Latin word, but for those of labels that do in training.

    *Shape:* (units, tags), or None if every tag is allowed.
    """
    neighbours = letter_neighbours(views)
    return None if neighbours is None else labels.tags_by_neighbours[neighbours]


def preset_tags(units: Units, labels: LabelIndex, possible: Mask | None) -> Mask:
    """What the Doc has stays: entities, even over the text's limits, and blocked tokens, which are outside. So are
    entities whose label is not one of the model's.

    possible (Mask | None): The tags of all other units. *Shape:* (units, tags)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    tags = np.where(units.preset, encode_units(units, labels), UNKNOWN)
    return agreeing_tags(tags, possible, labels.layout)


def tags_within_preset(units: Units, blocked_units: BoolArray, labels: LabelIndex) -> Mask:
    """Entities within others may lie in one that the Doc has, but cross no edge of it, and hold no blocked token.

    blocked_units (BoolArray): Units of preset entities that are in no other. *Shape:* (units,)
    RETURNS (Mask): *Shape:* (units, tags)
    """
    mask = _new_segments((units.iob != INSIDE) & (units.preset | np.append(False, units.preset[:-1])), labels.layout)
    mask[blocked_units | (units.preset & (units.label == 0))] = np.arange(labels.layout.n_tags) == labels.layout.outside
    return mask


def blocked_within_preset(views: Sequence[DocView]) -> BoolArray:
    """Mark the units in the groups `NO_ENTITIES` of Docs. *Shape:* (units,)"""
    blocked_units = [np.zeros(len(view), dtype=bool) for view in views]
    for view, is_blocked in zip(views, blocked_units, strict=True):
        for span in view.doc.spans.get(NO_ENTITIES, ()):
            start, end = view.unit_span(span.start_char, span.end_char) or (0, 0)
            is_blocked[start:end] = True
    return np.concatenate(blocked_units)


def _new_segments(boundary: BoolArray, layout: TagLayout) -> Mask:
    """Return the mask in which no entity goes on at these units."""
    mask = np.ones((boundary.size, layout.n_tags), dtype=bool)
    mask[boundary, layout.continuers] = False
    return mask


def agreeing_tags(tags: IntArray, possible: Mask | None, layout: TagLayout, agreeing: Mask | None = None) -> Mask:
    """Return a mask of the tags that agree with the annotation: one for an annotated unit, else all possible ones, less
    what `agreeing` leaves out.

    *Shape:* (units, tags)
    """
    annotated = np.flatnonzero(tags != UNKNOWN)
    allowed = np.ones((len(tags), layout.n_tags), dtype=bool) if possible is None else possible.copy()
    allowed[annotated] = False
    allowed[annotated, tags[annotated]] = True
    return allowed if agreeing is None else allowed & agreeing
