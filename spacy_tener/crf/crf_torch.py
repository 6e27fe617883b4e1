"""A linear-chain conditional random field over BIOES tags (Lafferty et al., 2001).

`score(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]`. Only well-formed tag
sequences, which are lists of entities, are paths, in training as in decoding.

Emissions are flat: the tokens of all sequences, joined, beside the `lengths` of the sequences. A sequence of no tokens
has one path, the empty one, whose score is 0. Tags are numbered as in `spacy_tener.tagging.TagLayout`.

Sums are float64, because a loss is a small difference of large ones. The gradient of the loss, expected minus actual
counts of tags and transitions, is computed by this formula, since the recursion is in numpy, without autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..nn.layers_torch import Dropout, Linear
from ..sequences import Lengths, Packing
from ..tagging import TagLayout
from ..types import AnyFloats
from .crf_numpy import mask_emissions, packing_of
from .forward import ForwardBackward
from .transitions import Transitions, parameter_indices, weight_gradients

Gradients = tuple[Tensor | None, ...]


def upcast(emissions: Tensor) -> Tensor:
    """Convert to float32, unless the precision is that or higher."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


class LogPartition(torch.autograd.Function):
    """log Z of each sequence, over the paths of allowed tags."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        start: Tensor,
        end: Tensor,
        outside: Tensor,
        inside: Tensor,
        packing: Packing,
        allowed: Tensor | None,
    ) -> Tensor:
        dtype, tensors = upcast(emissions).dtype, (emissions, start, end, outside, inside)
        scores, *weights = (tensor.detach().to(dtype).numpy() for tensor in tensors)
        mask = None if allowed is None else allowed.cpu().numpy()
        forward_backward = ForwardBackward.of(mask_emissions(scores, mask), Transitions.of(*weights), packing)
        ctx.passes, ctx.dtype = forward_backward, emissions.dtype
        return torch.from_numpy(forward_backward.log_partition())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        forward_backward: ForwardBackward = ctx.passes
        packing = forward_backward.packing
        weights = weight.numpy().astype(forward_backward.alpha.dtype)[packing.sequence, None]
        paths, total = forward_backward.unnormalized_log_marginals()
        paths -= total
        counts = np.exp(paths, out=paths)
        counts *= weights
        transition_counts = forward_backward.expected_transitions(total, weights)
        return *_gradients(forward_backward.transitions, packing, counts, transition_counts, ctx.dtype), None, None


def _gradients(
    transitions: Transitions, packing: Packing, counts: AnyFloats, transition_counts: AnyFloats, dtype: torch.dtype
) -> Gradients:
    """Return the gradients of emissions and weights.

    counts (AnyFloats): Expected counts of tags. *Shape:* (units, tags)
    transition_counts (AnyFloats): Expected counts of transitions. *Shape:* (tags, tags)
    """
    start, end = (counts[index].sum(axis=0) for index in (packing.first, packing.last))
    parameters = weight_gradients(transitions.layout, start, end, transition_counts)
    gradients = (torch.from_numpy(np.ascontiguousarray(part)) for part in (counts, *parameters))
    return next(gradients).to(dtype), *gradients


CRFWeights = tuple[Tensor, Tensor, Tensor, Tensor]
"""start, end, outside, inside: the parameters of a CRF."""


class CRF(nn.Module):
    """Linear-chain CRF: transition scores, and the loss.

    In all methods, `allowed` is a mask of the tags that each token may have; None allows all. *Shape:* (units, tags)
    Sums are computed in float32 at least, whatever the precision of the emissions.

    All is computed, and returned, on the CPU: the recursions are chains of hundreds of small steps, and a GPU would
    spend most of a training step on launching them.
    """

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.layout = TagLayout(n_labels)
        n_open = self.layout.n_open
        self.start = nn.Parameter(torch.zeros(n_open))
        self.end = nn.Parameter(torch.zeros(n_open))
        self.outside = nn.Parameter(torch.zeros(n_open, n_open))
        self.inside = nn.Parameter(torch.zeros(2, 2 * n_labels))

    @property
    def weights(self) -> CRFWeights:
        return self.start, self.end, self.outside, self.inside

    def on_host(self, emissions: Tensor) -> tuple[Tensor, CRFWeights]:
        """Copy emissions and weights to the CPU. Their gradients go back."""
        emissions, start, end, outside, inside = (part.cpu() for part in (emissions, *self.weights))
        return emissions, (start, end, outside, inside)

    @torch.no_grad()
    def resize(self, n_labels: int) -> CRF:
        """Return a CRF with more entity types: the same weights for the present types, and zeros for the new ones."""
        old = self.layout
        if n_labels < old.n_labels:
            raise ValueError(f"a CRF cannot shrink from {old.n_labels} entity types to {n_labels}")
        grown = CRF(n_labels).to(self.start)
        tags = torch.from_numpy(old.within(grown.layout)).to(self.start.device)
        openers, closers = tags[old.openers], tags[old.closers] - grown.layout.closers.start
        continuers = tags[old.continuers] - grown.layout.continuers.start
        grown.start[openers] = self.start
        grown.end[closers] = self.end
        grown.outside[closers[:, None], openers] = self.outside
        grown.inside[:, continuers] = self.inside
        return grown

    def log_partition(self, emissions: Tensor, lengths: Lengths, allowed: Tensor | None = None) -> Tensor:
        """Return log Z: the log-sum of the scores of all paths of each sequence, -inf if there are none.

        *Shape:* (units, tags) to (sequences,)
        """
        emissions, weights = self.on_host(emissions)
        sums = _log_likelihood(emissions, weights, self._packing(emissions, lengths), allowed)
        return sums.to(upcast(emissions).dtype)

    def loss(
        self,
        emissions: Tensor,
        lengths: Lengths,
        *,
        tags: Tensor | None = None,
        allowed: Tensor | None = None,
        possible: Tensor | None = None,
    ) -> Tensor:
        """Return the negative log-likelihood of each sequence's annotation.

        A full annotation is given as `tags`, a partial one as `allowed`. Then the loss is
        `log Z(possible) - log Z(allowed)`. If the annotation is not possible, the loss is infinite, with a finite
        gradient.

        emissions (Tensor): *Shape:* (units, tags)
        tags (Tensor | None): The tag of each unit. *Shape:* (units,)
        allowed (Tensor | None): Mask of the tags that agree with a partial annotation. *Shape:* (units, tags)
        possible (Tensor | None): Mask of the tags that any annotation may have: a token of white space begins no
            entity. *Shape:* (units, tags)
        RETURNS (Tensor): *Shape:* (sequences,)
        """
        if (tags is None) == (allowed is None):
            raise ValueError("the loss of a CRF needs either tags or a mask of allowed tags")
        emissions, weights = self.on_host(emissions)
        packing = self._packing(emissions, lengths)
        if tags is not None:
            return _log_likelihood(emissions, weights, packing, possible, tags.cpu()).to(upcast(emissions).dtype)
        assert allowed is not None
        # Both sums are computed together, as one batch of twice as many sequences.
        every = torch.ones_like(allowed) if possible is None else possible
        twice = Packing.of([*packing.lengths, *packing.lengths], 2 * emissions.size(0))
        masks = torch.cat([every, every & allowed])
        free, agreeing = _log_likelihood(torch.cat([emissions, emissions]), weights, twice, masks).chunk(2)
        return (free - agreeing).to(upcast(emissions).dtype)

    def _packing(self, emissions: Tensor, lengths: Lengths) -> Packing:
        return packing_of(self.layout, tuple(emissions.shape), lengths)


def path_score(emissions: Tensor, weights: CRFWeights, packing: Packing, tags: Tensor) -> Tensor:
    """Return the score of one path of each sequence, -inf if it is forbidden. *Shape:* (sequences,), float64"""
    layout, path = TagLayout(weights[-1].shape[1] // 2), tags.numpy()
    first, last, later = packing.first, packing.last, packing.later
    rows = path[first], layout.n_tags + path[last], layout.n_tags * (2 + path[later - 1]) + path[later]
    indices = torch.from_numpy(parameter_indices(layout)[np.concatenate(rows)])
    owners, sequence = packing.sequence[np.concatenate([first, last, later])], torch.from_numpy(packing.sequence)
    parameters = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_full((1,), -torch.inf)])
    emitted = emissions.gather(1, tags[:, None])[:, 0].double()
    sums = torch.zeros(packing.n_sequences, dtype=torch.float64).index_add(0, sequence, emitted)
    return sums.index_add(0, torch.from_numpy(owners), parameters.index_select(0, indices).double())


def _log_likelihood(
    emissions: Tensor, weights: CRFWeights, packing: Packing, allowed: Tensor | None, tags: Tensor | None = None
) -> Tensor:
    """Return log Z of each sequence over the paths of allowed tags, minus the score of `tags` if given."""
    sums: Tensor = LogPartition.apply(emissions, *weights, packing, allowed)  # type: ignore[no-untyped-call]
    return sums if tags is None else sums - path_score(emissions, weights, packing, tags)


def cross_entropy(
    teacher: CRF,
    teacher_emissions: Tensor,
    student: CRF,
    emissions: Tensor,
    lengths: Lengths,
    possible: Tensor | None = None,
    *,
    under_annotation: Tensor | None = None,
) -> Tensor:
    """Return the cross-entropy of the student's distribution over paths under the teacher's, summed over all sequences.

    It is exact: `log Z(student) - E_teacher[score(student)]`. A score is linear in the expected counts of tags and
    transitions, which are the gradient of the teacher's log Z. The student may have more entity types, after those of
    the teacher; for the teacher, they have probability 0.

    under_annotation (Tensor | None): The tags that agree with an annotation, which the teacher's paths have then. An
        entity of a type that the teacher lacks is no entity to it. *Shape:* (units, tags)
    """
    layout = student.layout
    emissions, weights = student.on_host(emissions)
    of_teacher = torch.from_numpy(teacher.layout.within(layout))
    scores = emissions.new_full((emissions.size(0), layout.n_tags), -torch.inf, dtype=upcast(teacher_emissions).dtype)
    teacher_scores = teacher_emissions.detach().to(scores)
    if under_annotation is None:
        grown = teacher.resize(layout.n_labels).cpu()
    else:
        grown = _grown_like_outside(teacher, layout.n_labels).cpu()
        scores[:] = teacher_scores[:, [teacher.layout.outside]]
    scores[:, of_teacher] = teacher_scores
    features = (scores.requires_grad_(), *grown.weights)
    with torch.enable_grad():
        allowed = possible if under_annotation is None else under_annotation
        counts = torch.autograd.grad(grown.log_partition(scores, lengths, allowed).sum(), features)
    expected = [
        (count * score).sum(dtype=torch.float64) for count, score in zip(counts, (emissions, *weights), strict=True)
    ]
    total = student.log_partition(emissions, lengths, possible).sum(dtype=torch.float64) - torch.stack(expected).sum()
    return total.to(counts[0].dtype)


@torch.no_grad()
def _grown_like_outside(crf: CRF, n_labels: int) -> CRF:
    """Return a CRF with more entity types, whose new ones have the weights of O."""
    present, grown = crf.layout.n_labels, CRF(n_labels).to(crf.start)
    # The places of O and of two tags for each type: old ones stay, new ones are those of O.
    types, new = torch.arange(present), torch.zeros(n_labels - present, dtype=torch.long)
    openers = torch.cat([types, new + present, torch.tensor([present]), present + 1 + types, new + present])
    closers = torch.cat([torch.tensor([0]), 1 + types, new, 1 + present + types, new])
    grown.start[:], grown.end[:] = crf.start[openers], crf.end[closers]
    grown.outside[:] = crf.outside[closers][:, openers]
    grown.inside[:] = crf.outside[0, present]
    grown.inside[:, torch.cat([types, n_labels + types])] = crf.inside
    return grown


class CRFHead(nn.Module):
    """Linear layer from tokens to the emissions of a CRF, and the CRF.

    The released code normalises emissions by log-softmax. That adds the same number to all tags of a token, which
    changes neither losses nor probabilities, so it is left out.

    depth (int): How many emissions a token has: for entities, for those within them, and so on.
    """

    def __init__(self, *, width: int, n_labels: int, dropout: float, depth: int = 1) -> None:
        super().__init__()
        self.depth = depth
        self.dropout = Dropout(dropout)
        self.emit = Linear(width, depth * TagLayout(n_labels).n_tags)
        self.crf = CRF(n_labels)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the emissions. *Shape:* (units, width) to (units, depth * tags)"""
        return self.emit(self.dropout(tokens))

    def grown(self, n_labels: int) -> CRFHead:
        """Return a head for more entity types, with the same emissions for the present ones."""
        head = CRFHead(width=self.emit.in_features, n_labels=n_labels, dropout=self.dropout.p, depth=self.depth)
        head.crf = self.crf.resize(n_labels)
        first = np.arange(self.depth)[:, None] * head.crf.layout.n_tags
        present = torch.from_numpy((first + self.crf.layout.within(head.crf.layout)).ravel())
        with torch.no_grad():
            head.emit.weight[present] = self.emit.weight.cpu()
            head.emit.bias[present] = self.emit.bias.cpu()
        return head
