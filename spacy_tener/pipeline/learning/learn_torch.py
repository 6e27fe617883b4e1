"""Losses of a tagger and their gradients, in batches of windows, to limit memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import isfinite

import numpy as np
import torch
from spacy.errors import Errors
from torch import Tensor

from ...architectures.tagger import TaggerModel, crf, depth_of, split_depths
from ...crf.crf_torch import CRF, cross_entropy
from ...features.tokens import TokenBatch
from ...nn.backend_torch import TorchBackend
from ...nn.devices_torch import host_threads, on_device
from ...nn.run import predict
from ...nn.shim import forget_gradients, penalties
from ...tagging import TagLayout
from ..masks import agreeing_tags, join_masks
from ..settings import NERSettings
from ..tags import UNKNOWN, Mask
from ..units import DocView
from ..windows import DocWindow, WindowBatcher, tokens_of_views, tokens_of_windows
from .distillation import SoftTarget, Teacher
from .targets import IncorrectSpan, Target


def concatenate_by_depth(targets: Sequence[Sequence[Target]]) -> list[Target]:
    """Join the targets of texts: those of all texts at the first depth come first, as in `split_depths`."""
    return list(itertools.chain(*zip(*targets, strict=True)))


def batch_loss(crf: CRF, emissions: Tensor, targets: Sequence[Target]) -> Tensor:
    """Return the weighted sum of the targets' negative log-likelihoods.

    A target's likelihood is that of one path if no tag is missing, otherwise that of all paths that agree with the
    known tags. An incorrect span adds `-log(1 - P(span | the known tags))`.

    emissions (Tensor): Of the targets' units, joined; or of the texts' units with all depths.
        *Shape:* (units, tags)
    """
    emissions = split_depths(emissions, emissions.shape[1] // crf.layout.n_tags)
    lengths = [len(target.tags) for target in targets]
    tags = np.concatenate([target.tags for target in targets])
    possible = join_masks([target.possible for target in targets], lengths, crf.layout.n_tags)
    weights = torch.tensor([target.weight for target in targets], dtype=torch.float64)
    if (tags != UNKNOWN).all():
        losses = crf.loss(emissions, lengths, tags=torch.from_numpy(tags), possible=tensor(possible))
        return losses @ weights.to(losses.dtype)
    allowed = _allowed_tags(targets, possible, crf.layout)
    losses = crf.loss(emissions, lengths, allowed=tensor(allowed), possible=tensor(possible))
    loss = losses @ weights.to(losses.dtype)
    if any(target.incorrect for target in targets):
        loss = loss + _incorrect_span_loss(crf, emissions, allowed, targets)
    return loss


def _allowed_tags(targets: Sequence[Target], possible: Mask | None, layout: TagLayout) -> Mask:
    """Return the tags that agree with the annotation of texts. *Shape:* (units, tags)"""
    lengths, tags = [len(target.tags) for target in targets], np.concatenate([target.tags for target in targets])
    agreeing = join_masks([target.agreeing(layout) for target in targets], lengths, layout.n_tags)
    return agreeing_tags(tags, possible, layout, agreeing)


def tensor(mask: Mask | None) -> Tensor | None:
    return None if mask is None else torch.from_numpy(mask)


def _incorrect_span_loss(crf: CRF, emissions: Tensor, allowed: Mask, targets: Sequence[Target]) -> Tensor:
    """Sum `-log(1 - P(span))` over incorrect spans, each on a copy of its text with the tags clamped to the span."""
    ends = np.cumsum([len(target.tags) for target in targets])
    rows, masks, lengths, weights = [], [], [], []
    for target, end in zip(targets, ends, strict=True):
        for span in target.incorrect:
            positions = np.arange(end - len(target.tags), end)
            rows.append(positions)
            masks.append(_clamp_tags(allowed[positions], span, crf))
            lengths.append(len(positions))
            weights.append(target.weight)
    index = np.concatenate(rows)
    repeated = emissions[on_device(index, emissions.device)]
    mask, free = tensor(np.concatenate(masks)), tensor(allowed[index])
    log_probability = crf.log_partition(repeated, lengths, mask) - crf.log_partition(repeated, lengths, free)
    # A probability of 1 has an infinite loss. Slightly below 1, loss and gradient are finite, and large.
    return -torch.log1p(-torch.exp(log_probability) * (1.0 - 1e-6)) @ torch.tensor(weights, dtype=log_probability.dtype)


def _clamp_tags(allowed: Mask, span: IncorrectSpan, crf: CRF) -> Mask:
    layout = crf.layout
    tags = layout.encode(np.array([span.start]), np.array([span.end]), np.array([span.label]), len(allowed))
    clamped = allowed.copy()
    inside = slice(span.start, span.end)
    only = np.zeros_like(clamped[inside])
    only[np.arange(span.end - span.start), tags[inside]] = True
    clamped[inside] &= only
    return clamped


def distillation_loss(
    student: CRF, teacher: CRF, emissions: Tensor, soft_targets: Sequence[SoftTarget], masks: Sequence[Mask | None]
) -> Tensor:
    """Return the cross-entropy between the teacher's and the student's distributions over paths, summed over texts.

    teacher (CRF): Its labels are the student's first ones.
    masks (Sequence[Mask | None]): The tags that each text allows, at each depth.
    emissions (Tensor): The student's, of the units of all texts joined. *Shape:* (units, depth * tags)
    """
    depth = emissions.shape[1] // student.layout.n_tags
    lengths = [len(scores) for scores in soft_targets] * depth
    possible = join_masks(masks, lengths, student.layout.n_tags)
    scores = split_depths(torch.from_numpy(np.concatenate(soft_targets)), depth)
    return cross_entropy(teacher, scores, student, split_depths(emissions, depth), lengths, tensor(possible))


def completion_loss(
    student: CRF, teacher: CRF, emissions: Tensor, soft_targets: Sequence[SoftTarget], targets: Sequence[Target]
) -> Tensor:
    """Return the loss of annotation that a teacher completes by the labels that the text is not annotated for.

    The teacher's distribution is the one under the annotation: it is 0 for paths that contradict it. Where the teacher
    has nothing to add, the loss is that of the annotation.

    teacher (CRF): Its labels are the student's first ones.
    emissions (Tensor): The student's, of the units of all texts joined. *Shape:* (units, tags)
    """
    lengths, layout = [len(target.tags) for target in targets], student.layout
    rows = emissions.split(lengths)
    n_teacher_labels = teacher.layout.n_labels
    is_open = [
        target.unannotated_labels is not None and bool(target.unannotated_labels[:n_teacher_labels].any())
        for target in targets
    ]
    loss = emissions.new_zeros(())
    complete = [i for i, adds in enumerate(is_open) if not adds and targets[i].has_loss]
    if complete:
        loss = loss + batch_loss(student, torch.cat([rows[i] for i in complete]), [targets[i] for i in complete])
    completed = [i for i, adds in enumerate(is_open) if adds]
    if completed:
        parts, sizes = [targets[i] for i in completed], [lengths[i] for i in completed]
        possible = join_masks([part.possible for part in parts], sizes, layout.n_tags)
        allowed = _allowed_tags(parts, possible, layout)
        scores = torch.from_numpy(np.concatenate([soft_targets[i] for i in completed]))
        concatenated = torch.cat([rows[i] for i in completed])
        loss = loss + cross_entropy(
            teacher, scores, student, concatenated, sizes, tensor(possible), under_annotation=tensor(allowed)
        )
    return loss


WindowLoss = Callable[[Sequence[DocWindow], TokenBatch, Tensor], Tensor]
"""Computes the loss of a batch of windows from the windows, their units and their emissions."""


def learn(
    model: TaggerModel,
    targets: Sequence[Sequence[Target]],
    settings: NERSettings,
    *,
    name: str,
    teacher: Teacher | None = None,
) -> float:
    """Accumulate the gradients of the targets. Return the mean loss of windows with annotation or a teacher.

    targets (Sequence[Sequence[Target]]): Those of each example, one for each depth.
    """
    batcher = WindowBatcher.of(model, settings, training=True)
    counted = [
        any(target.has_loss for target in parts) or (teacher is not None and len(parts[0].view) > 0)
        for parts in targets
    ]
    if not batcher.listens:
        targets = [parts for parts, is_counted in zip(targets, counted, strict=True) if is_counted]
        counted = [True] * len(targets)
    views = [parts[0].view for parts in targets]
    if not any(counted):
        _backprop_zeros(model, views)
        return 0.0
    layer = crf(model)
    soft_targets = teacher.soft_targets(views) if teacher else []

    def loss_of(batch: Sequence[DocWindow], tokens: TokenBatch, emissions: Tensor) -> Tensor:
        parts = concatenate_by_depth(
            [[target.in_window(part.window) for target in targets[part.index]] for part in batch]
        )
        if teacher is None:
            return batch_loss(layer, emissions, parts)
        scores = [soft_targets[part.index][part.window.start : part.window.end] for part in batch]
        if teacher.completes:
            return completion_loss(layer, teacher.crf, emissions, scores, parts)
        masks = [part.possible for part in parts]
        loss = teacher.share * distillation_loss(layer, teacher.crf, emissions, scores, masks)
        if teacher.share < 1.0 and any(part.has_loss for part in parts):
            loss = loss + (1.0 - teacher.share) * batch_loss(layer, emissions, parts)
        return loss

    return _accumulate(model, batcher, views, counted, loss_of, name=name)


def rehearse(
    model: TaggerModel, teacher: TaggerModel, views: Sequence[DocView], settings: NERSettings, *, name: str
) -> float:
    """Accumulate the gradients of the cross-entropy between an earlier model's distribution over paths and the present
    one. Return its mean over windows."""

    def loss_of(batch: Sequence[DocWindow], tokens: TokenBatch, emissions: Tensor) -> Tensor:
        depth = depth_of(model)
        earlier = split_depths(torch.as_tensor(predict(teacher, tokens)), depth)
        lengths = tokens.lengths.tolist() * depth
        return cross_entropy(crf(teacher), earlier, crf(model), split_depths(emissions, depth), lengths)

    counted = [len(view) > 0 for view in views]
    return _accumulate(model, WindowBatcher.of(model, settings, training=True), views, counted, loss_of, name=name)


def _backprop_zeros(model: TaggerModel, views: Sequence[DocView]) -> None:
    """Run the backprop of listeners with a gradient of zero.

    The shared component adds up the gradients of all its listeners, and the backprop of the last listener passes on the
    sum. If that one did not call it, the gradients of the others would be lost.
    """
    if any(len(view) for view in views):
        tok2vec, tokens = model.get_ref("tok2vec"), tokens_of_views(views)
        backend = TorchBackend.of(tok2vec, tokens, training=True)
        backend.run(tok2vec, tokens)
        backend.backward(None)


def _accumulate(
    model: TaggerModel,
    batcher: WindowBatcher,
    views: Sequence[DocView],
    counted: Sequence[bool],
    loss_of: WindowLoss,
    *,
    name: str,
) -> float:
    """Accumulate the gradients of a loss over all batches. counted: True for views that count in the mean."""
    batches = list(batcher.batches(batcher.split(views)))
    counts = [sum(counted[part.index] for part in batch) for batch in batches]
    scale = 1.0 / sum(counts)
    terms = penalties(batcher.shims)
    total = 0.0
    try:
        for batch, count in zip(batches, counts, strict=True):
            for term in terms:
                term.share = scale * count
            tokens = tokens_of_windows(batch)
            backend = TorchBackend.of(model, tokens, training=True, shims=batcher.shims)
            with host_threads(backend.threads):
                loss = loss_of(batch, tokens, backend.run(model, tokens)) * scale
                value = float(loss.detach())
                if not isfinite(value):
                    raise ValueError(Errors.E910.format(name=name))
                backend.backward(loss)
            total += value
    except BaseException:
        forget_gradients(model)
        raise
    return total + sum(term.take() for term in terms)
