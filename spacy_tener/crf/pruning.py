"""Pruning of Viterbi decoding: tokens that are O on every best path.

`certainly_outside` finds most tokens that are O on every best path before any path is computed. An entity can be taken out
of a path by turning its tags into O. If that raises the score for every entity that could cover a token, whatever the
rest of the path, the token is O on every best path. The best entity over a token is the best beginning up to it and the
best end from it on, so a few operations on the whole batch are enough. Most tokens of a text are surely O, which leaves
stretches of a few tokens to Viterbi.
"""

from __future__ import annotations

import numpy as np

from ..sequences import Packing
from ..types import AnyFloats, BoolArray
from .transitions import Transitions

MARGIN = 1e-3
"""The smallest gain in score that counts, so that rounding does not decide."""
FLOOR = 100.0
"""Scores more than this below that of O are raised to this much below it."""
EXACT = 1e9
"""Rounding errors of float64 sums below this are much smaller than `MARGIN`."""


def certainly_outside(scores: AnyFloats, transitions: Transitions, packing: Packing) -> BoolArray:
    """Return a mask of tokens that are O on every best path of their sequence; it may miss some of them.

    *Shape:* (tags, tokens) to (tokens,); -inf forbids a tag
    """
    layout, longest = transitions.layout, int(packing.lengths.max(initial=0))
    of_outside = scores[layout.outside]
    forbidden = np.isneginf(of_outside)
    with np.errstate(invalid="ignore"):
        gains = scores - of_outside
        gains += transitions.entity_gains[:, None]
        if forbidden.any():
            # Where O is forbidden, any entity is better than O.
            gains[:, forbidden] = np.where(np.isposinf(gains[:, forbidden]), FLOOR * (longest + 1), -np.inf)
    np.maximum(gains, -FLOOR, out=gains)
    gains[layout.outside] = -FLOOR
    # More than any entity can gain, so that none crosses from one sequence to the next.
    barrier = 2.0 * (longest * max(float(gains.max(initial=0.0)), 1.0) + FLOOR)
    if not barrier * 2 * packing.n_sequences < EXACT:
        return np.zeros(len(of_outside), dtype=bool)
    begin, inside, end = gains[layout.begin], gains[layout.inside], gains[layout.end]
    begin[:, packing.last] = end[:, packing.first] = -np.inf
    inside[:, packing.first] = inside[:, packing.last] = -barrier
    passed = np.cumsum(inside, axis=1, dtype=np.float64)
    begun = np.maximum.accumulate(begin - passed, axis=1)
    passed += end - inside
    ended = np.maximum.accumulate(passed[:, ::-1], axis=1)[:, ::-1]
    over_two = (begun[:, :-1] + ended[:, 1:]).max(axis=0, initial=-np.inf)
    best = gains[layout.single].max(axis=0, initial=-np.inf)
    uncertain: BoolArray = (best >= -MARGIN) | forbidden
    uncertain[:-1] |= over_two >= -MARGIN
    uncertain[1:] |= over_two >= -MARGIN
    return ~uncertain
