"""How a tagger learns from a batch: piece by piece, so that memory is bounded however long its Docs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite

from spacy.errors import Errors
from spacy.tokens import Doc
from torch import Tensor

from ..models.bridge import penalties
from ..models.tagger import TaggerModel, crf
from .loss import batch_loss, gradient, rehearsal_loss
from .reading import Piece, Reader, documents
from .settings import Settings
from .targets import Target
from .units import DocView

LossOf = Callable[[Sequence[Piece], list[Doc]], Callable[[Tensor], Tensor]]
"""Says what the loss of some pieces is, given their emissions."""


def learn(model: TaggerModel, targets: Sequence[Target], settings: Settings, *, name: str) -> float:
    """Gradients of what the targets teach. Returns the loss, the mean over the pieces."""
    layer = crf(model)
    reader = Reader.of(model, settings)
    if not reader.listens:
        targets = [target for target in targets if target.teaches]

    def taught(batch: Sequence[Piece], docs: list[Doc]) -> Callable[[Tensor], Tensor]:
        return partial(batch_loss, layer, targets=[targets[piece.index].within(piece.window) for piece in batch])

    return _gradients(model, reader, [target.view for target in targets], taught, name=name)


def rehearse(
    model: TaggerModel, teacher: TaggerModel, views: Sequence[DocView], settings: Settings, *, name: str
) -> float:
    """Gradients towards what another model finds in the views. Returns the loss, the mean over the pieces."""

    def as_taught(batch: Sequence[Piece], docs: list[Doc]) -> Callable[[Tensor], Tensor]:
        return partial(rehearsal_loss, crf(model), crf(teacher), teacher.predict(docs))

    return _gradients(model, Reader.of(model, settings), views, as_taught, name=name)


def _gradients(model: TaggerModel, reader: Reader, views: Sequence[DocView], loss_of: LossOf, *, name: str) -> float:
    batches = list(reader.batches(views))
    scale = 1.0 / sum(len(batch) for batch in batches)
    total = 0.0
    terms = penalties(model)
    for batch in batches:
        for term in terms:
            term.share = scale * len(batch)
        docs = documents(batch, views)
        scores, backprop = model.begin_update(docs)
        loss, d_scores = gradient(scores, loss_of(batch, docs), scale)
        if not isfinite(loss):
            raise ValueError(Errors.E910.format(name=name))
        backprop(d_scores)
        total += loss
    return total + sum(term.take() for term in terms)
