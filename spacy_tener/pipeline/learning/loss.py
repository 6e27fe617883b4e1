"""Between the model's emissions and the CRF: the loss of a batch with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from thinc.backends import get_array_ops
from thinc.types import Floats2d
from torch import Tensor

from ...layers.crf import CRF, cross_entropy
from ...layers.devices import on_device
from ...models.shims.torch_side import join, split
from ..views.tags import UNKNOWN, Mask, agreeing_tags, join_masks, possible_tags
from .targets import IncorrectSpan, Target


def gradient(
    crf: CRF, scores: list[Floats2d], loss_of: Callable[[Tensor], Tensor], scale: float, *, train_crf: bool = True
) -> tuple[float, list[Floats2d]]:
    """A scaled loss of emissions, and its gradient.

    *Shape* scores, and the gradient: [n, n_tags] for each text

    loss_of: the loss as a function of all emissions, [N, n_tags].
    train_crf: add the gradient of the CRF's own parameters to what they hold.
    """
    emissions = flat(crf, scores).requires_grad_(True)
    loss = loss_of(emissions) * scale
    loss.backward(inputs=None if train_crf else [emissions])
    assert emissions.grad is not None
    ops = get_array_ops(scores[0])
    return float(loss.detach()), split(ops, emissions.grad, [len(part) for part in scores])


def rehearsal_loss(crf: CRF, old_crf: CRF, wanted: list[Floats2d], emissions: Tensor) -> Tensor:
    """Cross-entropy between all paths as an earlier model weighs them and as this one does."""
    lengths = [len(part) for part in wanted]
    return cross_entropy(old_crf, flat(old_crf, wanted), crf, emissions, lengths)


def flat(crf: CRF, scores: list[Floats2d]) -> Tensor:
    """The scores of all texts, where they are: on the CPU, as on Apple's GPU too, or on the CRF's device."""
    ops = get_array_ops(scores[0])
    return join(ops, scores, crf.start.device if ops.name == "cupy" else torch.device("cpu"))


def batch_loss(crf: CRF, emissions: Tensor, targets: Sequence[Target]) -> Tensor:
    """Sum over the targets of the negative log-likelihood of the annotation, each by its weight.

    Where no tag is missing it is that of one path, and otherwise that of all paths that agree with the known tags
    (algorithms.md, 6). An incorrect span adds `-log(1 - P(span | the known tags))`.

    *Shape* emissions: [N, n_tags], of the targets' units joined; result: a scalar
    """
    lengths = [len(target.tags) for target in targets]
    tags = np.concatenate([target.tags for target in targets])
    possible = join_masks([possible_tags(target.units, crf.layout) for target in targets], lengths, crf.layout.n_tags)
    weights = torch.tensor([target.weight for target in targets], dtype=torch.float64)
    if (tags != UNKNOWN).all():
        losses = crf.loss(emissions, lengths, tags=torch.from_numpy(tags), possible=tensor(possible))
        return losses @ weights.to(losses)
    allowed = agreeing_tags(tags, possible, crf.layout)
    losses = crf.loss(emissions, lengths, allowed=tensor(allowed), possible=tensor(possible))
    loss = losses @ weights.to(losses)
    if any(target.incorrect for target in targets):
        loss = loss + _incorrect_span_loss(crf, emissions, allowed, targets)
    return loss


def tensor(mask: Mask | None) -> Tensor | None:
    return None if mask is None else torch.from_numpy(mask)


def _incorrect_span_loss(crf: CRF, emissions: Tensor, allowed: Mask, targets: Sequence[Target]) -> Tensor:
    """Each incorrect span has the units of its text for itself, with the tags clamped to the span."""
    ends = np.cumsum([len(target.tags) for target in targets])
    rows, masks, lengths, weights = [], [], [], []
    for target, end in zip(targets, ends, strict=True):
        for span in target.incorrect:
            positions = np.arange(end - len(target.tags), end)
            rows.append(positions)
            masks.append(_clamped(allowed[positions], span, crf))
            lengths.append(len(positions))
            weights.append(target.weight)
    index = np.concatenate(rows)
    repeated = emissions[on_device(index, emissions.device)]
    mask, free = tensor(np.concatenate(masks)), tensor(allowed[index])
    log_share = crf.log_partition(repeated, lengths, mask) - crf.log_partition(repeated, lengths, free)
    # A span of probability one has an infinite loss; a hair below one keeps loss and gradient finite, and large.
    return -torch.log1p(-torch.exp(log_share) * (1.0 - 1e-6)) @ torch.tensor(weights).to(log_share)


def _clamped(allowed: Mask, span: IncorrectSpan, crf: CRF) -> Mask:
    layout = crf.layout
    tags = layout.encode(np.array([span.start]), np.array([span.end]), np.array([span.label]), len(allowed))
    clamped = allowed.copy()
    inside = slice(span.start, span.end)
    only = np.zeros_like(clamped[inside])
    only[np.arange(span.end - span.start), tags[inside]] = True
    clamped[inside] &= only
    return clamped
