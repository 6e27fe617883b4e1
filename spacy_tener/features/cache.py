"""Features of texts that training computes once, in memory and in a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

_NOTED = 100_000
"""Maximum number of predicted texts that are remembered since the last update, and of those before it: more than a
corpus has in its dev part."""

Item = TypeVar("Item")
Key = tuple[str, bytes]
Rows = Any
"""Features of a text: an array of numpy, or a tensor. *Shape* [n, width]"""


def key_of(doc: Doc) -> Key:
    """Return a key of a Doc's text and its tokens."""
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()


class FeatureCache:
    """Cache of the features of texts, by text and token offsets.

    It keeps features of texts in training, and of texts that are predicted both before and after an update, as those of
    dev are. So nothing is added when training has ended. Copies start empty.

    limit: Maximum size in memory, in bytes, which the last text may exceed.
    on_disk: Maximum size of further features, arrays of float32, in a temporary file.
    """

    def __init__(self, limit: int, on_disk: int = 0) -> None:
        self.limit, self.on_disk = limit, on_disk
        self.size = self.size_on_disk = 0
        self._file: IO[bytes] | None = None
        self._kept: dict[Key, Rows | tuple[int, tuple[int, ...]]] = {}
        self._started = False
        # Hashes of texts that were predicted since the last update, and before it.
        self._predicted: set[int] = set()
        self._evaluated: set[int] = set()

    def __reduce__(self) -> tuple[type[FeatureCache], tuple[int, int]]:
        return FeatureCache, (self.limit, self.on_disk)

    def __call__(
        self,
        keys: Sequence[Key],
        items: Sequence[Item],
        read: Callable[[Sequence[Item]], Sequence[Rows]],
        *,
        training: bool,
    ) -> Sequence[Rows]:
        """Return the features of each text. read: Computes the features of texts."""
        if training:
            self._started = self.limit > 0
            if self._has_room and len(self._evaluated) < _NOTED:
                self._evaluated |= self._predicted
            self._predicted.clear()
        if not self._started:
            return read(items)
        found = {key: self._read(self._kept[key]) for key in keys if key in self._kept}
        left = {key: item for key, item in zip(keys, items, strict=True) if key not in found}
        if left:
            for key, rows in zip(left, read(list(left.values())), strict=True):
                found[key] = rows
                if self._has_room and (training or hash(key) in self._evaluated):
                    # A copy: these rows are a view of the batch's.
                    self._keep(key, rows.copy() if isinstance(rows, np.ndarray) else rows.clone())
        if not training and len(self._predicted) < _NOTED:
            self._predicted.update(map(hash, left))
        return [found[key] for key in keys]

    @property
    def _has_room(self) -> bool:
        return self.size < self.limit or self.size_on_disk < self.on_disk

    def _keep(self, key: Key, rows: Rows) -> None:
        if self.size < self.limit:
            self._kept[key] = rows
            self.size += rows.nbytes
        else:
            self._file = self._file or TemporaryFile()  # noqa: SIM115 - open as long as the features are kept
            self._file.seek(self.size_on_disk)
            self._file.write(rows.tobytes())
            self._kept[key] = self.size_on_disk, rows.shape
            self.size_on_disk += rows.nbytes

    def _read(self, kept: Rows | tuple[int, tuple[int, ...]]) -> Rows:
        if not isinstance(kept, tuple):
            return kept
        assert self._file is not None
        start, (n_rows, width) = kept
        self._file.seek(start)
        return np.frombuffer(self._file.read(4 * n_rows * width), dtype=np.float32).reshape(n_rows, width)
