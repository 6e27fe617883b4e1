"""The CRF's transition scores as plain tables over all tags.

Two rectangles are learned, `outside` and `inside` (see `spacy_tener.tagging`). Spread out over all tags, with -inf for
what is no path, they let each step of a recursion be one matrix product, and let the right-to-left recursion be the
left-to-right one over mirrored tags: read backwards, an entity begins with its E and ends with its B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ...tagging import TagLayout
from ...types import IntArray

BARRED = -torch.inf

# Up to here e^score and its inverse are ordinary float32 numbers, and their products too.
MODERATE = 40.0


@lru_cache(maxsize=64)
def mirror(layout: TagLayout) -> IntArray:
    """The tag that each tag is when the text is read backwards: B and E change places."""
    tags = np.arange(layout.n_tags)
    tags[layout.begin], tags[layout.end] = tags[layout.end].copy(), tags[layout.begin].copy()
    return tags


@dataclass(frozen=True)
class CRFWeights:
    """The learned scores of a CRF over `T` entity types, as `CRF` holds them."""

    start: Tensor
    """Of the openers as first tag. *Shape* [2T + 1]"""
    end: Tensor
    """Of the closers as last tag. *Shape* [2T + 1]"""
    outside: Tensor
    """From closers to openers. *Shape* [2T + 1, 2T + 1]"""
    inside: Tensor
    """From B (row 0) and I (row 1) to E and I of the same type. *Shape* [2, 2T]"""

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.start, self.end, self.outside, self.inside

    def to(self, like: Tensor) -> CRFWeights:
        """With the dtype and device of `like`."""
        return CRFWeights(*(tensor.detach().to(like) for tensor in self.tensors()))


@dataclass(frozen=True)
class Transitions:
    """The same scores over all `K` tags, -inf where there is no path."""

    layout: TagLayout
    start: Tensor
    """*Shape* [K]"""
    end: Tensor
    """*Shape* [K]"""
    table: Tensor
    """`[from, to]`. *Shape* [K, K]"""
    moderate: bool
    """Whether transitions may be exponentiated without a care."""

    @classmethod
    def of(cls, weights: CRFWeights) -> Transitions:
        layout = TagLayout(weights.inside.size(1) // 2)
        n_tags = layout.n_tags
        start, end, table = (
            weights.start.new_full(shape, BARRED) for shape in ((n_tags,), (n_tags,), (n_tags, n_tags))
        )
        start[layout.openers] = weights.start
        end[layout.closers] = weights.end
        table[layout.closers, layout.openers] = weights.outside
        for source, scores in zip((layout.begin, layout.inside), weights.inside, strict=True):
            same_type(table, layout, source).copy_(scores.view(2, -1))
        learned = torch.cat([weights.outside.flatten(), weights.inside.flatten()])
        return cls(layout, start, end, table, moderate=bool(learned.abs().max() < MODERATE))

    def both_ways(self) -> tuple[Tensor, Tensor]:
        """Start and transitions for reading forwards and for reading backwards, stacked."""
        swap = torch.from_numpy(mirror(self.layout)).to(self.start.device)
        start = torch.stack([self.start, self.end[swap]])
        return start, torch.stack([self.table, self.table.t()[swap][:, swap]])


def same_type(table: Tensor, layout: TagLayout, source: slice) -> Tensor:
    """A view of the entries of `table` from `source` (B or I) to E and to I of the same type. *Shape* [2, T]"""
    return torch.unflatten(table[source, layout.continuers], 1, (2, layout.n_labels)).diagonal(dim1=0, dim2=2)


def weight_gradients(
    layout: TagLayout, start: Tensor, end: Tensor, table: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Back from tables over all tags to the shapes of the weights: how gradients return."""
    inside = torch.stack([same_type(table, layout, source) for source in (layout.begin, layout.inside)]).flatten(1)
    return start[layout.openers], end[layout.closers], table[layout.closers, layout.openers], inside
