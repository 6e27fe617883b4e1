"""Convert entity annotation to BIOES tags, and compute masks of the tags that each character type can have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from spacy.strings import get_string_id

from ..processes import cached_property
from ..tagging import TagLayout
from ..types import BoolArray, IntArray
from .units import (
    BEGIN,
    INSIDE,
    LINE_BREAK,
    MISSING,
    N_UNIT_TYPES,
    NEXT_IN_WORD,
    ORNAMENT,
    OUTSIDE,
    PREVIOUS_IN_WORD,
    SPACE,
    Units,
)

Mask = BoolArray
# Tag id for missing annotation.
UNKNOWN = -1


@dataclass(frozen=True)
class LabelIndex:
    """A component's labels. Some labels can be exempt from decoding rules.

    hashes (Sequence[int]): Label hashes. A label's index is its position in this sequence.
    over_lines (Sequence[int]): Indices of the labels whose entities can contain line breaks.
    with_ornaments (Sequence[int]): Indices of the labels whose entities can begin or end with an ornament, such as an
        emoji.
    within_words (Sequence[int]): Indices of the labels whose entities can begin or end inside a Latin word.
    """

    hashes: Sequence[int]
    over_lines: Sequence[int] = ()
    with_ornaments: Sequence[int] = ()
    within_words: Sequence[int] = ()

    @property
    def layout(self) -> TagLayout:
        return TagLayout(len(self.hashes))

    def indices(self, labels: NDArray[np.uint64]) -> IntArray:
        """Convert label hashes to label indices. The index is -1 if the hash is not in `hashes`. *Shape:* (units,)"""
        indices = np.full(labels.shape, -1, dtype=np.int64)
        labelled, index = np.flatnonzero(labels), {label: i for i, label in enumerate(self.hashes)}
        indices[labelled] = [index.get(label, -1) for label in labels[labelled].tolist()]
        return indices

    @cached_property
    def tags_by_unit_type(self) -> Mask:
        """Mask of the tags that are allowed for each unit type, such as `SPACE`. *Shape:* (unit types, tags)"""
        layout = self.layout
        tags_by_unit_type = np.ones((N_UNIT_TYPES, layout.n_tags), dtype=bool)
        for block in (layout.begin, layout.single, layout.end):
            tags_by_unit_type[[SPACE, LINE_BREAK, ORNAMENT], block] = False
            tags_by_unit_type[ORNAMENT, [block.start + label for label in self.with_ornaments]] = True
        tags_by_unit_type[LINE_BREAK, layout.inside] = False
        tags_by_unit_type[LINE_BREAK, [layout.inside.start + label for label in self.over_lines]] = True
        return tags_by_unit_type

    @cached_property
    def tags_by_neighbours(self) -> Mask:
        """Mask of the tags that do not split a Latin word. The first index is a value of `letter_neighbours`. *Shape:*
        (4, tags)"""
        layout = self.layout
        whole = np.ones((4, layout.n_tags), dtype=bool)
        # No entity can begin if the previous letter is in the same word. No entity can end if the next letter is in the
        # same word.
        begins, ends = (layout.begin, layout.single), (layout.end, layout.single)
        for flag, blocks in ((PREVIOUS_IN_WORD, begins), (NEXT_IN_WORD, ends)):
            for row, block in product([value for value in range(4) if value & flag], blocks):
                whole[row, block] = False
                whole[row, [block.start + label for label in self.within_words]] = True
        return whole


def index_labels(labels: Iterable[str]) -> LabelIndex:
    """Create a `LabelIndex` for labels without exceptions from decoding rules."""
    return LabelIndex([get_string_id(label) for label in labels])


def is_label(label: object) -> bool:
    """Return whether a value is a valid label: a string that is not blank and can be encoded in UTF-8."""
    return isinstance(label, str) and bool(label.strip()) and not any("\ud800" <= char <= "\udfff" for char in label)


def encode_units(units: Units, labels: LabelIndex) -> IntArray:
    """Convert the annotation of tokens or characters to BIOES tag ids.

    The tag is `UNKNOWN` if the annotation is missing, and O if the label is not in `labels`. *Shape:* (units,)
    """
    layout, index = labels.layout, labels.indices(units.label)
    begins, inside = ((units.iob == value) & (index >= 0) for value in (BEGIN, INSIDE))
    # The unit is the last one in its entity (E or S) if the next unit is not inside the entity.
    continues = np.append(inside[1:], False)
    tags = np.where(units.iob == MISSING, UNKNOWN, layout.outside)
    for is_tag, blocks in ((begins, (layout.single, layout.begin)), (inside, (layout.end, layout.inside))):
        rows = np.flatnonzero(is_tag)
        tags[rows] = index[rows] + np.where(continues[rows], blocks[1].start, blocks[0].start)
    return tags


def trim_space(units: Units) -> Units:
    """Trim white space from both ends of gold entities, because predicted entities never begin or end with white
    space."""
    if not (units.space.any() and (units.space & (units.iob != MISSING) & (units.label != 0)).any()):
        return units
    iob, label = units.iob.copy(), units.label.copy()
    starts = np.flatnonzero((iob == BEGIN) & (label != 0))
    for start in starts:
        end = start + 1
        while end < len(iob) and iob[end] == INSIDE:
            end += 1
        text = np.flatnonzero(~units.space[start:end]) + start
        first, last = (int(text[0]), int(text[-1]) + 1) if text.size else (end, end)
        for edge in (slice(start, first), slice(last, end)):
            iob[edge], label[edge] = OUTSIDE, 0
        if first < end:
            iob[first] = BEGIN
    return replace(units, iob=iob, label=label)
