"""Pruning before Viterbi decoding: find tokens that are certainly O, which are most tokens of a text.

Compare a tag sequence y that has an entity on the tokens i to j with y', the same sequence where these tokens are O:

    score(y) - score(y') <= sum_{t=i..j} gain[t, y_t]
    gain[t, tag] = emissions[t, tag] - emissions[t, O] + entity_gains[tag]

`Transitions.entity_gains` bounds how much the transitions can contribute, whatever the tags around the entity. If the
bound is negative for every entity that covers a token, then no best tag sequence has an entity there: the token is O.

The most promising entity over each token is found without a loop over time steps. With the prefix sums
`S[t] = gain[0, I] + .. + gain[t, I]` of its label, an entity of two or more tokens gains

    gain[i, B] + gain[i + 1, I] + .. + gain[j - 1, I] + gain[j, E] = (gain[i, B] - S[i]) + (S[j - 1] + gain[j, E])

so that the best entity that covers the tokens t and t + 1 is a running maximum over all i <= t plus one over all j > t.

    token        我     在     北     京     工     作
    best gain  -9.1   -8.3   +3.2   +3.2   -7.0   -6.4     of the entities that cover the token
    result       O      O      ?      ?      O      O      only 北京 is left to the Viterbi algorithm

The gain of pruning: on 256 posts of Weibo, 98 % of the tokens are certainly O. Decoding takes 11 ms instead of 71 ms of
CPU time, where TENER's prediction as a whole takes 361 ms, and FLAT's 618 ms.
"""

from __future__ import annotations

import numpy as np

from ..sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, BoolArray
from .transitions import Transitions

# Tolerance for rounding errors: an entity whose gain is below -MARGIN is certainly worse than O.
MARGIN = 1e-3
# Gains below -FLOOR, such as the -inf of forbidden tags, are raised to -FLOOR, so that prefix sums are finite. Bounds
# only become larger by this, and are still upper bounds.
FLOOR = 100.0
# Up to this size, the rounding errors of prefix sums in float64 are much smaller than MARGIN.
MAX_SUM = 1e9


def certainly_outside(scores: AnyFloats, transitions: Transitions, packing: Packing) -> BoolArray:
    """Return a mask of tokens that are O in every best tag sequence. Some such tokens may be missing from it.

    scores (AnyFloats): Emissions, with -inf for forbidden tags. *Shape:* (tags, tokens)
    RETURNS (BoolArray): *Shape:* (tokens,)
    """
    layout, longest = transitions.layout, int(packing.lengths.max(initial=0))
    outside_is_forbidden = np.isneginf(scores[layout.outside])
    gains = _gains(scores, transitions, outside_is_forbidden, longest)
    # No entity gains as much as this. Subtracted at the boundaries of sequences, it rules out entities that cross them.
    barrier = 2.0 * (longest * max(float(gains.max(initial=0.0)), 1.0) + FLOOR)
    # This comparison is False for NaN as well, so that emissions that are not numbers reach the check of the decoder.
    is_exact = 2.0 * barrier * packing.n_sequences < MAX_SUM
    if not is_exact:
        return np.zeros(scores.shape[1], dtype=bool)

    over_one = gains[layout.single].max(axis=0, initial=-np.inf)
    over_two = _best_gains_over_two(gains, layout, packing, barrier)
    uncertain: BoolArray = (over_one >= -MARGIN) | outside_is_forbidden
    uncertain[:-1] |= over_two >= -MARGIN
    uncertain[1:] |= over_two >= -MARGIN
    return ~uncertain


def _gains(scores: AnyFloats, transitions: Transitions, outside_is_forbidden: BoolArray, longest: int) -> AnyFloats:
    """Return `gain[t, tag]` with the bounds of `FLOOR`. *Shape:* (tags, tokens)"""
    layout = transitions.layout
    # -inf minus -inf, where both the tag and O are forbidden, is NaN, and is replaced below.
    with np.errstate(invalid="ignore"):
        gains = scores - scores[layout.outside]
        gains += transitions.entity_gains[:, None]
    if outside_is_forbidden.any():
        # Every allowed entity is better than a forbidden O: its gain outweighs FLOOR at all other tokens.
        forbidden = gains[:, outside_is_forbidden]
        gains[:, outside_is_forbidden] = np.where(np.isposinf(forbidden), FLOOR * (longest + 1), -np.inf)
    np.maximum(gains, -FLOOR, out=gains)
    gains[layout.outside] = -FLOOR  # not an entity's tag
    return gains


def _best_gains_over_two(gains: AnyFloats, layout: TagLayout, packing: Packing, barrier: float) -> AnyFloats:
    """Return the largest gain of an entity that covers each token and the next one. *Shape:* (tokens - 1,)"""
    begin, inside, end = gains[layout.begin], gains[layout.inside], gains[layout.end]
    begin[:, packing.last] = end[:, packing.first] = -np.inf
    inside[:, packing.first] = inside[:, packing.last] = -barrier
    sums = np.cumsum(inside, axis=1, dtype=np.float64)
    best_begin = np.maximum.accumulate(begin - sums, axis=1)
    sums += end - inside  # S[j - 1] + gain[j, E]
    best_end = np.maximum.accumulate(sums[:, ::-1], axis=1)[:, ::-1]
    best: AnyFloats = (best_begin[:, :-1] + best_end[:, 1:]).max(axis=0, initial=-np.inf)
    return best
