"""Windows of Docs of any length, in batches of bounded size.

A document, in windows of at most 8 units with an overlap of 2. The cores, in brackets, are where results count:

     a b c d e . f g h i j k l m n o p    the document; a sentence ends behind e
    [a b c d e .]                         window 1: whole sentences, as in training
                [f g h i j k]l m          window 2: no end is within reach, so it reads 2 units more
                         j k[l m n o p]   window 3: and this one 2 units before its core
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model

from ..architectures.tagger import TaggerModel
from ..nn.backends import Rows
from ..nn.run import concatenate_rows, predict
from ..nn.shim import TorchShim
from .settings import NERSettings
from .units import CharacterView, DocView


@dataclass(frozen=True)
class Window:
    """A window over a document: the model reads the units from `start` to `end`; its emissions are used from
    `core_start` to `core_end`.

    The cores of a document's windows cover it without gap or overlap. The units around a core are its context.
    """

    start: int
    end: int
    core_start: int
    core_end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def core(self) -> slice:
        """The core, counted from the window's start."""
        return slice(self.core_start - self.start, self.core_end - self.start)


def cut_windows(
    length: int, ends: NDArray[np.bool_], *, size: int, overlap: int, sentences: int | None = None
) -> list[Window]:
    """Cut a document of more than `size` units into windows of at most so many, of as many whole sentences as fit.

    A sentence that is longer is cut where it must be. There, the windows on both sides have `overlap` units of context.

    ends (NDArray[np.bool_]): Mask of units that are sentence ends. *Shape:* (units,)
    sentences (Optional[int]): The most sentences of a window.
    """
    if length <= size:
        return [Window(0, length, 0, length)] if length else []
    behind_ends = np.concatenate([[0], np.flatnonzero(ends) + 1, [length]])
    windows = []
    start = before = 0
    while start < length:
        limit = start + size - before
        # The last end of a sentence, or of the document, that fits.
        last = int(np.searchsorted(behind_ends, limit, side="right")) - 1
        if sentences is not None:
            last = min(last, int(np.searchsorted(behind_ends, start, side="right")) - 1 + sentences)
        end = int(behind_ends[last])
        is_cut = end <= start
        if is_cut:
            end = limit - overlap
        windows.append(Window(start - before, end + overlap * is_cut, start, end))
        start, before = end, overlap * is_cut
    return windows


ItemT = TypeVar("ItemT")


def batch_by_size(items: Iterable[ItemT], limit: int, size: Callable[[Any], int] = len) -> Iterator[list[ItemT]]:
    """Yield batches whose items together hold at most `limit` units; a larger item is a batch of its own."""
    batch: list[ItemT] = []
    total = 0
    for item in items:
        if batch and total + size(item) > limit:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


@dataclass(frozen=True)
class Piece:
    """A window of one Doc among several."""

    index: int
    window: Window

    def __len__(self) -> int:
        return len(self.window)


@dataclass(frozen=True)
class WindowBatcher:
    """Reader of Docs: cuts them into windows, and gathers these in batches.

    A listener has the shared component's vectors for whole Docs and whole batches only. With one, Docs are not cut and
    batches are not changed; the shared component limits their length.
    """

    settings: NERSettings
    size: int
    """The most units of a window."""
    sentences: int | None
    """The most sentences of a window of a longer text."""
    listens: bool
    shims: list[TorchShim]
    """Those of the model, which is walked once."""

    @classmethod
    def of(cls, model: Model[Any, Any], settings: NERSettings, *, training: bool = False) -> WindowBatcher:
        """Return a reader. training (bool): Texts of training are read whole up to the longest window that there is."""
        nodes = list(model.walk())
        shims = [shim for node in nodes for shim in node.shims if isinstance(shim, TorchShim)]
        size = settings.training_window if training else settings.reading_window
        sentences = None if training else settings.reading_sentences
        return cls(settings, size, sentences, any(hasattr(node, "upstream_name") for node in nodes), shims)

    def batches(self, views: Sequence[DocView]) -> Iterator[list[Piece]]:
        """Yield the pieces of all views, in order, in batches of at most `max_units` units."""
        if self.listens:
            if any(isinstance(view, CharacterView) for view in views):
                raise ValueError(
                    "The setting view = 'characters' of tener_ner cannot be combined with a listener: the shared "
                    "component embeds the pipeline's tokens, not their characters. Use view = 'tokens', or give "
                    "tener_ner a tok2vec of its own."
                )
            yield [Piece(i, whole(view)) for i, view in enumerate(views)]
        else:
            pieces = (Piece(i, window) for i, view in enumerate(views) for window in self._windows(view))
            yield from batch_by_size(pieces, self.settings.max_units)

    def _windows(self, view: DocView) -> list[Window]:
        if len(view) <= self.size:  # as most are: their sentence ends are not looked for
            return [whole(view)] if len(view) else []
        ends, context = view.sentence_ends(), self.settings.context
        return cut_windows(len(view), ends, size=self.size, overlap=context, sentences=self.sentences)

    def groups(self, views: Sequence[DocView]) -> Iterator[list[DocView]]:
        """Yield the views in groups whose emissions fit into memory together."""
        return iter([list(views)]) if self.listens else batch_by_size(views, self.settings.max_units)

    def emissions(self, model: TaggerModel, views: Sequence[DocView]) -> Rows:
        """Return the emissions of every unit of every view, each from the window in whose core it lies.

        *Shape:* (units, tags)
        """
        parts: list[Rows] = []
        for batch in self.batches(views):
            rows, end = predict(model, documents(batch, views), self.shims), 0
            for piece in batch:
                core = piece.window.core
                parts.append(rows[end + core.start : end + core.stop])
                end += len(piece)
        return concatenate_rows(parts or [np.empty((0, model.get_dim("nO")), np.float32)])


def check_shared(model: Model[Any, Any], docs: Iterable[Doc]) -> None:
    """Raise if the shared component has not processed all Docs: listeners would silently return zeros for them."""
    listeners = [node for node in model.walk() if hasattr(node, "upstream_name")]
    if any(len(doc) and not _has_vectors(node, doc) for node in listeners for doc in docs):
        raise ValueError(
            "tener_ner listens to a shared component, which has not processed all of these Docs. Get them from "
            "nlp.pipe(texts, disable=['tener_ner'])."
        )


def _has_vectors(listener: Any, doc: Doc) -> bool:
    if isinstance(listener, Tok2VecListener):
        return doc.tensor.size > 0
    return not Doc.has_extension("trf_data") or doc._.trf_data is not None


def whole(view: DocView) -> Window:
    return Window(0, len(view), 0, len(view))


def documents(batch: Sequence[Piece], views: Sequence[DocView]) -> list[Doc]:
    return [views[piece.index].piece(piece.window.start, piece.window.end) for piece in batch]
