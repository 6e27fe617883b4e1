"""A linear-chain conditional random field over BIOES tags (Lafferty et al., 2001).

`score(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]`. Only well-formed tag
sequences, which are lists of entities, are paths, in training as in decoding.

Emissions are flat: the tokens of all sequences, joined, beside the `lengths` of the sequences. A sequence of no tokens
has one path, the empty one, whose score is 0. Tags are numbered as in `spacy_tener.tagging.TagLayout`.

Sums are float64, because a loss is a small difference of large ones. The gradient of the loss, expected minus actual
counts of tags and transitions, is computed by this formula, since the recursion is in numpy, without autograd.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..batching.sequences import Lengths, Packing
from ..crf.forward import ForwardBackward
from ..crf.scorer import PathScorer, mask_emissions, packing_of
from ..crf.transitions import CRFArrays, Transitions, weight_gradients
from ..tagging import TagLayout
from ..types import AnyFloats, BoolArray, IntArray
from .dense import Dropout, Linear
from .devices import on_device, to_host

Gradients = tuple[Tensor | None, ...]


def upcast(emissions: Tensor) -> Tensor:
    """Convert to float32, unless the precision is that or higher."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


def as_arrays(like: Tensor, *tensors: Tensor) -> tuple[AnyFloats, ...]:
    """Convert tensors on the CPU to arrays with the dtype of `like`."""
    return tuple(tensor.detach().to(like.dtype).numpy() for tensor in tensors)


def as_mask(allowed: Tensor | None) -> BoolArray | None:
    return None if allowed is None else allowed.cpu().numpy()


def path_score(emissions: AnyFloats, transitions: Transitions, packing: Packing, tags: IntArray) -> AnyFloats:
    """Return the score of one path of each sequence, -inf if it is forbidden. *Shape* [n_sequences], float64"""
    steps = np.take_along_axis(emissions, tags[:, None], axis=1)[:, 0].astype(np.float64)
    later = packing.later
    steps[later] += transitions.table[tags[later - 1], tags[later]]
    steps[packing.first] += transitions.start[tags[packing.first]]
    steps[packing.last] += transitions.end[tags[packing.last]]
    return packing.sums(steps)


class LogLikelihood(torch.autograd.Function):
    """Negative log-likelihood of the path `tags` of each sequence: log Z over the paths of allowed tags, minus its
    score. Without `tags`, log Z.
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
        tags: Tensor | None,
        gradient: bool,
    ) -> Tensor:
        like = upcast(emissions)
        scores, *weights = as_arrays(like, emissions, start, end, outside, inside)
        transitions, backward = Transitions.of(*weights), gradient and any(ctx.needs_input_grad)
        passes = ForwardBackward.of(mask_emissions(scores, as_mask(allowed)), transitions, packing, backward=backward)
        sums = passes.log_partition()
        ctx.passes, ctx.tags, ctx.dtype = passes, None if tags is None else tags.numpy(), emissions.dtype
        if tags is not None:
            sums -= path_score(scores, transitions, packing, ctx.tags)
        return torch.from_numpy(sums)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        passes: ForwardBackward = ctx.passes
        packing = passes.packing
        weights = weight.numpy().astype(passes.alpha.dtype)[packing.sequence, None]
        paths, total = passes.through()
        paths -= total
        counts = np.exp(paths, out=paths)
        counts *= weights
        moves = passes.expected_transitions(total, weights)
        if ctx.tags is not None:
            subtract_path(counts, moves, ctx.tags, weights, packing)
        return *_gradients(passes.transitions, packing, counts, moves, ctx.dtype), None, None, None, None


class PathScore(torch.autograd.Function):
    """Score of one path of each sequence."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        start: Tensor,
        end: Tensor,
        outside: Tensor,
        inside: Tensor,
        packing: Packing,
        tags: Tensor,
    ) -> Tensor:
        scores, *weights = as_arrays(upcast(emissions), emissions, start, end, outside, inside)
        ctx.transitions, ctx.packing, ctx.tags = Transitions.of(*weights), packing, tags.numpy()
        ctx.shape, ctx.dtype = scores.shape, emissions.dtype
        return torch.from_numpy(path_score(scores, ctx.transitions, packing, ctx.tags))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        table = ctx.transitions.table
        counts, moves = np.zeros(ctx.shape, table.dtype), np.zeros_like(table)
        weights = -weight.numpy().astype(table.dtype)[ctx.packing.sequence, None]
        subtract_path(counts, moves, ctx.tags, weights, ctx.packing)
        return *_gradients(ctx.transitions, ctx.packing, counts, moves, ctx.dtype), None, None


def _gradients(
    transitions: Transitions, packing: Packing, counts: AnyFloats, moves: AnyFloats, dtype: torch.dtype
) -> Gradients:
    """Return the gradients of emissions and weights, given the counts of tags, *Shape* [N, K], and of transitions, [K,
    K].
    """
    start, end = (counts[index].sum(axis=0) for index in (packing.first, packing.last))
    parameters = weight_gradients(transitions.layout, start, end, moves)
    gradients = (torch.from_numpy(np.ascontiguousarray(part)) for part in (counts, *parameters))
    return next(gradients).to(dtype), *gradients


def subtract_path(counts: AnyFloats, moves: AnyFloats, tags: IntArray, weights: AnyFloats, packing: Packing) -> None:
    """Subtract the counts of one path from expected ones, in place. *Shape* [N, K], [K, K], [N], [N, 1]"""
    counts[np.arange(len(tags)), tags] -= weights[:, 0]
    later = packing.later
    np.subtract.at(moves, (tags[later - 1], tags[later]), weights[later, 0])


CRFWeights = tuple[Tensor, Tensor, Tensor, Tensor]
"""start, end, outside, inside: the parameters of a CRF."""


class CRF(nn.Module):
    """Linear-chain CRF: transition scores, and the loss.

    In all methods, `allowed` is a mask of the tags that each token may have, [N, K]; None allows all.
    Sums are computed in float32 at least, whatever the precision of the emissions.

    Sums over all paths, and losses, are computed on the device of emissions and weights if it is a GPU where Triton
    works (`crf_triton`). All else is computed, and returned, on the CPU: the recursions are chains of hundreds of small
    steps, and a GPU would spend most of a training step on launching them.
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
        """Copy emissions and weights to the CPU in one transfer. Their gradients go back in one, too."""
        emissions, start, end, outside, inside = to_host(emissions, *self.weights)
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

        *Shape* [N, K] to [n_sequences]
        """
        emissions, weights, log_likelihood = self._dispatch(emissions)
        sums = log_likelihood(emissions, weights, self._packing(emissions, lengths), allowed)
        return sums.to(upcast(emissions).dtype)

    def path_score(self, emissions: Tensor, lengths: Lengths, tags: Tensor) -> Tensor:
        """Return the score of one path of each sequence, -inf if it is forbidden.

        *Shape* [N, K], [N] to [n_sequences]
        """
        emissions, weights = self.on_host(emissions)
        scores: Tensor = PathScore.apply(  # type: ignore[no-untyped-call]
            emissions, *weights, self._packing(emissions, lengths), tags.cpu()
        )
        return scores.to(upcast(emissions).dtype)

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

        A full annotation is given as `tags`, [N]; a partial one as `allowed`, the mask of tags that agree with it, and
        the loss is `log Z(possible) - log Z(allowed)`. `possible` is the mask of tags under any annotation: a token of
        white space begins no entity. If the annotation is not possible, the loss is infinite, with a finite gradient.

        *Shape* [N, K] to [n_sequences]
        """
        if (tags is None) == (allowed is None):
            raise ValueError("the loss of a CRF needs either tags or a mask of allowed tags")
        emissions, weights, log_likelihood = self._dispatch(emissions)
        packing = self._packing(emissions, lengths)
        if tags is not None:
            return log_likelihood(emissions, weights, packing, possible, tags.cpu()).to(upcast(emissions).dtype)
        assert allowed is not None
        # Both sums are computed together, as one batch of twice as many sequences.
        every = torch.ones_like(allowed) if possible is None else possible
        twice = Packing.of([*packing.lengths, *packing.lengths], 2 * emissions.size(0))
        masks = torch.cat([every, every & allowed])
        free, agreeing = log_likelihood(torch.cat([emissions, emissions]), weights, twice, masks).chunk(2)
        return (free - agreeing).to(upcast(emissions).dtype)

    def _dispatch(self, emissions: Tensor) -> tuple[Tensor, CRFWeights, Callable[..., Tensor]]:
        """Return emissions and weights on the device that computes sums over paths, and its `log_likelihood`."""
        kernels = _kernels_for(emissions, self)
        if kernels is None:
            return *self.on_host(emissions), _log_likelihood
        return emissions, self.weights, kernels.log_likelihood

    @property
    def scorer(self) -> PathScorer:
        """The CRF for prediction in numpy, with the current weights."""
        return PathScorer(cast(CRFArrays, tuple(weight.numpy() for weight in to_host(*map(_detached, self.weights)))))

    def _packing(self, emissions: Tensor, lengths: Lengths) -> Packing:
        return packing_of(self.layout, tuple(emissions.shape), lengths)


def _detached(tensor: Tensor) -> Tensor:
    return tensor.detach()


def _log_likelihood(
    emissions: Tensor, weights: CRFWeights, packing: Packing, allowed: Tensor | None, tags: Tensor | None = None
) -> Tensor:
    gradient = torch.is_grad_enabled()
    sums: Tensor = LogLikelihood.apply(  # type: ignore[no-untyped-call]
        emissions, *weights, packing, allowed, tags, gradient
    )
    return sums


def _kernels_for(emissions: Tensor, crf: CRF) -> ModuleType | None:
    """Return the Triton kernels if emissions and CRF are on a GPU where these work, otherwise None."""
    if not emissions.is_cuda or crf.start.device != emissions.device or emissions.dtype == torch.float64:
        return None
    kernels = _working_kernels(emissions.device) if emissions.numel() else None
    return kernels if kernels is not None and crf.layout.n_tags <= kernels.MOST_TAGS else None


@functools.lru_cache(maxsize=8)
def _working_kernels(device: torch.device) -> ModuleType | None:
    """Return the Triton kernels if they compile and compute the same as the CPU for an example, otherwise None."""
    if find_spec("triton") is None:
        return None
    example, tags = torch.linspace(-2.0, 2.0, 45).view(9, 5), torch.tensor([0, 4, 3, 1, 1, 1, 2, 0, 3])
    crf, packing = CRF(1), Packing.of([5, 0, 4], 9)
    try:
        from . import crf_triton

        weights = [weight.detach().to(device) for weight in crf.weights]
        with torch.enable_grad():
            there, here = (example.clone().to(place).requires_grad_() for place in (device, "cpu"))
            crf_triton.log_likelihood(there, weights, packing, None, tags).sum().backward()
            _log_likelihood(here, crf.weights, packing, None, tags).sum().backward()
        torch.testing.assert_close(cast(Tensor, there.grad).cpu(), here.grad, rtol=1e-4, atol=1e-5)
    # A compiler that is missing or too old has any kind of error.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        warnings.warn(f"The CRF is trained on the host, since Triton does not work on {device}: {reason}", stacklevel=2)
        return None
    return crf_triton


def cross_entropy(
    teacher: CRF,
    teacher_emissions: Tensor,
    student: CRF,
    emissions: Tensor,
    lengths: Lengths,
    possible: Tensor | None = None,
) -> Tensor:
    """Return the cross-entropy of the student's distribution over paths under the teacher's, summed over all sequences.

    Exact: `log Z(student) - E_teacher[score(student)]`, and a score is linear in the expected counts of tags and
    transitions, which are the gradient of the teacher's log Z. The student may have more entity types, after those of
    the teacher; for the teacher, they have probability 0.
    """
    layout = student.layout
    emissions, weights, _ = student._dispatch(emissions)
    known = on_device(teacher.layout.within(layout), emissions.device)
    scores = emissions.new_full((emissions.size(0), layout.n_tags), -torch.inf, dtype=upcast(teacher_emissions).dtype)
    scores[:, known] = teacher_emissions.detach().to(scores)
    grown = teacher.resize(layout.n_labels).to(emissions.device)
    features = (scores.requires_grad_(), *grown.weights)
    with torch.enable_grad():
        counts = torch.autograd.grad(grown.log_partition(scores, lengths, possible).sum(), features)
    expected = [
        (count * score).sum(dtype=torch.float64) for count, score in zip(counts, (emissions, *weights), strict=True)
    ]
    total = student.log_partition(emissions, lengths, possible).sum(dtype=torch.float64) - torch.stack(expected).sum()
    return total.to(counts[0].dtype)


class CRFHead(nn.Module):
    """Linear layer from tokens to the emissions of a CRF, and the CRF.

    The released code normalises emissions by log-softmax. That adds the same number to all tags of a token, which
    changes neither losses nor probabilities, so it is left out.
    """

    def __init__(self, *, width: int, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.emit = Linear(width, TagLayout(n_labels).n_tags)
        self.crf = CRF(n_labels)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """*Shape* [N, width] -> [N, n_tags]"""
        return self.emit(self.dropout(tokens))

    def grown(self, n_labels: int) -> CRFHead:
        """Return a head for more entity types, with the same emissions for the present ones."""
        head = CRFHead(width=self.emit.in_features, n_labels=n_labels, dropout=self.dropout.p)
        head.crf = self.crf.resize(n_labels)
        kept = torch.from_numpy(self.crf.layout.within(head.crf.layout))
        with torch.no_grad():
            head.emit.weight[kept] = self.emit.weight.cpu()
            head.emit.bias[kept] = self.emit.bias.cpu()
        return head
