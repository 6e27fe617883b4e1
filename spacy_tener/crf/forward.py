"""Forward-backward algorithm for a linear-chain CRF in log-space (Rabiner 1989, section III.A; Lafferty et al. 2001).

The forward score alpha[t, j] is the logsumexp of path scores over all paths that end with tag j at token t. A path is a
tag sequence. The backward score beta[t, i] is the logsumexp over all paths that begin with tag i at token t.

    alpha[t, j] = emissions[t, j] + log sum_i exp(alpha[t - 1, i] + transitions[i, j])
    beta[t, i]  = emissions[t, i] + log sum_j exp(transitions[i, j] + beta[t + 1, j])
    log Z       = log sum_j exp(alpha[n, j] + end[j])                        log-partition function, n = last token
    P(y_t = j)  = exp(alpha[t, j] + beta[t, j] - emissions[t, j] - log Z)    marginal probability of tag j

Alpha also includes the start scores, and beta the end scores. The emission is subtracted in the last equation because
alpha and beta both include it.

The NumPy implementation computes a time step as the matrix product of exp(alpha[t - 1]) and exp(transitions), which is
much faster than a logsumexp over all tag pairs. Two techniques keep the result accurate:

- To avoid underflow, alpha[t - 1] is shifted before exp. The tags are divided into groups: O, S and E are a group, and
  so are each label's B and I. All transitions to a tag come from a single group. Each group's maximum is subtracted
  before exp and added after log, as in logsumexp.
- The maximum of O, S and E is called the shift. It is not added again. Thus alpha[t] omits the sum of all shifts before
  token t, and remains a small number that float32 represents accurately even in a long text. `ForwardBackward.shifts`
  returns the shifts.

The backward scores are computed like the forward scores of the reversed text, with B and E swapped (see
`mirrored_tags`). Both directions are processed as one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..processes import one_thread
from ..sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats
from .transitions import MAX_EXPONENT, Transitions, mirrored_tags


class ForwardStep:
    """One time step of the forward recursion, with buffers that are allocated once and reused.

    layout (TagLayout): The tag ids.
    like (AnyFloats): Array with the same dtype as the scores. Its first axis has length D, the number of directions.
    width (int): Number of sequences at the time step.
    """

    def __init__(self, layout: TagLayout, like: AnyFloats, width: int) -> None:
        n_labels, n_tags = layout.n_labels, layout.n_tags
        leading = (len(like), width)
        self.closers = layout.closers
        self.shift = np.empty((*leading, 1), like.dtype)
        self.label_max = np.empty((*leading, n_labels), like.dtype)
        self.shifted_scores, self.sums = (np.empty((*leading, n_tags), like.dtype) for _ in range(2))
        # Views of the buffers. Subtracting from `begin` and `inside` changes `shifted_scores`, and adding to the blocks
        # in `continued` changes `sums`, which contains a logsumexp for each tag.
        self.begin, self.inside = self.shifted_scores[..., layout.begin], self.shifted_scores[..., layout.inside]
        self.continued = self.sums[..., layout.end], self.sums[..., layout.inside]

    def shifted(self, scores: AnyFloats, *, has_forbidden_tags: bool) -> AnyFloats:
        """Shift the forward scores of the previous token, so that their exponentials do not underflow.

        Each group's maximum is subtracted. The groups of tags are explained in the module docstring. The method sets
        `self.shift` to the maximum of O, S and E. It sets `self.label_max` to the maximum of B and I for each label,
        relative to `self.shift`.

        scores (AnyFloats): Forward scores of the previous token. *Shape:* (D, width, tags)
        has_forbidden_tags (bool): Whether emissions can be -inf. If all scores in a group are -inf, its maximum is
            replaced by 0 to avoid NaN.
        RETURNS (AnyFloats): The shifted scores. They are stored in a buffer that the next call overwrites.
            *Shape:* (D, width, tags)
        """
        np.maximum.reduce(scores[..., self.closers], axis=-1, keepdims=True, out=self.shift)
        if has_forbidden_tags:
            zero_neg_inf(self.shift)
        np.subtract(scores, self.shift, out=self.shifted_scores)
        np.maximum(self.begin, self.inside, out=self.label_max)
        if has_forbidden_tags:
            zero_neg_inf(self.label_max)
        self.begin -= self.label_max
        self.inside -= self.label_max
        return self.shifted_scores

    def __call__(
        self,
        previous: AnyFloats,
        current: AnyFloats,
        table: AnyFloats,
        *,
        can_exponentiate: bool,
        has_forbidden_tags: bool,
    ) -> None:
        """Compute a token's forward scores from those of the previous token.

        The forward scores omit `self.shift`, see the module docstring.

        previous (AnyFloats): Forward scores of the previous token. *Shape:* (D, width, tags)
        current (AnyFloats): The token's emission scores, which are replaced by its forward scores.
            *Shape:* (D, width, tags)
        table (AnyFloats): Transition matrix, or its exponential if `can_exponentiate`. *Shape:* (D, tags, tags)
        can_exponentiate (bool): Whether a matrix product is used instead of logsumexp, see `Transitions`.
        has_forbidden_tags (bool): Whether emissions can be -inf.
        """
        shifted_scores = self.shifted(previous, has_forbidden_tags=has_forbidden_tags)
        if can_exponentiate:
            np.matmul(np.exp(shifted_scores, out=shifted_scores), table, out=self.sums)
            np.log(self.sums, out=self.sums)
        else:
            self.sums[:] = log_sum(shifted_scores[..., None] + table[:, None], axis=-2)[..., 0, :]
        for continued in self.continued:
            continued += self.label_max
        current += self.sums


def zero_neg_inf(scores: AnyFloats) -> AnyFloats:
    """Replace -inf by 0, in place, and return the array."""
    scores[scores == -np.inf] = 0.0
    return scores


def log_sum(scores: AnyFloats, axis: int) -> AnyFloats:
    """Return the logsumexp of the scores along an axis, which is kept with length 1.

    The result is -inf if all scores are -inf.
    """
    # -inf minus -inf would be NaN.
    largest = zero_neg_inf(scores.max(axis=axis, keepdims=True))
    sums: AnyFloats = np.log(np.exp(scores - largest).sum(axis=axis, keepdims=True))
    sums += largest
    return sums


@one_thread
def forward_scores(
    scores: AnyFloats, start: AnyFloats, table: AnyFloats, packing: Packing, *, can_exponentiate: bool
) -> AnyFloats:
    """Compute the forward scores of all tokens.

    D is the number of directions: 1 for the forward scores only, or 2 to compute the backward scores as well. The
    tokens are in packed order, see `Packing`.

    scores (AnyFloats): Emission scores, which are overwritten. *Shape:* (D, tokens, tags)
    start (AnyFloats): Start scores. *Shape:* (D, tags)
    table (AnyFloats): Transition matrix `[from, to]`. *Shape:* (D, tags, tags)
    packing (Packing): The sequence lengths.
    can_exponentiate (bool): Whether all transition scores can be exponentiated, see `Transitions`.
    RETURNS (AnyFloats): Forward scores without the shifts, see the module docstring. *Shape:* (D, tokens, tags)
    """
    if not packing.sizes:
        return scores
    has_forbidden_tags = bool(scores.min() == -np.inf)
    layout, width, step = TagLayout(scores.shape[-1] // 4), 0, None
    table = np.exp(table) if can_exponentiate else table
    previous = scores[:, : packing.sizes[0]]
    previous += start[:, None]
    for begin, end in packing.steps[1:]:
        if step is None or end - begin != width:
            width = end - begin
            step = ForwardStep(layout, scores, width)
        current = scores[:, begin:end]
        step(
            previous[:, :width],
            current,
            table,
            can_exponentiate=can_exponentiate,
            has_forbidden_tags=has_forbidden_tags,
        )
        previous = current
    return scores


@dataclass(frozen=True)
class ForwardBackward:
    """Forward scores (alpha) and backward scores (beta) of a batch, and the probabilities computed from them.

    Alpha and beta both include the token's emission, and both omit the shifts of their direction. The module docstring
    contains the equations. Tokens are in text order.

    packing (Packing): The sequence lengths.
    transitions (Transitions): Transition scores.
    emissions (AnyFloats): Emission scores, with -inf for forbidden tags. *Shape:* (tokens, tags)
    alpha, beta (AnyFloats): Forward and backward scores. *Shape:* (tokens, tags) each
    """

    packing: Packing
    transitions: Transitions
    emissions: AnyFloats
    alpha: AnyFloats
    beta: AnyFloats

    @classmethod
    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def of(cls, emissions: AnyFloats, transitions: Transitions, packing: Packing) -> ForwardBackward:
        """Run the forward-backward algorithm.

        emissions (AnyFloats): Emission scores, with -inf for forbidden tags. *Shape:* (tokens, tags)
        transitions (Transitions): Transition scores.
        packing (Packing): The sequence lengths.
        RETURNS (ForwardBackward): The forward and backward scores.
        """
        ahead, behind, swap = packing.forward, packing.backward, mirrored_tags(transitions.layout)
        start, table = transitions.in_both_directions()
        stacked = np.stack([emissions[ahead], emissions[behind][:, swap]])
        packed = forward_scores(stacked, start, table, packing, can_exponentiate=transitions.can_exponentiate)
        alpha, beta = np.empty_like(emissions), np.empty_like(emissions)
        alpha[ahead], beta[behind] = packed[0], packed[1][:, swap]
        return cls(packing, transitions, emissions, alpha, beta)

    def shifts(self) -> AnyFloats:
        """Return each token's shift: the number that was subtracted from alpha before the next time step.

        Alpha omits the sum of all preceding shifts. The last token in a sequence has the shift 0, since no time step
        follows.

        RETURNS (AnyFloats): Shifts in float64. *Shape:* (tokens,)
        """
        shifts = zero_neg_inf(self.alpha[:, self.transitions.layout.closers].max(axis=-1))
        shifts[self.packing.last] = 0.0
        return shifts.astype(np.float64)

    def log_partition(self) -> AnyFloats:
        """Return the log-partition function (log Z) of each sequence, in float64.

        The value is 0 for an empty sequence, since it has one path with score 0. *Shape:* (sequences,)
        """
        sums = self.packing.sums(self.shifts())
        with np.errstate(divide="ignore"):
            sums[self.packing.filled] += log_sum(self.alpha[self.packing.last] + self.transitions.end, axis=-1)[:, 0]
        return sums

    def unnormalized_log_marginals(self) -> tuple[AnyFloats, AnyFloats]:
        """Return the unnormalized log-probability of each tag at each token, and each token's normalization term.

        The log-probability of a tag is `log_scores - normalizer`. Both arrays omit the same shifts, which cancel out in
        the difference.

        RETURNS (tuple[AnyFloats, AnyFloats]): `log_scores`, *Shape:* (tokens, tags), and `normalizer`, *Shape:*
            (tokens, 1).
        """
        forbidden = self.emissions == -np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            log_scores: AnyFloats = self.alpha + self.beta - self.emissions
            log_scores[forbidden] = -np.inf
            return log_scores, zero_neg_inf(log_sum(log_scores, axis=-1))

    def marginals(self) -> AnyFloats:
        """Return the marginal probability of each tag at each token. *Shape:* (tokens, tags)"""
        log_scores, normalizer = self.unnormalized_log_marginals()
        log_scores -= normalizer
        return np.exp(log_scores, out=log_scores)

    def transition_log_marginals(self, normalizer: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
        """Return two terms of each transition's log-probability, `source` and `target`.

            log P(y_(t-1) = i, y_t = j) = source[t, i] + table[i, j] + target[t, j]

        Here, `table` is the transition matrix. Because `source` does not depend on j, and `target` does not depend on
        i, sums over all tokens can be computed as matrix products. The terms exist for all tokens that have a previous
        token (`packing.later`).

        normalizer (AnyFloats): The normalizer returned by `unnormalized_log_marginals`. *Shape:* (tokens, 1)
        RETURNS (tuple[AnyFloats, AnyFloats]): `source` and `target`. *Shape:* (later tokens, tags) each
        """
        layout, later = self.transitions.layout, self.packing.later
        step = ForwardStep(layout, self.alpha[None], later.size)
        with np.errstate(invalid="ignore"):
            source = step.shifted(self.alpha[None, later - 1], has_forbidden_tags=True)[0]
        target = self.beta[later] - normalizer[later]
        # `source` omits `label_max`, the maximum of B and I for each label. Add it to E and I, the only tags that can
        # follow B and I.
        for block in (layout.end, layout.inside):
            target[:, block] += step.label_max[0]
        if self.transitions.can_exponentiate:
            # Clip `target` to avoid exp(inf) * 0 = NaN. This only affects tags that no path can reach. For all other
            # tags, `target` is below MAX_EXPONENT, because probabilities do not exceed 1.
            np.minimum(target, MAX_EXPONENT + 1, out=target)
        return source, target

    @one_thread
    def expected_transitions(self, normalizer: AnyFloats, weight: AnyFloats) -> AnyFloats:
        """Return the expected count of each transition, as needed for the gradient of the CRF loss.

        normalizer (AnyFloats): The normalizer returned by `unnormalized_log_marginals`. *Shape:* (tokens, 1)
        weight (AnyFloats): Weight of each token in the sum. A transition has the weight of its second token.
            *Shape:* (tokens, 1)
        RETURNS (AnyFloats): Expected counts `[from, to]`. *Shape:* (tags, tags)
        """
        table = self.transitions.table
        source, target = self.transition_log_marginals(normalizer)
        weight = weight[self.packing.later]
        counts: AnyFloats
        if self.transitions.can_exponentiate:
            counts = np.exp(table) * (np.exp(source, out=source).T @ (np.exp(target, out=target) * weight))
        else:
            # To prevent overflow, add the three terms before exp. The loop over the rows of the transition matrix saves
            # memory.
            rows = (np.exp(tag[:, None] + scores + target) for tag, scores in zip(source.T, table, strict=True))
            counts = np.stack([(row * weight).sum(0) for row in rows])
        return counts
