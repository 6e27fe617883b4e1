"""BIOES tags: tag ids, and conversion between tags and spans.

The CRF, the masks of allowed tags and the training targets use the ids. For `T` entity types there are `4 T + 1` tags.
Their ids are ordered in five blocks,

    B-1 .. B-T | O | S-1 .. S-T | E-1 .. E-T | I-1 .. I-T

so that every group of tags that the CRF needs is one slice:

- `TagLayout.openers` (B, O, S): the tags that may follow O or the end of an entity.
- `TagLayout.closers` (O, S, E): O, and the tags that end an entity.
- `TagLayout.continuers` (E, I): the tags that continue an entity.

With this order, the allowed transitions are two small dense matrices instead of a large masked one: from any closer to
any opener, and from `B-X` or `I-X` to `E-X` or `I-X` of the same type. All other transitions are forbidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .processes import cached_property
from .types import IntArray


@dataclass(frozen=True)
class TagLayout:
    """The tag ids for `n_labels` entity types."""

    n_labels: int

    @property
    def n_tags(self) -> int:
        return 4 * self.n_labels + 1

    @property
    def n_open(self) -> int:
        """The number of openers, which is also the number of closers: O, and two tags for each type."""
        return 2 * self.n_labels + 1

    @property
    def outside(self) -> int:
        """The id of the tag O."""
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
        """Return the id of each tag in a larger layout that begins with the same entity types.

        This is used when a model gets more labels. *Shape:* (tags,)
        """
        if larger.n_labels < self.n_labels:
            raise ValueError(f"a layout of {self.n_labels} entity types does not fit into one of {larger.n_labels}")
        types = np.arange(self.n_labels)
        starts = [block.start for block in (larger.begin, larger.single, larger.end, larger.inside)]
        blocks = [start + types for start in starts]
        return np.concatenate([blocks[0], [larger.outside], *blocks[1:]])

    def names(self, labels: tuple[str, ...]) -> list[str]:
        """Return the names of all tags in the order of their ids, for example `B-PER`."""
        blocks = [[f"{prefix}-{label}" for label in labels] for prefix in "BSEI"]
        return [*blocks[0], "O", *blocks[1], *blocks[2], *blocks[3]]

    def encode(self, starts: IntArray, ends: IntArray, labels: IntArray, length: int) -> IntArray:
        """Return the tag ids of a sequence.

        starts, ends (IntArray): Boundaries `[start, end)` of entities that do not overlap. *Shape:* (entities,)
        labels (IntArray): Label index of each entity. *Shape:* (entities,)
        length (int): Number of units in the sequence.
        RETURNS (IntArray): *Shape:* (units,)
        """
        tags = np.full(length, self.outside, dtype=np.int64)
        sizes = ends - starts
        inner = np.repeat(labels + self.inside.start, sizes)
        first = np.cumsum(sizes) - sizes
        # All units of an entity first get I. Then the first and the last get B and E, or a single one gets S.
        tags[np.repeat(starts - first, sizes) + np.arange(inner.size)] = inner
        tags[starts] = labels + self.begin.start
        tags[ends - 1] = labels + self.end.start
        is_single = sizes == 1
        tags[starts[is_single]] = labels[is_single] + self.single.start
        return tags

    def decode(self, tags: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the starts, ends and label indices of the entities in a valid tag sequence. *Shape:* (entities,) each

        Several sequences may be concatenated, since no valid sequence ends within an entity.
        """
        single = (tags >= self.single.start) & (tags < self.single.stop)
        starts = np.flatnonzero((tags < self.begin.stop) | single)
        ends = np.flatnonzero(((tags >= self.end.start) & (tags < self.end.stop)) | single) + 1
        opened = tags[starts]
        labels = np.where(opened < self.begin.stop, opened, opened - self.single.start)
        return starts, ends, labels
