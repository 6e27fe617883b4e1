"""Losses and gradients. Windows are processed in batches, and the gradients are accumulated, which limits memory."""

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
    """Concatenate the targets of several texts, first the targets of all texts at depth 0, then at depth 1, and so on,
    as in `split_depths`."""
    return list(itertools.chain(*zip(*targets, strict=True)))


def batch_loss(crf: CRF, emissions: Tensor, targets: Sequence[Target]) -> Tensor:
    """Return the weighted sum of the negative log-likelihoods of targets.

    The likelihood of a target is the sum over all tag sequences that agree with the annotation. If all tags are known,
    this is a single sequence. A negative example adds `-log(1 - P(span | known tags))`.

    emissions (Tensor): Emissions of the targets' units, concatenated. If the model has several depths, rows contain the
        emissions of all depths. *Shape:* (units, tags) or (units of texts, depth * tags)
    """
    emissions = split_depths(emissions, emissions.shape[1] // crf.layout.n_tags)
    lengths = [len(target.tags) for target in targets]
    tags = np.concatenate([target.tags for target in targets])
    possible = join_masks([target.possible for target in targets], lengths, crf.layout.n_tags)
    weights = _weights(targets)
    if (tags != UNKNOWN).all():
        losses = crf.loss(emissions, lengths, tags=torch.from_numpy(tags), possible=tensor(possible))
        return losses @ weights.to(losses.dtype)
    allowed = _allowed_tags(targets, possible, crf.layout)
    losses = crf.loss(emissions, lengths, allowed=tensor(allowed), possible=tensor(possible))
    loss = losses @ weights.to(losses.dtype)
    if any(target.incorrect for target in targets):
        loss = loss + _incorrect_span_loss(crf, emissions, allowed, targets)
    return loss


def _weights(targets: Sequence[Target]) -> Tensor:
    return torch.tensor([target.weight for target in targets], dtype=torch.float64)


def _allowed_tags(targets: Sequence[Target], possible: Mask | None, layout: TagLayout) -> Mask:
    """Return the tags that agree with the annotation of all texts, concatenated. *Shape:* (units, tags)"""
    lengths, tags = [len(target.tags) for target in targets], np.concatenate([target.tags for target in targets])
    agreeing = join_masks([target.agreeing(layout) for target in targets], lengths, layout.n_tags)
    return agreeing_tags(tags, possible, layout, agreeing)


def tensor(mask: Mask | None) -> Tensor | None:
    """Convert a mask to a tensor."""
    return None if mask is None else torch.from_numpy(mask)


def _incorrect_span_loss(crf: CRF, emissions: Tensor, allowed: Mask, targets: Sequence[Target]) -> Tensor:
    """Return the sum of `-log(1 - P(span))` over all negative examples.

    P(span) is a ratio of two partition functions. The first one sums only over tag sequences that contain the span,
    computed on a copy of the text for each span.
    """
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
    # If the probability is 1, the loss is infinite. A factor slightly below 1 makes loss and gradient finite, but
    # large.
    return -torch.log1p(-torch.exp(log_probability) * (1.0 - 1e-6)) @ torch.tensor(weights, dtype=log_probability.dtype)


def _clamp_tags(allowed: Mask, span: IncorrectSpan, crf: CRF) -> Mask:
    """Return a mask of the allowed tags, restricted to the tags of an entity in the span."""
    layout = crf.layout
    tags = layout.encode(np.array([span.start]), np.array([span.end]), np.array([span.label]), len(allowed))
    clamped = allowed.copy()
    inside = slice(span.start, span.end)
    only = np.zeros_like(clamped[inside])
    only[np.arange(span.end - span.start), tags[inside]] = True
    clamped[inside] &= only
    return clamped


def distillation_loss(
    student: CRF, teacher: CRF, emissions: Tensor, soft_targets: Sequence[SoftTarget], targets: Sequence[Target]
) -> Tensor:
    """Return the weighted sum of the cross-entropies between the distributions of teacher and student over the tag
    sequences of each text.

    student (CRF): The CRF of the student.
    teacher (CRF): The CRF of the teacher. Its labels are the first labels of the student.
    emissions (Tensor): The student's emissions of all texts, concatenated. *Shape:* (units, depth * tags)
    soft_targets (Sequence[SoftTarget]): The teacher's emissions of each text.
    targets (Sequence[Target]): Targets with the weight of each text and the tags that it allows, first for all texts at
        depth 0.
    """
    depth = emissions.shape[1] // student.layout.n_tags
    lengths = [len(scores) for scores in soft_targets] * depth
    possible = join_masks([target.possible for target in targets], lengths, student.layout.n_tags)
    scores = split_depths(torch.from_numpy(np.concatenate(soft_targets)), depth)
    return cross_entropy(
        teacher,
        scores,
        student,
        split_depths(emissions, depth),
        lengths,
        tensor(possible),
        sequence_weights=_weights(targets),
    )


def completion_loss(
    student: CRF, teacher: CRF, emissions: Tensor, soft_targets: Sequence[SoftTarget], targets: Sequence[Target]
) -> Tensor:
    """Return the loss for texts that are annotated for some labels only, completed by the teacher for the other labels.

    For these texts, it is the cross-entropy to the teacher's distribution given the annotation, which is 0 for tag
    sequences that contradict the annotation. For other texts, it is `batch_loss`.

    student (CRF): The CRF of the student.
    teacher (CRF): The CRF of the teacher. Its labels are the first labels of the student.
    emissions (Tensor): The student's emissions of all texts, concatenated. *Shape:* (units, tags)
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
            teacher,
            scores,
            student,
            concatenated,
            sizes,
            tensor(possible),
            under_annotation=tensor(allowed),
            sequence_weights=_weights(parts),
        )
        if any(part.incorrect for part in parts):
            loss = loss + _incorrect_span_loss(student, concatenated, allowed, parts)
    return loss


# Function that returns the loss of a batch of windows, given the windows, their units and their emissions.
WindowLoss = Callable[[Sequence[DocWindow], TokenBatch, Tensor], Tensor]


def learn(
    model: TaggerModel,
    targets: Sequence[Sequence[Target]],
    settings: NERSettings,
    *,
    name: str,
    teacher: Teacher | None = None,
) -> float:
    """Compute the loss of all targets, and accumulate its gradients.

    targets (Sequence[Sequence[Target]]): Targets of each example, one for each depth.
    name (str): Name of the component, for error messages.
    teacher (Teacher | None): The teacher for knowledge distillation.
    RETURNS (float): The mean loss of all windows with annotation or with a teacher.
    """
    batcher = WindowBatcher.of(model, settings, training=True)
    counted = [
        any(target.has_loss for target in parts)
        or (teacher is not None and len(parts[0].view) > 0 and parts[0].weight > 0.0)
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
        if teacher.only_missing_labels:
            return completion_loss(layer, teacher.crf, emissions, scores, parts)
        loss = teacher.weight * distillation_loss(layer, teacher.crf, emissions, scores, parts)
        if teacher.weight < 1.0 and any(part.has_loss for part in parts):
            loss = loss + (1.0 - teacher.weight) * batch_loss(layer, emissions, parts)
        return loss

    return _accumulate(model, batcher, views, counted, loss_of, name=name)


def rehearse(
    model: TaggerModel, teacher: TaggerModel, views: Sequence[DocView], settings: NERSettings, *, name: str
) -> float:
    """Compute the cross-entropy to the distribution of an earlier model over tag sequences, and accumulate its
    gradients.

    teacher (TaggerModel): The earlier model.
    RETURNS (float): The mean loss of all windows.
    """

    def loss_of(batch: Sequence[DocWindow], tokens: TokenBatch, emissions: Tensor) -> Tensor:
        depth = depth_of(model)
        earlier = split_depths(torch.as_tensor(predict(teacher, tokens)), depth)
        lengths = tokens.lengths.tolist() * depth
        return cross_entropy(crf(teacher), earlier, crf(model), split_depths(emissions, depth), lengths)

    counted = [len(view) > 0 for view in views]
    return _accumulate(model, WindowBatcher.of(model, settings, training=True), views, counted, loss_of, name=name)


def _backprop_zeros(model: TaggerModel, views: Sequence[DocView]) -> None:
    """Run the backpropagation of listeners with gradients of zero, for a batch without loss.

    The shared component sums up the gradients of all its listeners, and the backpropagation of its last listener starts
    its own. If the last listener skipped it, the gradients of all other listeners would be lost.
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
    """Compute a loss in batches of windows, and accumulate its gradients. Return the mean loss.

    counted (Sequence[bool]): Which Docs count in the mean.
    loss_of (WindowLoss): Computes the loss of a batch.
    """
    batches = list(batcher.batches(batcher.split(views)))
    counts = [sum(counted[part.index] for part in batch) for batch in batches]
    scale = 1.0 / sum(counts)
    terms = penalties(batcher.shims)
    total = 0.0
    try:
        for batch, count in zip(batches, counts, strict=True):
            for term in terms:
                term.batch_fraction = scale * count
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
    return total + sum(term.pop_value() for term in terms)
