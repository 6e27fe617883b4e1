"""Compute the losses of `tener_ner` in PyTorch, and accumulate their gradients.

Texts are processed in batches of windows. Accumulating the gradients of the batches limits memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import isfinite

import numpy as np
import torch
from spacy.errors import Errors
from torch import Tensor

from ...architectures.tagger import TaggerModel, depth_of, split_depths, torch_crf
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
    """Flatten the training targets of several texts, sorted by nesting level.

    The targets at level 0 come first, for all texts. `split_depths` sorts the emissions in the same order.
    """
    return list(itertools.chain(*zip(*targets, strict=True)))


def batch_loss(crf: CRF, emissions: Tensor, targets: Sequence[Target]) -> Tensor:
    """Return the negative log-likelihood of the gold annotation, as a weighted sum over texts.

    If a text is only partly annotated, its likelihood is the sum over all tag sequences that agree with the annotation.
    Each negative example adds `-log(1 - P(span | annotation))` to the loss.

    emissions (Tensor): The emissions for all texts, concatenated. *Shape:* (units, depth * tags)
    targets (Sequence[Target]): The targets, as sorted by `concatenate_by_depth`.
    """
    emissions = split_depths(emissions, emissions.shape[1] // crf.layout.n_tags)
    lengths = [len(target.tags) for target in targets]
    tags = np.concatenate([target.tags for target in targets])
    possible = join_masks([target.possible for target in targets], lengths, crf.layout.n_tags)
    weights = _weights(targets)
    # If all tags are known, a single tag sequence has to be scored. Negative examples then have the probability 0.
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
    """Return a mask of the tags that agree with the gold annotation. All texts are concatenated.

    *Shape:* (units, tags)
    """
    lengths, tags = [len(target.tags) for target in targets], np.concatenate([target.tags for target in targets])
    agreeing = join_masks([target.agreeing(layout) for target in targets], lengths, layout.n_tags)
    return agreeing_tags(tags, possible, layout, agreeing)


def tensor(mask: Mask | None) -> Tensor | None:
    """Convert a mask to a tensor. None is returned as None."""
    return None if mask is None else torch.from_numpy(mask)


def _incorrect_span_loss(crf: CRF, emissions: Tensor, allowed: Mask, targets: Sequence[Target]) -> Tensor:
    """Return the sum of `-log(1 - P(span))` over all negative examples.

    `P(span)` is the ratio of two partition functions. The numerator sums over the tag sequences that contain the span
    as an entity. The denominator sums over all tag sequences that agree with the gold annotation. The text is repeated
    for each negative example, so that all numerators are computed in one batch.
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
    # If P(span) is 1, the loss is infinite. The factor makes the loss and its gradient finite, but still large.
    return -torch.log1p(-torch.exp(log_probability) * (1.0 - 1e-6)) @ torch.tensor(weights, dtype=log_probability.dtype)


def _clamp_tags(allowed: Mask, span: IncorrectSpan, crf: CRF) -> Mask:
    """Return a mask that only allows tag sequences in which the span is an entity.

    allowed (Mask): Mask of the tags that agree with the gold annotation. *Shape:* (units, tags)
    """
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
    """Return the distillation loss: the cross-entropy between the teacher's and the student's distribution over tag
    sequences.

    The loss is the weighted sum over all texts.

    student (CRF): The student's CRF.
    teacher (CRF): The teacher's CRF. Its labels must be the student's first labels.
    emissions (Tensor): The student's emissions for all texts, concatenated. *Shape:* (units, depth * tags)
    soft_targets (Sequence[SoftTarget]): The teacher's emissions for each text.
    targets (Sequence[Target]): Targets with the weight and the allowed tags for each text. The targets at level 0 come
        first, for all texts.
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
    """Return the loss for texts that may be annotated for some labels only. The teacher supplies the missing labels.

    For partly annotated texts, the loss is the cross-entropy to the teacher's distribution over tag sequences. The
    teacher's distribution is conditioned on the annotation. For fully annotated texts, the loss is `batch_loss`.

    student (CRF): The student's CRF.
    teacher (CRF): The teacher's CRF. Its labels must be the student's first labels.
    emissions (Tensor): The student's emissions for all texts, concatenated. *Shape:* (units, depth * tags)
    soft_targets (Sequence[SoftTarget]): The teacher's emissions for each text.
    targets (Sequence[Target]): The targets. Those at level 0 come first, for all texts.
    """
    lengths, layout = [len(target.tags) for target in targets], student.layout
    depth = emissions.shape[1] // layout.n_tags
    rows = split_depths(emissions, depth).split(lengths)
    teacher_rows = split_depths(torch.from_numpy(np.concatenate(soft_targets)), depth).split(lengths)
    n_teacher_labels = teacher.layout.n_labels
    is_partial = [
        target.unannotated_labels is not None and bool(target.unannotated_labels[:n_teacher_labels].any())
        for target in targets
    ]
    loss = emissions.new_zeros(())
    full = [i for i, target in enumerate(targets) if not is_partial[i] and target.has_loss]
    if full:
        loss = loss + batch_loss(student, torch.cat([rows[i] for i in full]), [targets[i] for i in full])
    partial = [i for i in range(len(targets)) if is_partial[i]]
    if partial:
        partial_targets, sizes = [targets[i] for i in partial], [lengths[i] for i in partial]
        possible = join_masks([target.possible for target in partial_targets], sizes, layout.n_tags)
        allowed = _allowed_tags(partial_targets, possible, layout)
        scores = torch.cat([teacher_rows[i] for i in partial])
        concatenated = torch.cat([rows[i] for i in partial])
        loss = loss + cross_entropy(
            teacher,
            scores,
            student,
            concatenated,
            sizes,
            tensor(possible),
            under_annotation=tensor(allowed),
            sequence_weights=_weights(partial_targets),
        )
        if any(target.incorrect for target in partial_targets):
            loss = loss + _incorrect_span_loss(student, concatenated, allowed, partial_targets)
    return loss


# A function that computes the loss for a batch. Its arguments are the windows, their tokens or characters, and the
# emissions.
WindowLoss = Callable[[Sequence[DocWindow], TokenBatch, Tensor], Tensor]


def learn(
    model: TaggerModel,
    targets: Sequence[Sequence[Target]],
    settings: NERSettings,
    *,
    name: str,
    teacher: Teacher | None = None,
) -> float:
    """Run the model on training texts, compute the loss and accumulate the gradients.

    targets (Sequence[Sequence[Target]]): The gold annotation of each text, with one target for each nesting level.
    name (str): The component's name, for error messages.
    teacher (Teacher | None): The teacher for knowledge distillation.
    RETURNS (float): The mean loss per window. Windows from texts without annotation are only included if there is a
        teacher.
    """
    batcher = WindowBatcher.of(model, settings, training=True)
    counted = [
        any(target.has_loss for target in levels)
        or (teacher is not None and len(levels[0].view) > 0 and levels[0].weight > 0.0)
        for levels in targets
    ]
    # Skip texts without loss. With a listener, keep all texts: the batch must be the same as in the shared component.
    if not batcher.listens:
        targets = [levels for levels, is_counted in zip(targets, counted, strict=True) if is_counted]
        counted = [True] * len(targets)
    views = [levels[0].view for levels in targets]
    if not any(counted):
        _backprop_zeros(model, views)
        return 0.0
    layer = torch_crf(model)
    soft_targets = teacher.soft_targets(views) if teacher else []

    def loss_of(batch: Sequence[DocWindow], tokens: TokenBatch, emissions: Tensor) -> Tensor:
        window_targets = concatenate_by_depth(
            [[target.in_window(part.window) for target in targets[part.index]] for part in batch]
        )
        if teacher is None:
            return batch_loss(layer, emissions, window_targets)
        scores = [soft_targets[part.index][part.window.start : part.window.end] for part in batch]
        if teacher.only_missing_labels:
            return completion_loss(layer, teacher.crf, emissions, scores, window_targets)
        loss = teacher.weight * distillation_loss(layer, teacher.crf, emissions, scores, window_targets)
        if teacher.weight < 1.0 and any(target.has_loss for target in window_targets):
            loss = loss + (1.0 - teacher.weight) * batch_loss(layer, emissions, window_targets)
        return loss

    return _accumulate(model, batcher, views, counted, loss_of, name=name)


def rehearse(
    model: TaggerModel, teacher: TaggerModel, views: Sequence[DocView], settings: NERSettings, *, name: str
) -> float:
    """Compute the loss for `nlp.rehearse` and accumulate the gradients.

    The loss is the cross-entropy between the tag sequence distributions of an earlier model and the present model. It
    keeps the model from forgetting what the earlier model predicts.

    teacher (TaggerModel): The earlier model.
    RETURNS (float): The mean loss per window.
    """

    def loss_of(batch: Sequence[DocWindow], tokens: TokenBatch, emissions: Tensor) -> Tensor:
        depth = depth_of(model)
        earlier = split_depths(torch.as_tensor(predict(teacher, tokens)), depth)
        lengths = tokens.lengths.tolist() * depth
        return cross_entropy(torch_crf(teacher), earlier, torch_crf(model), split_depths(emissions, depth), lengths)

    counted = [len(view) > 0 for view in views]
    return _accumulate(model, WindowBatcher.of(model, settings, training=True), views, counted, loss_of, name=name)


def _backprop_zeros(model: TaggerModel, views: Sequence[DocView]) -> None:
    """Backpropagate zero gradients through the listeners, for a batch without loss.

    A shared component such as `tok2vec` accumulates its listeners' gradients. It starts its own backpropagation when
    the last listener is finished. If the last listener skipped a batch, the other listeners' gradients would be lost.
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
    """Run the model on batches of windows, compute the loss and accumulate the gradients.

    counted (Sequence[bool]): For each Doc, whether its windows are included in the mean loss.
    loss_of (WindowLoss): Function that computes the loss for a batch.
    RETURNS (float): The mean loss per window.
    """
    batches = list(batcher.batches(batcher.split(views)))
    counts = [sum(counted[part.index] for part in batch) for batch in batches]
    scale = 1.0 / sum(counts)
    terms = penalties(batcher.shims)
    total = 0.0
    try:
        for batch, count in zip(batches, counts, strict=True):
            for term in terms:
                # Scale the penalties by the fraction of windows in the batch, so that a training step includes them
                # once.
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
