"""A linear-chain conditional random field over BIOES tags (Lafferty et al. 2001), trained as in Collobert et al. 2011.

The encoder gives each token a score for each tag, the emissions. The CRF adds scores for pairs of neighbouring tags:

    score(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]
    P(y)     = exp(score(y)) / Z,    Z = sum of exp(score(y)) over all tag sequences y
    loss     = -log P(y of the annotation) = log Z - score(y of the annotation)

In training as in decoding, only well-formed BIOES sequences exist, such as `B-PER E-PER O S-LOC`. Each corresponds to a
list of entities that do not overlap. `spacy_tener.tagging.TagLayout` defines the ids of the tags.

The tokens of all sequences are concatenated to the shape (tokens, tags), without padding; `lengths` tells how many each
sequence has. A sequence without tokens has one tag sequence, the empty one with a score of 0.

The recursion for log Z runs in NumPy, see `forward`, without autograd. Its gradient is known in closed form: it is the
expected number of times that each score is used, so that the gradient of the loss is the expected minus the actual
counts. The loss is a small difference of large sums, which are therefore computed in float64.
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
    """Convert half precision to float32; return float32 and float64 unchanged."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


class LogPartition(torch.autograd.Function):
    """The log-partition function log Z of each sequence, over all tag sequences of allowed tags.

    Its gradient with respect to an emission is the marginal probability of the tag, and with respect to a transition
    score the expected number of such transitions.
    """

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
        ctx.forward_backward, ctx.dtype = forward_backward, emissions.dtype
        return torch.from_numpy(forward_backward.log_partition())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        forward_backward: ForwardBackward = ctx.forward_backward
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
    """Return the gradients of the emissions and of start, end, outside and inside.

    counts (AnyFloats): Expected counts of tags. *Shape:* (units, tags)
    transition_counts (AnyFloats): Expected counts of transitions. *Shape:* (tags, tags)
    """
    start, end = (counts[index].sum(axis=0) for index in (packing.first, packing.last))
    parameters = weight_gradients(transitions.layout, start, end, transition_counts)
    gradients = (torch.from_numpy(np.ascontiguousarray(part)) for part in (counts, *parameters))
    return next(gradients).to(dtype), *gradients


# The parameters of a CRF: start, end, outside and inside.
CRFWeights = tuple[Tensor, Tensor, Tensor, Tensor]


class CRF(nn.Module):
    """Linear-chain CRF with its transition scores as parameters.

    In all methods, `allowed` is a mask of the tags that each token may have; None allows all. *Shape:* (tokens, tags)
    Half-precision emissions are converted to float32.

    Everything is computed and returned on the CPU: the recursions consist of hundreds of small steps, one after the
    other. A GPU would spend most of a training step launching their kernels.

    n_labels (int): Number of labels, that is, of entity types. There are `4 * n_labels + 1` tags.
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
        """Copy emissions and weights to the CPU. Gradients flow back to the device."""
        emissions, start, end, outside, inside = (part.cpu() for part in (emissions, *self.weights))
        return emissions, (start, end, outside, inside)

    @torch.no_grad()
    def resize(self, n_labels: int) -> CRF:
        """Return a CRF with more labels. Existing labels keep their weights, and new labels start with zeros."""
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
        """Return the log-partition function log Z of each sequence; -inf if no tag sequence is allowed.

        *Shape:* (tokens, tags) to (sequences,)
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
        """Return the negative log-likelihood of the annotation of each sequence.

        Pass a complete annotation as `tags`. Pass a partial annotation as `allowed`, the tags that agree with it. Then
        the likelihood is summed over all tag sequences that agree with the annotation:

            loss = log Z(possible) - log Z(possible and allowed)

        If the annotation contradicts `possible`, the loss is infinite, but its gradient is finite.

        emissions (Tensor): *Shape:* (tokens, tags)
        tags (Tensor | None): The tag of each token. *Shape:* (tokens,)
        allowed (Tensor | None): Mask of the tags that agree with a partial annotation. *Shape:* (tokens, tags)
        possible (Tensor | None): Mask of the tags that are possible whatever the annotation: for example, no entity
            begins with white space. None for all. *Shape:* (tokens, tags)
        RETURNS (Tensor): *Shape:* (sequences,)
        """
        if (tags is None) == (allowed is None):
            raise ValueError("the loss of a CRF needs either tags or a mask of allowed tags")
        emissions, weights = self.on_host(emissions)
        packing = self._packing(emissions, lengths)
        if tags is not None:
            return _log_likelihood(emissions, weights, packing, possible, tags.cpu()).to(upcast(emissions).dtype)
        assert allowed is not None
        # Both log-partition functions are computed in one run over a batch with each sequence twice.
        possible = torch.ones_like(allowed) if possible is None else possible
        packing_twice = Packing.of([*packing.lengths, *packing.lengths], 2 * emissions.size(0))
        masks = torch.cat([possible, possible & allowed])
        log_partitions = _log_likelihood(torch.cat([emissions, emissions]), weights, packing_twice, masks)
        over_possible, over_allowed = log_partitions.chunk(2)
        return (over_possible - over_allowed).to(upcast(emissions).dtype)

    def _packing(self, emissions: Tensor, lengths: Lengths) -> Packing:
        return packing_of(self.layout, tuple(emissions.shape), lengths)


def path_score(emissions: Tensor, weights: CRFWeights, packing: Packing, tags: Tensor) -> Tensor:
    """Return score(y) of one tag sequence y of each sequence, -inf if it is forbidden. *Shape:* (sequences,), float64

    This part of the loss is computed in torch, with autograd.

    tags (Tensor): The tag sequences, concatenated. *Shape:* (tokens,)
    """
    layout, path = TagLayout(weights[-1].shape[1] // 2), tags.numpy()
    first, last, later = packing.first, packing.last, packing.later
    # Indices in `start`, `end` and the transition table, concatenated, as `parameter_indices` has them.
    start, end = path[first], layout.n_tags + path[last]
    transitions = layout.n_tags * (2 + path[later - 1]) + path[later]
    used = torch.from_numpy(parameter_indices(layout)[np.concatenate([start, end, transitions])])
    sequence_of_used = torch.from_numpy(packing.sequence[np.concatenate([first, last, later])])
    parameters = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_full((1,), -torch.inf)])

    emitted = emissions.gather(1, tags[:, None])[:, 0].double()
    sums = torch.zeros(packing.n_sequences, dtype=torch.float64)
    sums = sums.index_add(0, torch.from_numpy(packing.sequence), emitted)
    return sums.index_add(0, sequence_of_used, parameters.index_select(0, used).double())


def _log_likelihood(
    emissions: Tensor, weights: CRFWeights, packing: Packing, allowed: Tensor | None, tags: Tensor | None = None
) -> Tensor:
    """Return log Z of each sequence over the allowed tags, minus the score of `tags` if given, in float64."""
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
    sequence_weights: Tensor | None = None,
) -> Tensor:
    """Return the loss for knowledge distillation: the cross-entropy between the tag sequences of teacher and student.

    It is summed over all sequences, and exact, over the whole distribution of tag sequences:

        -E_teacher[log P_student(y)] = log Z_student - E_teacher[score_student(y)]

    The score is linear in the counts of tags and transitions, and the teacher's expected counts are the gradient of its
    log Z. The student can have more labels than the teacher, as long as the teacher's labels come first. For the
    teacher, the other labels have probability 0.

    possible (Tensor | None): Mask of the tags that the tag sequences can have. *Shape:* (tokens, tags)
    under_annotation (Tensor | None): Mask of the tags that agree with an annotation; restricts the teacher's
        distribution to it. For the teacher, entities with labels that it does not have are O. *Shape:* (tokens, tags)
    sequence_weights (Tensor | None): Weight of each text in the sum. By default, all texts have the weight 1. *Shape:*
        (texts,)
    """
    layout = student.layout
    emissions, weights = student.on_host(emissions)

    def weighted_sum(values: Tensor) -> Tensor:
        values = values.double()
        return values.sum() if sequence_weights is None else values @ sequence_weights.double()

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
        counts = torch.autograd.grad(weighted_sum(grown.log_partition(scores, lengths, allowed)), features)
    expected = [
        (count * score).sum(dtype=torch.float64) for count, score in zip(counts, (emissions, *weights), strict=True)
    ]
    total = weighted_sum(student.log_partition(emissions, lengths, possible)) - torch.stack(expected).sum()
    return total.to(counts[0].dtype)


@torch.no_grad()
def _grown_like_outside(crf: CRF, n_labels: int) -> CRF:
    """Return a CRF with more labels, where the tags of new labels have the weights of O."""
    present, grown = crf.layout.n_labels, CRF(n_labels).to(crf.start)
    # For each opener and closer of the grown CRF, the opener or closer of the present CRF whose weights it gets.
    types, new = torch.arange(present), torch.zeros(n_labels - present, dtype=torch.long)
    openers = torch.cat([types, new + present, torch.tensor([present]), present + 1 + types, new + present])
    closers = torch.cat([torch.tensor([0]), 1 + types, new, 1 + present + types, new])
    grown.start[:], grown.end[:] = crf.start[openers], crf.end[closers]
    grown.outside[:] = crf.outside[closers][:, openers]
    grown.inside[:] = crf.outside[0, present]
    grown.inside[:, torch.cat([types, n_labels + types])] = crf.inside
    return grown


class CRFHead(nn.Module):
    """The last part of a tagger: a linear layer that computes the emissions, and the CRF.

    TENER's released code normalizes the emissions with a log-softmax. It is left out here, since it adds the same value
    to all tags of a token, which changes neither losses nor probabilities.

    width (int): Size of the encoder's output vectors.
    depth (int): Maximum nesting depth of entities. Each token has emissions for every depth.
    """

    def __init__(self, *, width: int, n_labels: int, dropout: float, depth: int = 1) -> None:
        super().__init__()
        self.depth = depth
        self.dropout = Dropout(dropout)
        self.emit = Linear(width, depth * TagLayout(n_labels).n_tags)
        self.crf = CRF(n_labels)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the emissions. *Shape:* (tokens, width) to (tokens, depth * tags)"""
        return self.emit(self.dropout(tokens))

    def grown(self, n_labels: int) -> CRFHead:
        """Return a head with more labels, which computes the same emissions for the existing labels."""
        head = CRFHead(width=self.emit.in_features, n_labels=n_labels, dropout=self.dropout.p, depth=self.depth)
        head.crf = self.crf.resize(n_labels)
        first = np.arange(self.depth)[:, None] * head.crf.layout.n_tags
        present = torch.from_numpy((first + self.crf.layout.within(head.crf.layout)).ravel())
        with torch.no_grad():
            head.emit.weight[present] = self.emit.weight.cpu()
            head.emit.bias[present] = self.emit.bias.cpu()
        return head
