"""BIOES tags: their ids, and conversion from and to spans.

A CRF over `T` entity types has `4 T + 1` tags. Their ids are in five blocks,

    B-1 .. B-T | O | S-1 .. S-T | E-1 .. E-T | I-1 .. I-T

so that every set of tags that the CRF needs is one slice:

* `TagLayout.openers`, the tags that may follow a finished segment: B, O, S;
* `TagLayout.closers`, the tags that finish a segment: O, S, E;
* `TagLayout.continuers`, the tags that go on inside an entity: E, I.

Allowed transitions are then two small rectangles instead of one large masked matrix: any closer may be followed by any
opener, and `B-X` or `I-X` by `E-X` or `I-X` of the same type. All others are forbidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .processes import cached_property
from .types import IntArray


@dataclass(frozen=True)
class TagLayout:
    """Ids of the tags of `n_labels` entity types."""

    n_labels: int

    @property
    def n_tags(self) -> int:
        return 4 * self.n_labels + 1

    @property
    def n_open(self) -> int:
        """Size of the block of openers, and of the block of closers: O, and two tags per type."""
        return 2 * self.n_labels + 1

    @property
    def outside(self) -> int:
        """The id of O."""
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
        """Return the id of each of these tags in a larger layout, whose first entity types are these."""
        if larger.n_labels < self.n_labels:
            raise ValueError(f"a layout of {self.n_labels} entity types does not fit into one of {larger.n_labels}")
        types = np.arange(self.n_labels)
        starts = [block.start for block in (larger.begin, larger.single, larger.end, larger.inside)]
        blocks = [start + types for start in starts]
        return np.concatenate([blocks[0], [larger.outside], *blocks[1:]])

    def names(self, labels: tuple[str, ...]) -> list[str]:
        """Return the name of every tag, by id."""
        blocks = [[f"{prefix}-{label}" for label in labels] for prefix in "BSEI"]
        return [*blocks[0], "O", *blocks[1], *blocks[2], *blocks[3]]

    def encode(self, starts: IntArray, ends: IntArray, labels: IntArray, length: int) -> IntArray:
        """Return the tags of a sequence with the entities `[start, end)` of given label indices, without overlaps."""
        tags = np.full(length, self.outside, dtype=np.int64)
        sizes = ends - starts
        inner = np.repeat(labels + self.inside.start, sizes)
        first = np.cumsum(sizes) - sizes
        tags[np.repeat(starts - first, sizes) + np.arange(inner.size)] = inner
        tags[starts] = labels + self.begin.start
        tags[ends - 1] = labels + self.end.start
        is_single = sizes == 1
        tags[starts[is_single]] = labels[is_single] + self.single.start
        return tags

    def decode(self, tags: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return starts, ends and label indices of the entities of a well-formed tag sequence, or of several joined."""
        single = (tags >= self.single.start) & (tags < self.single.stop)
        starts = np.flatnonzero((tags < self.begin.stop) | single)
        ends = np.flatnonzero(((tags >= self.end.start) & (tags < self.end.stop)) | single) + 1
        opened = tags[starts]
        labels = np.where(opened < self.begin.stop, opened, opened - self.single.start)
        return starts, ends, labels
