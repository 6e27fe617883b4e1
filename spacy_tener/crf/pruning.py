"""Pruning for Viterbi decoding: find the tokens that are O in every best tag sequence.

Most tokens are not in an entity. Pruning finds most of these tokens with vectorized operations, so that
only the remaining tokens need Viterbi decoding. Used by `decode.viterbi`.

Let y be a tag sequence with an entity on the tokens i to j, and y' the same sequence with O on these tokens. The
difference between their scores is at most the entity's gain, which is a sum over its tokens:

    score(y) - score(y') <= sum_{t=i..j} gain[t, y_t]
    gain[t, tag] = emissions[t, tag] - emissions[t, O] + entity_gains[tag]

`Transitions.entity_gains` is an upper bound on the difference between the transition scores. If all entities that cover
a token have a negative gain, the token is O in every best tag sequence.

The maximum gain of an entity that covers the tokens t and t + 1 is computed with prefix sums. For one label, let
`S[t] = gain[0, I] + .. + gain[t, I]`. The gain of an entity with two or more tokens is

    gain[i, B] + gain[i + 1, I] + .. + gain[j - 1, I] + gain[j, E] = (gain[i, B] - S[i]) + (S[j - 1] + gain[j, E])

The first term depends only on i, and the second term only on j. The maximum gain is therefore the sum of two running
maxima: the maximum first term over all i <= t, and the maximum second term over all j > t.

    token        我     在     北     京     工     作
    best gain  -9.1   -8.3   +3.2   +3.2   -7.0   -6.4     maximum gain of an entity that covers the token
    result       O      O      ?      ?      O      O      only 北京 needs Viterbi decoding

On 256 Weibo posts, pruning finds 98 % of the tokens to be O, and reduces the CPU time for decoding from 71 ms to 11 ms.
Complete prediction takes 361 ms with TENER and 618 ms with FLAT.
"""

from __future__ import annotations

import numpy as np

from ..sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, BoolArray
from .transitions import Transitions

# Tolerance for rounding errors. Only gains below -MARGIN are regarded as negative.
MARGIN = 1e-3
# Gains are clipped to at least -FLOOR, so that the prefix sums remain finite even for forbidden tags (-inf). Clipping
# can only increase a gain, so the upper bound remains valid.
FLOOR = 100.0
# Maximum absolute value of the prefix sums. For larger values, rounding errors in float64 could exceed MARGIN.
MAX_SUM = 1e9


def certainly_outside(scores: AnyFloats, transitions: Transitions, packing: Packing) -> BoolArray:
    """Return a mask of tokens that are O in every best tag sequence.

    The mask is conservative: it can be False for a token that is O in every best tag sequence.

    scores (AnyFloats): Emission scores, with -inf for forbidden tags. *Shape:* (tags, tokens)
    transitions (Transitions): Transition scores.
    packing (Packing): The sequence lengths.
    RETURNS (BoolArray): The mask. *Shape:* (tokens,)
    """
    layout, longest = transitions.layout, int(packing.lengths.max(initial=0))
    outside_is_forbidden = np.isneginf(scores[layout.outside])
    gains = _gains(scores, transitions, outside_is_forbidden, longest)
    # The barrier exceeds any entity's gain. It is subtracted at sequence boundaries, so that an entity that crosses a
    # boundary has a negative gain.
    barrier = 2.0 * (longest * max(float(gains.max(initial=0.0)), 1.0) + FLOOR)
    # If an emission is NaN, the comparison is False and no token is pruned, so the decoder detects the NaN and raises
    # an error.
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
    """Return the gain of each tag at each token, clipped to at least -FLOOR. *Shape:* (tags, tokens)

    The gain is the tag's score relative to O. See the module docstring for the equation.
    """
    layout = transitions.layout
    # If a tag and O are both forbidden, the difference -inf - (-inf) is NaN. It is replaced below.
    with np.errstate(invalid="ignore"):
        gains = scores - scores[layout.outside]
        gains += transitions.entity_gains[:, None]
    if outside_is_forbidden.any():
        # If O is forbidden, the token must be in an entity. An allowed tag gets such a high gain that the entity's
        # total gain is positive even if all other tokens have the gain -FLOOR.
        gains_without_o = gains[:, outside_is_forbidden]
        gains[:, outside_is_forbidden] = np.where(np.isposinf(gains_without_o), FLOOR * (longest + 1), -np.inf)
    np.maximum(gains, -FLOOR, out=gains)
    gains[layout.outside] = -FLOOR  # O is not part of an entity
    return gains


def _best_gains_over_two(gains: AnyFloats, layout: TagLayout, packing: Packing, barrier: float) -> AnyFloats:
    """Return the maximum gain of an entity that covers a token and the next token. *Shape:* (tokens - 1,)

    The module docstring explains the gain and how prefix sums are used.
    """
    begin, inside, end = gains[layout.begin], gains[layout.inside], gains[layout.end]
    begin[:, packing.last] = end[:, packing.first] = -np.inf
    inside[:, packing.first] = inside[:, packing.last] = -barrier
    sums = np.cumsum(inside, axis=1, dtype=np.float64)
    # max over i <= t of gain[i, B] - S[i]
    best_begin = np.maximum.accumulate(begin - sums, axis=1)
    sums += end - inside  # S[j - 1] + gain[j, E], since S[j - 1] = S[j] - gain[j, I]
    best_end = np.maximum.accumulate(sums[:, ::-1], axis=1)[:, ::-1]
    best: AnyFloats = (best_begin[:, :-1] + best_end[:, 1:]).max(axis=0, initial=-np.inf)
    return best
