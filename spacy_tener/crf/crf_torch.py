"""A linear-chain conditional random field (CRF) over BIOES tags, with the loss for training.

The CRF follows Lafferty et al. (2001), and the loss Collobert et al. (2011). The encoder computes the emissions, a
score for each tag at each token. The CRF adds transition scores for pairs of adjacent tags:

    score(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]
    P(y)     = exp(score(y)) / Z,    Z = sum of exp(score(y)) over all tag sequences y
    loss     = -log P(gold) = log Z - score(gold)

Only well-formed BIOES sequences are possible, such as `B-PER E-PER O S-LOC`. Each tag sequence corresponds to a list of
non-overlapping entities. `spacy_tener.tagging.TagLayout` defines the tag ids.

The texts in a batch are concatenated without padding: emissions have the shape (tokens, tags), and `lengths` contains
the number of tokens in each text. An empty text has exactly one tag sequence, with the score 0.

The recursion for log Z runs in NumPy (see `forward`), without autograd. The gradient of log Z with respect to a score
is the expected count of this score: how often tag sequences use the score on average. Therefore, the gradient of the
loss is the expected counts minus the gold counts. log Z and score(gold) are large, and their difference is small, so
both are computed in float64.
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
    """Convert float16 and bfloat16 to float32. float32 and float64 are unchanged."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


class LogPartition(torch.autograd.Function):
    """Autograd function for the log-partition function log Z for each sequence in a batch.

    The sum includes all tag sequences that only contain allowed tags. The gradient with respect to an emission is the
    marginal probability of the tag. The gradient with respect to a transition score is the expected number of such
    transitions.
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
    def backward(ctx: Any, grad_log_z: Tensor) -> Gradients:
        forward_backward: ForwardBackward = ctx.forward_backward
        packing = forward_backward.packing
        # Gradient of the loss with respect to log Z, for the sequence of each token.
        gradients = grad_log_z.numpy().astype(forward_backward.alpha.dtype)[packing.sequence, None]
        log_scores, normalizer = forward_backward.unnormalized_log_marginals()
        log_scores -= normalizer
        # The expected count of a tag at a token is its marginal probability.
        counts = np.exp(log_scores, out=log_scores)
        counts *= gradients
        transition_counts = forward_backward.expected_transitions(normalizer, gradients)
        return *_gradients(forward_backward.transitions, packing, counts, transition_counts, ctx.dtype), None, None


def _gradients(
    transitions: Transitions, packing: Packing, counts: AnyFloats, transition_counts: AnyFloats, dtype: torch.dtype
) -> Gradients:
    """Return the gradients of the emissions and the CRF parameters start, end, outside and inside.

    counts (AnyFloats): Expected count of each tag at each token. *Shape:* (tokens, tags)
    transition_counts (AnyFloats): Expected count of each transition. *Shape:* (tags, tags)
    dtype (torch.dtype): Data type of the emissions.
    """
    start, end = (counts[index].sum(axis=0) for index in (packing.first, packing.last))
    parameters = weight_gradients(transitions.layout, start, end, transition_counts)
    gradients = (torch.from_numpy(np.ascontiguousarray(part)) for part in (counts, *parameters))
    return next(gradients).to(dtype), *gradients


# The CRF parameters: start, end, outside and inside.
CRFWeights = tuple[Tensor, Tensor, Tensor, Tensor]


class CRF(nn.Module):
    """Linear-chain CRF with learned transition scores.

    All methods compute on the CPU, since the recursion over tokens has hundreds of small sequential steps. On a GPU,
    launching kernels would take most of the training time. float16 and bfloat16 emissions are converted to float32.

    n_labels (int): Number of labels (entity types). The CRF has `4 * n_labels + 1` tags.
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

    def copy_to_cpu(self, emissions: Tensor) -> tuple[Tensor, CRFWeights]:
        """Copy emissions and CRF parameters to the CPU. The copies are differentiable."""
        emissions, start, end, outside, inside = (part.cpu() for part in (emissions, *self.weights))
        return emissions, (start, end, outside, inside)

    @torch.no_grad()
    def with_labels(self, n_labels: int) -> CRF:
        """Return a copy with `n_labels` labels. Labels can be added, but not removed.

        Existing labels keep their parameters. New parameters are initialized to zero.
        """
        old = self.layout
        if n_labels < old.n_labels:
            raise ValueError(
                f"a CRF with {old.n_labels} entity types cannot be reduced to {n_labels}: labels can be added, but not "
                "removed"
            )
        extended = CRF(n_labels).to(self.start)
        tags = torch.from_numpy(old.within(extended.layout)).to(self.start.device)
        openers, closers = tags[old.openers], tags[old.closers] - extended.layout.closers.start
        continuers = tags[old.continuers] - extended.layout.continuers.start
        extended.start[openers] = self.start
        extended.end[closers] = self.end
        extended.outside[closers[:, None], openers] = self.outside
        extended.inside[:, continuers] = self.inside
        return extended

    def log_partition(self, emissions: Tensor, lengths: Lengths, allowed: Tensor | None = None) -> Tensor:
        """Compute the log-partition function log Z for each sequence.

        emissions (Tensor): *Shape:* (tokens, tags)
        lengths (Lengths): Number of tokens in each sequence. *Shape:* (sequences,)
        allowed (Tensor | None): Mask of the allowed tags for each token. None allows all tags. *Shape:* (tokens, tags)
        RETURNS (Tensor): log Z for each sequence. -inf if no tag sequence is allowed. *Shape:* (sequences,)
        """
        emissions, weights = self.copy_to_cpu(emissions)
        log_z = _log_partition(emissions, weights, self._packing(emissions, lengths), allowed)
        return log_z.to(upcast(emissions).dtype)

    def loss(
        self,
        emissions: Tensor,
        lengths: Lengths,
        *,
        tags: Tensor | None = None,
        allowed: Tensor | None = None,
        possible: Tensor | None = None,
    ) -> Tensor:
        """Compute the negative log-likelihood of the gold annotation for each sequence.

        If the annotation is complete, pass it as `tags`. If it is partial, pass a mask of the tags that are consistent
        with the annotation as `allowed`. The likelihood of a partial annotation is the sum over all consistent tag
        sequences:

            loss = log Z(possible) - log Z(possible and allowed)

        If no tag sequence is both possible and consistent with a partial annotation, the loss is infinite, but its
        gradient is finite.

        emissions (Tensor): *Shape:* (tokens, tags)
        lengths (Lengths): Number of tokens in each sequence. *Shape:* (sequences,)
        tags (Tensor | None): Gold tag of each token, which must be possible. *Shape:* (tokens,)
        allowed (Tensor | None): Mask of the tags that are consistent with a partial annotation. *Shape:* (tokens, tags)
        possible (Tensor | None): Mask of the tags that are possible in any annotation. For example, no entity begins
            with whitespace. None if all tags are possible. *Shape:* (tokens, tags)
        RETURNS (Tensor): *Shape:* (sequences,)
        """
        if (tags is None) == (allowed is None):
            raise ValueError("pass either tags or allowed, a mask of the allowed tags, to compute the loss of a CRF")
        emissions, weights = self.copy_to_cpu(emissions)
        packing = self._packing(emissions, lengths)
        if tags is not None:
            log_z = _log_partition(emissions, weights, packing, possible)
            return (log_z - path_score(emissions, weights, packing, tags.cpu())).to(upcast(emissions).dtype)
        assert allowed is not None
        # Compute the two log-partition functions in a single call, with a batch that contains each sequence twice.
        possible = torch.ones_like(allowed) if possible is None else possible
        packing_twice = Packing.of([*packing.lengths, *packing.lengths], 2 * emissions.size(0))
        masks = torch.cat([possible, possible & allowed])
        log_partitions = _log_partition(torch.cat([emissions, emissions]), weights, packing_twice, masks)
        over_possible, over_allowed = log_partitions.chunk(2)
        return (over_possible - over_allowed).to(upcast(emissions).dtype)

    def _packing(self, emissions: Tensor, lengths: Lengths) -> Packing:
        return packing_of(self.layout, tuple(emissions.shape), lengths)


def path_score(emissions: Tensor, weights: CRFWeights, packing: Packing, tags: Tensor) -> Tensor:
    """Compute the score of a given tag sequence for each sequence in a batch, with autograd.

    The score is -inf if the tag sequence contains a transition that is not well-formed.

    weights (CRFWeights): The CRF parameters start, end, outside and inside.
    packing (Packing): Sequence lengths.
    tags (Tensor): The tag sequences, concatenated. *Shape:* (tokens,)
    RETURNS (Tensor): float64. *Shape:* (sequences,)
    """
    layout, path = TagLayout(weights[-1].shape[1] // 2), tags.numpy()
    first, last, later = packing.first, packing.last, packing.later
    # `parameter_indices` maps these indices to parameters. It numbers the start scores first, then the end scores, and
    # then the transition matrix, row by row.
    start, end = path[first], layout.n_tags + path[last]
    transitions = layout.n_tags * (2 + path[later - 1]) + path[later]
    used = torch.from_numpy(parameter_indices(layout)[np.concatenate([start, end, transitions])])
    sequence_of_used = torch.from_numpy(packing.sequence[np.concatenate([first, last, later])])
    # The last value is the score of all forbidden transitions.
    parameters = torch.cat([*(weight.flatten() for weight in weights), weights[0].new_full((1,), -torch.inf)])

    emitted = emissions.gather(1, tags[:, None])[:, 0].double()
    sums = torch.zeros(packing.n_sequences, dtype=torch.float64)
    sums = sums.index_add(0, torch.from_numpy(packing.sequence), emitted)
    return sums.index_add(0, sequence_of_used, parameters.index_select(0, used).double())


def _log_partition(emissions: Tensor, weights: CRFWeights, packing: Packing, allowed: Tensor | None) -> Tensor:
    """Compute log Z for each sequence, with autograd.

    allowed (Tensor | None): Mask of the allowed tags. *Shape:* (tokens, tags)
    RETURNS (Tensor): float64. *Shape:* (sequences,)
    """
    log_z: Tensor = LogPartition.apply(emissions, *weights, packing, allowed)  # type: ignore[no-untyped-call]
    return log_z


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
    """Compute the loss for knowledge distillation between two CRFs.

    The loss is the cross-entropy between the teacher's and the student's distribution over tag sequences, summed over
    the batch. It is computed exactly:

        -E_teacher[log P_student(y)] = log Z_student - E_teacher[score_student(y)]

    The score of a tag sequence is linear in the tag and transition counts. Therefore, the expected score is the
    student's scores multiplied by the teacher's expected counts. The expected counts are the gradient of the teacher's
    log Z.

    The student can have additional labels after the teacher's labels. The teacher assigns them the probability 0.

    lengths (Lengths): Number of tokens in each sequence. *Shape:* (sequences,)
    possible (Tensor | None): Mask of the tags that are possible in any annotation. *Shape:* (tokens, tags)
    under_annotation (Tensor | None): Mask of the tags that are consistent with an annotation. The teacher's
        distribution is restricted to these tags. In this case, the teacher scores additional labels like O. *Shape:*
        (tokens, tags)
    sequence_weights (Tensor | None): Weight of each sequence in the sum. By default, all weights are 1. *Shape:*
        (sequences,)
    RETURNS (Tensor): *Shape:* ()
    """
    layout = student.layout
    emissions, weights = student.copy_to_cpu(emissions)

    def weighted_sum(values: Tensor) -> Tensor:
        values = values.double()
        return values.sum() if sequence_weights is None else values @ sequence_weights.double()

    of_teacher = torch.from_numpy(teacher.layout.within(layout))
    scores = emissions.new_full((emissions.size(0), layout.n_tags), -torch.inf, dtype=upcast(teacher_emissions).dtype)
    teacher_scores = teacher_emissions.detach().to(scores)
    if under_annotation is None:
        extended = teacher.with_labels(layout.n_labels).cpu()
    else:
        extended = _with_labels_like_outside(teacher, layout.n_labels).cpu()
        scores[:] = teacher_scores[:, [teacher.layout.outside]]
    scores[:, of_teacher] = teacher_scores
    features = (scores.requires_grad_(), *extended.weights)
    with torch.enable_grad():
        allowed = possible if under_annotation is None else under_annotation
        # The gradient of log Z is the teacher's expected count for each tag and transition.
        counts = torch.autograd.grad(weighted_sum(extended.log_partition(scores, lengths, allowed)), features)
    expected = [
        (count * score).sum(dtype=torch.float64) for count, score in zip(counts, (emissions, *weights), strict=True)
    ]
    total = weighted_sum(student.log_partition(emissions, lengths, possible)) - torch.stack(expected).sum()
    return total.to(counts[0].dtype)


@torch.no_grad()
def _with_labels_like_outside(crf: CRF, n_labels: int) -> CRF:
    """Return a CRF with additional labels that are scored like O.

    All transitions from and to a new label's tags have the parameters of O.
    """
    present, extended = crf.layout.n_labels, CRF(n_labels).to(crf.start)
    # Indices into the parameters of `crf` for each tag in the new CRF. Openers (B, O, S) can begin a sequence, and
    # closers (O, S, E) can end a sequence. Tags of new labels get the index of O.
    types, new = torch.arange(present), torch.zeros(n_labels - present, dtype=torch.long)
    openers = torch.cat([types, new + present, torch.tensor([present]), present + 1 + types, new + present])
    closers = torch.cat([torch.tensor([0]), 1 + types, new, 1 + present + types, new])
    extended.start[:], extended.end[:] = crf.start[openers], crf.end[closers]
    extended.outside[:] = crf.outside[closers][:, openers]
    extended.inside[:] = crf.outside[0, present]
    extended.inside[:, torch.cat([types, n_labels + types])] = crf.inside
    return extended


class CRFHead(nn.Module):
    """A tagger's output layer: a linear layer that computes the emissions, and a CRF.

    The TENER authors' code applies a log-softmax to the emissions. We omit it, since it adds the same constant to all
    emissions at a token. This changes neither the loss nor the probabilities.

    width (int): Encoder output width.
    n_labels (int): Number of labels (entity types).
    dropout (float): Dropout rate for the encoder's output.
    depth (int): Maximum nesting depth. The linear layer computes separate emissions for each depth.
    """

    def __init__(self, *, width: int, n_labels: int, dropout: float, depth: int = 1) -> None:
        super().__init__()
        self.depth = depth
        self.dropout = Dropout(dropout)
        self.emit = Linear(width, depth * TagLayout(n_labels).n_tags)
        self.crf = CRF(n_labels)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute the emissions. *Shape:* (tokens, width) to (tokens, depth * tags)"""
        return self.emit(self.dropout(tokens))

    def with_labels(self, n_labels: int) -> CRFHead:
        """Return a copy with `n_labels` labels. The emissions and parameters of existing labels don't change."""
        head = CRFHead(width=self.emit.in_features, n_labels=n_labels, dropout=self.dropout.p, depth=self.depth)
        head.crf = self.crf.with_labels(n_labels)
        # Each nesting depth has its own block of rows in the linear layer's weight.
        first = np.arange(self.depth)[:, None] * head.crf.layout.n_tags
        present = torch.from_numpy((first + self.crf.layout.within(head.crf.layout)).ravel())
        with torch.no_grad():
            head.emit.weight[present] = self.emit.weight.cpu()
            head.emit.bias[present] = self.emit.bias.cpu()
        return head
