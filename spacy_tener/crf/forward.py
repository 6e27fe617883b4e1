"""Forward-backward algorithm of a linear-chain CRF, in log-space.

Every tag is reached either from the closers or from the B and I of one type. Each such group of source tags is shifted
by its own largest score, so that its exponentials never all underflow. Then the step to all next tags is one product
with the exponentiated transitions. Scores are kept relative to the step's shift, which keeps float32 accurate however
long the text.

Both directions run as one batch (the backward one over mirrored tags), so a loss with its gradient costs one pass
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
    """One step of the recursion for `width` sequences in each of `D` directions, with its buffers and their views.

    *Shape:* scores before and after are (D, width, tags)
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
        """Return scores minus the largest of their group of source tags.

        `shift` is the largest score of the closers; `shift + extra`, the larger score of B and I of each type.
        has_forbidden_tags (bool): Leave groups that are all -inf unshifted. There are none if no emission is -inf.
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
        """Add to the emissions in `current` the log-sums of all paths that lead to them.

        table (AnyFloats): Transitions, exponentiated if possible. *Shape:* (D, tags, tags), `[from, to]`
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
    """Return the logarithm of the sum of exponentials along an axis, which is kept with length 1."""
    largest = zero_neg_inf(scores.max(axis=axis, keepdims=True))
    sums: AnyFloats = np.log(np.exp(scores - largest).sum(axis=axis, keepdims=True))
    sums += largest
    return sums


@one_thread
def forward_scores(
    scores: AnyFloats, start: AnyFloats, table: AnyFloats, packing: Packing, *, can_exponentiate: bool
) -> AnyFloats:
    """Overwrite packed emissions with log-sums of the paths that end in each tag, relative to the shifts of the steps
    before, and return them.

    scores (AnyFloats): The emissions in each of D directions. *Shape:* (D, units, tags)
    start (AnyFloats): Scores of first tags. *Shape:* (D, tags)
    table (AnyFloats): Scores of pairs of tags, `[from, to]`. *Shape:* (D, tags, tags)
    can_exponentiate (bool): As in `Transitions`.
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
    """Forward and backward log-sums of all paths, for each tag of each token, in flat rows.

    `alpha` sums over paths up to the token, `beta` over paths from it on, both with the token's own emission.
    """

    packing: Packing
    transitions: Transitions
    emissions: AnyFloats
    """Masked: -inf where a tag is not allowed. *Shape:* (units, tags)"""
    alpha: AnyFloats
    """*Shape:* (units, tags)"""
    beta: AnyFloats
    """*Shape:* (units, tags)"""

    @classmethod
    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def of(cls, emissions: AnyFloats, transitions: Transitions, packing: Packing) -> ForwardBackward:
        ahead, behind, swap = packing.forward, packing.backward, mirrored_tags(transitions.layout)
        start, table = transitions.in_both_directions()
        stacked = np.stack([emissions[ahead], emissions[behind][:, swap]])
        packed = forward_scores(stacked, start, table, packing, can_exponentiate=transitions.can_exponentiate)
        alpha, beta = np.empty_like(emissions), np.empty_like(emissions)
        alpha[ahead], beta[behind] = packed[0], packed[1][:, swap]
        return cls(packing, transitions, emissions, alpha, beta)

    def shifts(self) -> AnyFloats:
        """Return what is subtracted from `alpha` between a token and the next; 0 for the last. *Shape:* (units,)"""
        shifts = zero_neg_inf(self.alpha[:, self.transitions.layout.closers].max(axis=-1))
        shifts[self.packing.last] = 0.0
        return shifts.astype(np.float64)

    def log_partition(self) -> AnyFloats:
        """Return log Z of each sequence. *Shape:* (sequences,), in float64"""
        sums = self.packing.sums(self.shifts())
        with np.errstate(divide="ignore"):
            sums[self.packing.filled] += log_sum(self.alpha[self.packing.last] + self.transitions.end, axis=-1)[:, 0]
        return sums

    def unnormalized_log_marginals(self) -> tuple[AnyFloats, AnyFloats]:
        """Return log-sums of all paths through each tag, and through all tags of a token; both relative to its shifts.

        *Shape:* (units, tags) and (units, 1)
        """
        forbidden = self.emissions == -np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            paths: AnyFloats = self.alpha + self.beta - self.emissions
            paths[forbidden] = -np.inf
            return paths, zero_neg_inf(log_sum(paths, axis=-1))

    def marginals(self) -> AnyFloats:
        """Return the probability of each tag of each token. *Shape:* (units, tags)"""
        paths, total = self.unnormalized_log_marginals()
        paths -= total
        return np.exp(paths, out=paths)

    def transition_log_marginals(self, total: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
        """Return the log-probabilities of all pairs of neighbouring tags, factored: `source` and `target` such that tag
        i before the `later` token t and tag j at it have `source[t, i] + table[i, j] + target[t, j]`.

        *Shape:* (units, 1) to (n_later, tags) twice
        """
        layout, later = self.transitions.layout, self.packing.later
        step = ForwardStep(layout, self.alpha[None], later.size)
        with np.errstate(invalid="ignore"):
            source = step.shifted(self.alpha[None, later - 1], has_forbidden_tags=True)[0]
        target = self.beta[later] - total[later]
        for block in (layout.end, layout.inside):
            target[:, block] += step.extra[0]
        if self.transitions.can_exponentiate:
            # Only tags that no path reaches are above the bound. Infinity times their zeros would be NaN.
            np.minimum(target, MAX_EXPONENT + 1, out=target)
        return source, target

    @one_thread
    def expected_transitions(self, total: AnyFloats, weight: AnyFloats) -> AnyFloats:
        """Return the expected counts of transitions, weighted by token.

        *Shape:* (units, 1) and (units, 1), to (tags, tags)
        """
        table = self.transitions.table
        source, target = self.transition_log_marginals(total)
        weight = weight[self.packing.later]
        counts: AnyFloats
        if self.transitions.can_exponentiate:
            counts = np.exp(table) * (np.exp(source, out=source).T @ (np.exp(target, out=target) * weight))
        else:
            # One row of the table at a time: the three terms must be added up before they are exponentiated.
            rows = (np.exp(tag[:, None] + scores + target) for tag, scores in zip(source.T, table, strict=True))
            counts = np.stack([(row * weight).sum(0) for row in rows])
        return counts
