"""BIOES tag ids, and conversion between entity spans and tag sequences.

The ids are used by the CRF, its masks and the training targets. For `T` entity types, there are `4 T + 1` tags in this
order:

    B-1 .. B-T | O | S-1 .. S-T | E-1 .. E-T | I-1 .. I-T

With this order, three groups of tags are contiguous slices:

- `TagLayout.openers` (B, O, S): tags that may follow O or the end of an entity.
- `TagLayout.closers` (O, S, E): tags that may precede O or the start of an entity.
- `TagLayout.continuers` (E, I): tags that continue an entity.

All valid transitions go either from a closer to an opener, or from `B-X` or `I-X` to `E-X` or `I-X` of the same type.
The CRF can therefore use two small dense transition matrices instead of a large masked matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .processes import cached_property
from .types import IntArray


@dataclass(frozen=True)
class TagLayout:
    """The order of BIOES tag ids for `n_labels` entity types.

    n_labels (int): Number of entity types.
    """

    n_labels: int

    @property
    def n_tags(self) -> int:
        return 4 * self.n_labels + 1

    @property
    def n_open(self) -> int:
        """Return the number of openers. It is equal to the number of closers."""
        return 2 * self.n_labels + 1

    @property
    def outside(self) -> int:
        """Return the id of the tag O."""
        return self.n_labels

    @property
    def begin(self) -> slice:
        return slice(0, self.n_labels)

    @property
    def single(self) -> slice:
        return slice(self.n_labels + 1, 2 * self.n_labels + 1)

    @property
    def end(self) -> slice:
        return slice(2 * self.n_labels + 1, 3 * self.n_labels + 1)

    @property
    def inside(self) -> slice:
        return slice(3 * self.n_labels + 1, 4 * self.n_labels + 1)

    @cached_property
    def openers(self) -> slice:
        return slice(self.begin.start, self.single.stop)

    @cached_property
    def closers(self) -> slice:
        return slice(self.outside, self.end.stop)

    @cached_property
    def continuers(self) -> slice:
        return slice(self.end.start, self.inside.stop)

    def within(self, larger: TagLayout) -> IntArray:
        """Map this layout's tag ids to the ids in a larger layout, which has additional entity types at the end.

        Used, for example, to copy the transition scores when labels are added to a trained model.

        larger (TagLayout): The layout with additional entity types.
        RETURNS (IntArray): The new id of each tag. *Shape:* (tags,)
        """
        if larger.n_labels < self.n_labels:
            raise ValueError(
                f"a tag layout for {self.n_labels} entity types cannot be extended to a layout for only "
                f"{larger.n_labels}"
            )
        types = np.arange(self.n_labels)
        starts = [block.start for block in (larger.begin, larger.single, larger.end, larger.inside)]
        blocks = [start + types for start in starts]
        return np.concatenate([blocks[0], [larger.outside], *blocks[1:]])

    def names(self, labels: tuple[str, ...]) -> list[str]:
        """Return the names of all tags, such as `B-PER`, sorted by tag id."""
        blocks = [[f"{prefix}-{label}" for label in labels] for prefix in "BSEI"]
        return [*blocks[0], "O", *blocks[1], *blocks[2], *blocks[3]]

    def encode(self, starts: IntArray, ends: IntArray, labels: IntArray, length: int) -> IntArray:
        """Convert entity spans to a tag sequence. A unit is a token or a character.

        starts (IntArray): First unit of each entity. Entities must not overlap. *Shape:* (entities,)
        ends (IntArray): End of each entity (exclusive). *Shape:* (entities,)
        labels (IntArray): Label index of each entity. *Shape:* (entities,)
        length (int): Number of units in the sequence.
        RETURNS (IntArray): Tag ids. *Shape:* (units,)
        """
        tags = np.full(length, self.outside, dtype=np.int64)
        sizes = ends - starts
        inner = np.repeat(labels + self.inside.start, sizes)
        first = np.cumsum(sizes) - sizes
        # Set I for all units in an entity. Then overwrite the first unit with B and the last unit with E. Finally,
        # overwrite entities with a single unit with S.
        tags[np.repeat(starts - first, sizes) + np.arange(inner.size)] = inner
        tags[starts] = labels + self.begin.start
        tags[ends - 1] = labels + self.end.start
        is_single = sizes == 1
        tags[starts[is_single]] = labels[is_single] + self.single.start
        return tags

    def decode(self, tags: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Convert a valid tag sequence to entity spans.

        Several tag sequences can be concatenated and decoded together, because an entity never crosses the end of a
        valid sequence.

        tags (IntArray): Tag ids. *Shape:* (units,)
        RETURNS (tuple[IntArray, IntArray, IntArray]): Start, end (exclusive) and label index of each entity. *Shape:*
            (entities,) each
        """
        single = (tags >= self.single.start) & (tags < self.single.stop)
        starts = np.flatnonzero((tags < self.begin.stop) | single)
        ends = np.flatnonzero(((tags >= self.end.start) & (tags < self.end.stop)) | single) + 1
        opened = tags[starts]
        labels = np.where(opened < self.begin.stop, opened, opened - self.single.start)
        return starts, ends, labels
