"""How a tagger learns from a batch: window by window, so that memory is bounded however long its Docs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite

from spacy.errors import Errors
from spacy.tokens import Doc
from thinc.shims import PyTorchShim
from torch import Tensor

from ...layers.crf import CRF
from ...models.shims.bridge import TorchShim, penalties
from ...models.tagger import TaggerModel, crf
from ..settings import NERSettings
from ..views.reading import DocReader, Piece, documents
from ..views.units import DocView
from .lessons import Lesson
from .loss import batch_loss, gradient, rehearsal_loss
from .targets import Target
from .teaching import Teacher
from .teaching_loss import teaching_loss

PieceLoss = Callable[[Sequence[Piece], list[Doc]], Callable[[Tensor], Tensor]]
"""Makes the loss of some pieces as a function of their emissions."""


def learn(
    model: TaggerModel,
    targets: Sequence[Target],
    settings: NERSettings,
    *,
    name: str,
    labels: Sequence[str] = (),
    teacher: Teacher | None = None,
) -> float:
    """Accumulate the gradients of the targets. Returns the loss, the mean over the pieces of Docs that teach anything.

    labels: the component's, for a teacher.
    """
    reader = DocReader.of(model, settings)
    taught = [target.teaches or (teacher is not None and len(target.view) > 0) for target in targets]
    if not reader.listens:
        targets = [target for target, teaches in zip(targets, taught, strict=True) if teaches]
        taught = [True] * len(targets)
    views = [target.view for target in targets]
    if not any(taught):
        _backprop_zeros(model, views)
        return 0.0
    layer = crf(model)
    lessons = teacher.lessons(views, labels) if teacher else []

    def loss_of(batch: Sequence[Piece], docs: list[Doc]) -> Callable[[Tensor], Tensor]:
        parts = [targets[piece.index].within(piece.window) for piece in batch]
        if teacher is None:
            return partial(batch_loss, layer, targets=parts)
        said = [lessons[piece.index].within(piece.window) for piece in batch]
        return partial(_taught_loss, layer, teacher, targets=parts, lessons=said)

    return _accumulate(model, reader, views, taught, loss_of, name=name)


def _taught_loss(
    layer: CRF, teacher: Teacher, emissions: Tensor, targets: Sequence[Target], lessons: Sequence[Lesson]
) -> Tensor:
    """The annotation's loss and the teacher's, by their shares."""
    loss = teacher.share * teaching_loss(layer, teacher.crf, emissions, lessons, [target.units for target in targets])
    if teacher.share < 1.0 and any(target.teaches for target in targets):
        loss = loss + (1.0 - teacher.share) * batch_loss(layer, emissions, targets)
    return loss


def rehearse(
    model: TaggerModel, teacher: TaggerModel, views: Sequence[DocView], settings: NERSettings, *, name: str
) -> float:
    """Accumulate gradients towards another model's predictions. Returns the loss, the mean over the pieces."""

    def loss_of(batch: Sequence[Piece], docs: list[Doc]) -> Callable[[Tensor], Tensor]:
        return partial(rehearsal_loss, crf(model), crf(teacher), teacher.predict(docs))

    taught = [len(view) > 0 for view in views]
    return _accumulate(model, DocReader.of(model, settings), views, taught, loss_of, name=name)


def _backprop_zeros(model: TaggerModel, views: Sequence[DocView]) -> None:
    """Run the backprop of listeners with a gradient of zero.

    The shared component collects the gradients of all its listeners, and the backprop of the last one passes the sum
    on: what other components added would be lost if that one had nothing to learn and did not call it.
    """
    if not any(len(view) for view in views):
        return
    tok2vec = model.get_ref("tok2vec")
    # An optimizer moves a weight with a gradient of zero, too: by its momentum and weight decay.
    shims = [shim for node in tok2vec.walk() for shim in node.shims if isinstance(shim, PyTorchShim | TorchShim)]
    modules = [shim.module if isinstance(shim, TorchShim) and shim.is_built else shim._model for shim in shims]
    weights = [weight for module in modules if module is not None for weight in module.parameters()]
    untouched = [weight for weight in weights if weight.grad is None]
    vectors, backprop = tok2vec.begin_update([view.doc for view in views])
    backprop([model.ops.alloc2f(*rows.shape) for rows in vectors])
    for weight in untouched:
        weight.grad = None


def _accumulate(
    model: TaggerModel,
    reader: DocReader,
    views: Sequence[DocView],
    taught: Sequence[bool],
    loss_of: PieceLoss,
    *,
    name: str,
) -> float:
    """taught: which views count in the mean."""
    batches = list(reader.batches(views))
    counts = [sum(taught[piece.index] for piece in batch) for batch in batches]
    scale = 1.0 / sum(counts)
    terms = penalties(model)
    total = 0.0
    for batch, count in zip(batches, counts, strict=True):
        for term in terms:
            term.share = scale * count
        docs = documents(batch, views)
        scores, backprop = model.begin_update(docs)
        loss, d_scores = gradient(crf(model), scores, loss_of(batch, docs), scale)
        if not isfinite(loss):
            raise ValueError(Errors.E910.format(name=name))
        backprop(d_scores)
        total += loss
    return total + sum(term.take() for term in terms)
