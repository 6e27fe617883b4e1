"""Split Docs into windows, and group the windows into batches with a limited size.

In this example, a document is split into windows of at most 8 units (tokens or characters) with an overlap of 2. The
predictions for the units in brackets are kept:

     a b c d e . f g h i j k l m n o p    the document; a sentence ends after e
    [a b c d e .]                         window 1: whole sentences, as in training
                [f g h i j k]l m          window 2: the sentence is longer, so 2 units of context follow
                         j k[l m n o p]   window 3: 2 units of context come before the part that is kept

A window is a slice of the embedders' input arrays (`TokenBatch`), not a Doc. A Doc is only created for layers that
require Docs, for example spaCy's layers and pretrained encoders.
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
from ..features.characters import lengths_of
from ..features.tokens import TokenBatch, concatenate_columns
from ..nn.backends import Rows
from ..nn.run import concatenate_rows, predict
from ..nn.shim import TorchShim
from .settings import NERSettings
from .units import CharacterView, DocView


@dataclass(frozen=True)
class Window:
    """A window over a document. All indices count units (tokens or characters).

    The model processes the units from `start` to `end`. The predictions from `keep_start` to `keep_end` are kept, and
    other units are context. The kept ranges of all windows cover the document without gaps or overlaps.
    """

    start: int
    end: int
    keep_start: int
    keep_end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def kept_slice(self) -> slice:
        """The part of the window whose predictions are kept, as a slice relative to the window's start."""
        return slice(self.keep_start - self.start, self.keep_end - self.start)


def cut_windows(
    length: int, ends: NDArray[np.bool_], *, size: int, overlap: int, sentences: int | None = None
) -> list[Window]:
    """Split a document into windows of at most `size` units (tokens or characters).

    A window contains as many complete sentences as possible. A sentence that is longer than a window is split. The
    windows before and after the split are then extended by `overlap` units of context.

    ends (NDArray[np.bool_]): Mask of the units that end a sentence. *Shape:* (units,)
    sentences (Optional[int]): Maximum number of sentences in a window. If None, the number is not limited.
    """
    if length <= size:
        return [Window(0, length, 0, length)] if length else []
    behind_ends = np.concatenate([[0], np.flatnonzero(ends) + 1, [length]])
    windows = []
    start = before = 0
    while start < length:
        limit = start + size - before
        # Find the last sentence end within the limit. The end of the document is also a sentence end.
        last = int(np.searchsorted(behind_ends, limit, side="right")) - 1
        if sentences is not None:
            last = min(last, int(np.searchsorted(behind_ends, start, side="right")) - 1 + sentences)
        end = int(behind_ends[last])
        is_cut = end <= start
        if is_cut:
            # Reserve space for the context after the split.
            end = limit - overlap
        windows.append(Window(start - before, end + overlap * is_cut, start, end))
        start, before = end, overlap * is_cut
    return windows


ItemT = TypeVar("ItemT")


def batch_by_size(items: Iterable[ItemT], limit: int, size: Callable[[Any], int] = len) -> Iterator[list[ItemT]]:
    """Group items into batches with a total size of at most `limit`. A larger item becomes a separate batch.

    size (Callable[[Any], int]): Function that returns an item's size.
    """
    batch: list[ItemT] = []
    total = 0
    for item in items:
        item_size = size(item)
        if batch and total + item_size > limit:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += item_size
    if batch:
        yield batch


@dataclass(frozen=True)
class DocWindow:
    """A window over one of several Docs.

    index (int): Index of the Doc.
    view (DocView): The Doc, as a sequence of tokens or characters.
    window (Window): The window.
    """

    index: int
    view: DocView
    window: Window

    def __len__(self) -> int:
        return len(self.window)


@dataclass(frozen=True)
class SplitDoc:
    """A Doc and its windows. The length is the total length of the windows, so units in two windows count twice."""

    view: DocView
    windows: list[Window]

    def __len__(self) -> int:
        return sum(map(len, self.windows))


@dataclass(frozen=True)
class WindowBatcher:
    """Splits Docs into windows, and groups the windows into batches.

    If the model has a listener, each Doc is a single window, and all Docs are a single batch. The reason is that the
    shared component (such as `tok2vec`) has computed the vectors for this batch of complete Docs.

    settings (NERSettings): The component's settings.
    size (int): Maximum number of tokens or characters in a window.
    sentences (int | None): Maximum number of sentences in a window.
    listens (bool): Whether the model has a listener.
    shims (list[TorchShim]): The model's shims. They are stored, because walking the model takes long.
    """

    settings: NERSettings
    size: int
    sentences: int | None
    listens: bool
    shims: list[TorchShim]

    @classmethod
    def of(cls, model: Model[Any, Any], settings: NERSettings, *, training: bool = False) -> WindowBatcher:
        """Create a batcher for a model.

        training (bool): Whether to use the window size for training. The window size for prediction may be smaller.
        """
        nodes = list(model.walk())
        shims = [shim for node in nodes for shim in node.shims if isinstance(shim, TorchShim)]
        size = settings.training_window if training else settings.prediction_window
        sentences = None if training else settings.prediction_sentences
        return cls(settings, size, sentences, any(hasattr(node, "upstream_name") for node in nodes), shims)

    def split(self, views: Sequence[DocView]) -> list[SplitDoc]:
        """Split each Doc into windows."""
        if self.listens and any(isinstance(view, CharacterView) for view in views):
            raise ValueError(
                "The setting view = 'characters' of tener_ner cannot be combined with a listener: the shared "
                "component embeds the pipeline's tokens, not their characters. Use view = 'tokens', or give "
                "tener_ner a tok2vec of its own."
            )
        return [SplitDoc(view, self._windows(view)) for view in views]

    def _windows(self, view: DocView) -> list[Window]:
        if self.listens:
            return [whole(view)]
        length = len(view)
        # For short texts, which are frequent, finding sentence ends would take longer than all other steps.
        if length <= self.size:
            return [whole(view)] if length else []
        ends, context = view.sentence_ends(), self.settings.context
        return cut_windows(length, ends, size=self.size, overlap=context, sentences=self.sentences)

    def batches(self, docs: Sequence[SplitDoc]) -> Iterator[list[DocWindow]]:
        """Yield batches with the windows of all Docs in order. Each batch has at most `max_units` tokens or
        characters.

        The model processes a batch at once. In contrast to `groups`, the windows of one Doc can be in several batches.
        """
        windows = [DocWindow(index, doc.view, window) for index, doc in enumerate(docs) for window in doc.windows]
        return iter([windows]) if self.listens else batch_by_size(windows, self.settings.max_units)

    def groups(self, views: Sequence[DocView]) -> Iterator[list[SplitDoc]]:
        """Yield groups of Docs, split into windows, whose emissions fit into memory.

        The CRF decodes a group at once. In contrast to `batches`, a Doc is never divided between groups. The windows of
        a group are a single batch. The only exception is a group with a single Doc that is longer than `max_units`.
        """
        docs = self.split(views)
        return iter([docs]) if self.listens else batch_by_size(docs, self.settings.max_units)

    def emissions(self, model: TaggerModel, docs: Sequence[SplitDoc]) -> Rows:
        """Run the model, and return the emissions for all tokens or characters in the Docs.

        If windows overlap, a token's emissions are taken from one window only. *Shape:* (units, tags)
        """
        parts: list[Rows] = []
        for batch in self.batches(docs):
            rows = predict(model, tokens_of_windows(batch), self.shims)
            end = 0
            for part in batch:
                kept = part.window.kept_slice
                parts.append(rows[end + kept.start : end + kept.stop])
                end += len(part)
        return concatenate_rows(parts or [np.empty((0, model.get_dim("nO")), np.float32)])


def check_shared(model: Model[Any, Any], docs: Iterable[Doc]) -> None:
    """Raise an error if a listener in the model has no vectors for a Doc.

    This happens if the shared component (such as `tok2vec`) has not processed the Doc. Listeners would silently return
    zeros.
    """
    listeners = [node for node in model.walk() if hasattr(node, "upstream_name")]
    if any(len(doc) and not _has_vectors(node, doc) for node in listeners for doc in docs):
        raise ValueError(
            "tener_ner listens to a shared component, which has not processed all of these Docs. Create the Docs "
            "with nlp.pipe(texts, disable=['tener_ner'])."
        )


def _has_vectors(listener: Any, doc: Doc) -> bool:
    if isinstance(listener, Tok2VecListener):
        return doc.tensor.size > 0
    return not Doc.has_extension("trf_data") or doc._.trf_data is not None


def whole(view: DocView) -> Window:
    """Return a window that covers the complete Doc."""
    return Window(0, len(view), 0, len(view))


def tokens_of_windows(windows: Sequence[DocWindow]) -> TokenBatch:
    """Return the tokens or characters in windows as model input."""
    parts = [(part.view, part.window.start, part.window.end) for part in windows]
    return TokenBatch(
        columns=concatenate_columns([view.columns[start:end] for view, start, end in parts]),
        lengths=lengths_of(windows),
        sources=[view.doc for view, _, _ in parts],
        make_docs=lambda: [view.slice_doc(start, end) for view, start, end in parts],
    )


def tokens_of_views(views: Sequence[DocView]) -> TokenBatch:
    """Return the tokens or characters of complete Docs as model input."""
    return tokens_of_windows([DocWindow(index, view, whole(view)) for index, view in enumerate(views)])
