"""Tokens that are outside of entities on every best path, known without looking for a path.

An entity of a path can be taken out, its tags becoming O. Where that gains score for all entities that could cover a
token, be the rest of the path what it may, the token is O on every best path. The best entity over a token is the best
beginning up to it with the best end from it on, so all are known by a few operations on the whole batch. Most tokens of
a text are O for sure, and a path has to be looked for in stretches of a few tokens only.
"""

from __future__ import annotations

import numpy as np

from ..batching.packing import Packing
from ..types import AnyFloats, BoolArray
from .transitions import Transitions

MARGIN = 1e-3
"""What has to be gained, so that rounding does not decide."""
FLOOR = 100.0
"""A tag that is worse than O by more is taken to be worse by this much."""
EXACT = 1e9
"""Sums up to here are exact to much less than the margin."""


def surely_outside(scores: AnyFloats, transitions: Transitions, packing: Packing) -> BoolArray:
    """Which tokens have O on every best path of their sequence, most of them if not all. *Shape* [K, N], flat rows, to
    [N]; -inf bars a tag
    """
    layout, longest = transitions.layout, int(packing.lengths.max(initial=0))
    of_outside = scores[layout.outside]
    barred = np.isneginf(of_outside)
    with np.errstate(invalid="ignore"):
        gains = scores - of_outside
        gains += transitions.entity_gains[:, None]
        if barred.any():
            # Whatever covers such a token is better than O.
            gains[:, barred] = np.where(np.isposinf(gains[:, barred]), FLOOR * (longest + 1), -np.inf)
    np.maximum(gains, -FLOOR, out=gains)
    gains[layout.outside] = -FLOOR
    # More than what any entity gains: none goes from one sequence to the next.
    apart = 2.0 * (longest * max(float(gains.max(initial=0.0)), 1.0) + FLOOR)
    if not apart * 2 * packing.n_sequences < EXACT:
        return np.zeros(len(of_outside), dtype=bool)
    begin, inside, end = gains[layout.begin], gains[layout.inside], gains[layout.end]
    begin[:, packing.last] = end[:, packing.first] = -np.inf
    inside[:, packing.first] = inside[:, packing.last] = -apart
    passed = np.cumsum(inside, axis=1, dtype=np.float64)
    begun = np.maximum.accumulate(begin - passed, axis=1)
    passed += end - inside
    ended = np.maximum.accumulate(passed[:, ::-1], axis=1)[:, ::-1]
    over_two = (begun[:, :-1] + ended[:, 1:]).max(axis=0, initial=-np.inf)
    best = gains[layout.single].max(axis=0, initial=-np.inf)
    unsure = (best >= -MARGIN) | barred
    unsure[:-1] |= over_two >= -MARGIN
    unsure[1:] |= over_two >= -MARGIN
    surely: BoolArray = ~unsure
    return surely
