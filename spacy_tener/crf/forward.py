"""Forward-backward algorithm of a linear-chain CRF, in log-space (Rabiner 1989, section III.A; Lafferty et al. 2001).

The forward scores sum over all paths (tag sequences) that end in a tag, the backward scores over all that start in it:

    alpha[t, j] = emissions[t, j] + log sum_i exp(alpha[t - 1, i] + transitions[i, j])
    beta[t, i]  = emissions[t, i] + log sum_j exp(transitions[i, j] + beta[t + 1, j])
    log Z       = log sum_j exp(alpha[n, j] + end[j])                        the log-partition function
    P(y_t = j)  = exp(alpha[t, j] + beta[t, j] - emissions[t, j] - log Z)    both contain the emission of t

beta also contains the scores `end`, and alpha the scores `start`.

Two ideas make this fast and accurate in NumPy:

- A step to all tags is one matrix product of exp(alpha) with exp(transitions), instead of a logsumexp over tags x tags.
  So that the exponentials of a whole group of source tags cannot underflow, each group is shifted by its largest score
  first. A tag is reached either from the closers (O, S, E), or from the B and I of its own label: these are the groups.
- alpha[t] is stored relative to the shift of the closers at t - 1, that is, without the sum of all shifts before. The
  stored numbers stay small, and float32 stays accurate, however long the text. `shifts` returns what has been left out.

Both directions run as one batch, the backward one over mirrored tags, so that a loss with its gradient takes one pass
over the time steps.
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
    """One step of the recursion for `width` sequences in each of D directions, with buffers that steps can share.

    *Shape:* (D, width, tags) for the scores before and after the step
    """

    def __init__(self, layout: TagLayout, like: AnyFloats, width: int) -> None:
        n_labels, n_tags = layout.n_labels, layout.n_tags
        leading = (len(like), width)
        self.closers = layout.closers
        self.shift = np.empty((*leading, 1), like.dtype)
        self.extra = np.empty((*leading, n_labels), like.dtype)
        self.relative, self.reached = (np.empty((*leading, n_tags), like.dtype) for _ in range(2))
        self.begin, self.inside = self.relative[..., layout.begin], self.relative[..., layout.inside]
        self.continued = self.reached[..., layout.end], self.reached[..., layout.inside]

    def shifted(self, scores: AnyFloats, *, has_forbidden_tags: bool) -> AnyFloats:
        """Return the scores of source tags minus the largest score of their group.

        Sets `shift`, the largest score of the closers, and `extra`: the larger score of B and I of each label is
        `shift + extra`.

        has_forbidden_tags (bool): Whether emissions can be -inf. Then a group can have no score but -inf, and is not
            shifted.
        """
        np.maximum.reduce(scores[..., self.closers], axis=-1, keepdims=True, out=self.shift)
        if has_forbidden_tags:
            zero_neg_inf(self.shift)
        np.subtract(scores, self.shift, out=self.relative)
        np.maximum(self.begin, self.inside, out=self.extra)
        if has_forbidden_tags:
            zero_neg_inf(self.extra)
        self.begin -= self.extra
        self.inside -= self.extra
        return self.relative

    def __call__(
        self,
        previous: AnyFloats,
        current: AnyFloats,
        table: AnyFloats,
        *,
        can_exponentiate: bool,
        has_forbidden_tags: bool,
    ) -> None:
        """Add to the emissions in `current` the logsumexp of all paths that lead to each tag, relative to `shift`.

        table (AnyFloats): Transitions, already exponentiated if `can_exponentiate`. *Shape:* (D, tags, tags)
        """
        relative = self.shifted(previous, has_forbidden_tags=has_forbidden_tags)
        if can_exponentiate:
            np.matmul(np.exp(relative, out=relative), table, out=self.reached)
            np.log(self.reached, out=self.reached)
        else:
            self.reached[:] = log_sum(relative[..., None] + table[:, None], axis=-2)[..., 0, :]
        for continued in self.continued:
            continued += self.extra
        current += self.reached


def zero_neg_inf(scores: AnyFloats) -> AnyFloats:
    """Replace -inf by 0, in place."""
    scores[scores == -np.inf] = 0.0
    return scores


def log_sum(scores: AnyFloats, axis: int) -> AnyFloats:
    """Return log(sum(exp(scores))) along an axis, which is kept with length 1; -inf if all scores are -inf."""
    largest = zero_neg_inf(scores.max(axis=axis, keepdims=True))
    sums: AnyFloats = np.log(np.exp(scores - largest).sum(axis=axis, keepdims=True))
    sums += largest
    return sums


@one_thread
def forward_scores(
    scores: AnyFloats, start: AnyFloats, table: AnyFloats, packing: Packing, *, can_exponentiate: bool
) -> AnyFloats:
    """Run the forward recursion in D directions, and return the forward scores, which overwrite the emissions.

    scores (AnyFloats): Packed emissions in each direction. *Shape:* (D, tokens, tags)
    start (AnyFloats): Scores of the first tag. *Shape:* (D, tags)
    table (AnyFloats): Transition scores, `[from, to]`. *Shape:* (D, tags, tags)
    can_exponentiate (bool): See `Transitions`.
    RETURNS (AnyFloats): alpha, relative to the shift of each step. *Shape:* (D, tokens, tags)
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
    """Forward scores alpha and backward scores beta of a batch, see the equations of this module.

    Rows are tokens in reading order. Both alpha and beta include the emission of the token itself, and both are
    relative to the shifts of their recursion.

    packing (Packing): The lengths of the sequences.
    transitions (Transitions): The transition scores.
    emissions (AnyFloats): The emissions, -inf for tags that are not allowed. *Shape:* (tokens, tags)
    alpha, beta (AnyFloats): The forward and backward scores. *Shape:* (tokens, tags) each
    """

    packing: Packing
    transitions: Transitions
    emissions: AnyFloats
    alpha: AnyFloats
    beta: AnyFloats

    @classmethod
    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def of(cls, emissions: AnyFloats, transitions: Transitions, packing: Packing) -> ForwardBackward:
        """Run the forward-backward algorithm. *Shape:* (tokens, tags) for the emissions"""
        ahead, behind, swap = packing.forward, packing.backward, mirrored_tags(transitions.layout)
        start, table = transitions.in_both_directions()
        stacked = np.stack([emissions[ahead], emissions[behind][:, swap]])
        packed = forward_scores(stacked, start, table, packing, can_exponentiate=transitions.can_exponentiate)
        alpha, beta = np.empty_like(emissions), np.empty_like(emissions)
        alpha[ahead], beta[behind] = packed[0], packed[1][:, swap]
        return cls(packing, transitions, emissions, alpha, beta)

    def shifts(self) -> AnyFloats:
        """Return, for each token, the shift that alpha of the next token leaves out; 0 for the last of a sequence.

        *Shape:* (tokens,)
        """
        shifts = zero_neg_inf(self.alpha[:, self.transitions.layout.closers].max(axis=-1))
        shifts[self.packing.last] = 0.0
        return shifts.astype(np.float64)

    def log_partition(self) -> AnyFloats:
        """Return log Z of each sequence, in float64; 0 for an empty sequence. *Shape:* (sequences,)"""
        sums = self.packing.sums(self.shifts())
        with np.errstate(divide="ignore"):
            sums[self.packing.filled] += log_sum(self.alpha[self.packing.last] + self.transitions.end, axis=-1)[:, 0]
        return sums

    def unnormalized_log_marginals(self) -> tuple[AnyFloats, AnyFloats]:
        """Return the logsumexp of all paths through each tag of each token, and through all tags of each token.

        Both are relative to the same shifts, which differ from token to token. exp(first - second) are the marginals.

        *Shape:* (tokens, tags) and (tokens, 1)
        """
        forbidden = self.emissions == -np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            paths: AnyFloats = self.alpha + self.beta - self.emissions
            paths[forbidden] = -np.inf
            return paths, zero_neg_inf(log_sum(paths, axis=-1))

    def marginals(self) -> AnyFloats:
        """Return the marginal probability of each tag of each token. *Shape:* (tokens, tags)"""
        paths, total = self.unnormalized_log_marginals()
        paths -= total
        return np.exp(paths, out=paths)

    def transition_log_marginals(self, total: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
        """Return the marginal log-probabilities of all transitions without the transition scores, as two terms:

            log P(y_(t-1) = i, y_t = j) = source[t, i] + table[i, j] + target[t, j]

        t are the tokens `packing.later`, all but the first of each sequence. Keeping the terms apart allows sums over
        tokens to be computed as matrix products.

        total (AnyFloats): The second result of `unnormalized_log_marginals`. *Shape:* (tokens, 1)
        RETURNS (tuple[AnyFloats, AnyFloats]): source and target. *Shape:* (later tokens, tags) each
        """
        layout, later = self.transitions.layout, self.packing.later
        step = ForwardStep(layout, self.alpha[None], later.size)
        with np.errstate(invalid="ignore"):
            source = step.shifted(self.alpha[None, later - 1], has_forbidden_tags=True)[0]
        target = self.beta[later] - total[later]
        for block in (layout.end, layout.inside):
            target[:, block] += step.extra[0]
        if self.transitions.can_exponentiate:
            # Only tags that no path reaches exceed the bound. exp(inf) times their probability of 0 would be NaN.
            np.minimum(target, MAX_EXPONENT + 1, out=target)
        return source, target

    @one_thread
    def expected_transitions(self, total: AnyFloats, weight: AnyFloats) -> AnyFloats:
        """Return the expected count of each transition, summed over all tokens with the given weights.

        total (AnyFloats): The second result of `unnormalized_log_marginals`. *Shape:* (tokens, 1)
        weight (AnyFloats): Weight of each token. *Shape:* (tokens, 1)
        RETURNS (AnyFloats): `[from, to]`. *Shape:* (tags, tags)
        """
        table = self.transitions.table
        source, target = self.transition_log_marginals(total)
        weight = weight[self.packing.later]
        counts: AnyFloats
        if self.transitions.can_exponentiate:
            counts = np.exp(table) * (np.exp(source, out=source).T @ (np.exp(target, out=target) * weight))
        else:
            # The three terms are added up before they are exponentiated, one row of the table at a time to save memory.
            rows = (np.exp(tag[:, None] + scores + target) for tag, scores in zip(source.T, table, strict=True))
            counts = np.stack([(row * weight).sum(0) for row in rows])
        return counts
