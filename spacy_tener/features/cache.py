"""A cache for the output of frozen encoders during training.

Training processes the same texts in every epoch. `FeatureCache` stores each text's features in memory and in a
temporary file, so that they are computed once. It is used by `OnnxEmbed`, by `TransformerEmbed` with frozen layers, and
by knowledge distillation.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

# Maximum number of texts in the caches `_predicted` and `_evaluated`. It is larger than usual development sets.
_MAX_HASHES = 100_000

Input = TypeVar("Input")
DocKey = tuple[str, bytes]
# The features of one text, as a NumPy array or a torch tensor. *Shape:* (tokens, width)
Features = Any


class _FilePosition(NamedTuple):
    """The position of a text's features in the temporary file.

    start (int): Offset in bytes.
    shape (tuple[int, int]): The array shape.
    """

    start: int
    shape: tuple[int, int]


def cache_key(doc: Doc) -> DocKey:
    """Return a Doc's cache key: its text and its token offsets."""
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()


class FeatureCache:
    """A cache for the features of texts, which is only filled during training.

    Features are stored if they are computed for an update (`training=True`). They are also stored for texts that are
    predicted repeatedly between updates, such as the development set. If a trained pipeline predicts new texts, nothing
    is stored.

    Threads and forked processes can share a cache. Copies and unpickled caches are empty.

    limit (int): Maximum size in memory, in bytes. The last text that is stored can exceed the limit.
    on_disk (int): Maximum size of the temporary file, in bytes. It is used for NumPy arrays when the memory limit is
        reached. Not available on Windows, which has no `os.pread`.
    half (bool): Whether to store NumPy arrays in float16.
    """

    def __init__(self, limit: int, on_disk: int = 0, *, half: bool = False) -> None:
        self.limit, self.on_disk, self.half = limit, on_disk, half
        self.size = self.size_on_disk = 0
        self._file: IO[bytes] | None = None
        self._room_on_disk = on_disk if hasattr(os, "pread") else 0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._entries: dict[DocKey, Features | _FilePosition] = {}
        self.has_begun = False
        # `_predicted` contains hashes of texts that were predicted since the last update, and `_evaluated` the hashes
        # of texts that were predicted before the last update. A text in both sets is predicted regularly, so its
        # features are stored.
        self._predicted: set[int] = set()
        self._evaluated: set[int] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(FeatureCache, half=self.half), (self.limit, self.on_disk)

    def __call__(
        self,
        keys: Sequence[DocKey],
        inputs: Sequence[Input],
        compute: Callable[[Sequence[Input]], Sequence[Features]],
        *,
        training: bool,
    ) -> Sequence[Features]:
        """Return each text's features, and compute features that are not in the cache.

        keys (Sequence[DocKey]): Each text's cache key.
        inputs (Sequence[Input]): The input of `compute` for each text.
        compute (Callable): Function that computes the features for texts.
        training (bool): Whether the features are computed for an update. The first update activates the cache.
        RETURNS (Sequence[Features]): Each text's features. *Shape:* (tokens, width) each
        """
        if training:
            self.has_begun = self.limit > 0
            if self._has_room and len(self._evaluated) < _MAX_HASHES:
                self._evaluated |= self._predicted
            self._predicted.clear()
        if not self.has_begun:
            return compute(inputs)
        found = {key: self._load(self._entries[key]) for key in keys if key in self._entries}
        missing = {key: text for key, text in zip(keys, inputs, strict=True) if key not in found}
        if missing:
            for key, features in zip(missing, compute(list(missing.values())), strict=True):
                found[key] = features
                if self._has_room and (training or hash(key) in self._evaluated):
                    # Copy the features, since they are a view of a batch. The view would keep the whole batch in
                    # memory.
                    self._add(key, self._copy(features))
        if not training and len(self._predicted) < _MAX_HASHES:
            self._predicted.update(map(hash, missing))
        return [found[key] for key in keys]

    def _copy(self, features: Features) -> Features:
        if not isinstance(features, np.ndarray):
            return features.clone()
        return _to_half(features) if self.half else features.astype(np.float32)

    @property
    def _has_room(self) -> bool:
        # Forked processes share the temporary file. Only the process that created the cache may append to it.
        return os.getpid() == self._process and (self.size < self.limit or self.size_on_disk < self._room_on_disk)

    def _add(self, key: DocKey, features: Features) -> None:
        with self._lock:
            if key in self._entries:
                return
            if self.size < self.limit:
                self._entries[key] = features
                self.size += features.nbytes
            elif position := self._write(features):
                self._entries[key] = position
                self.size_on_disk += features.nbytes

    def _write(self, features: Features) -> _FilePosition | None:
        """Append features to the temporary file and return their position.

        If writing fails, return None, warn the user, and do not use the file again.
        """
        try:
            self._file = self._file or TemporaryFile()  # noqa: SIM115 - open as long as the features are kept
            if os.pwrite(self._file.fileno(), features.tobytes(), self.size_on_disk) == features.nbytes:
                return _FilePosition(self.size_on_disk, features.shape)
            reason = "the disk is full"
        except OSError as error:
            reason = error.strerror or str(error)
        self._room_on_disk = 0
        warnings.warn(
            f"Features of an encoder cannot be cached in {gettempdir()}: {reason}. Training continues, but encodes the "
            "remaining texts again in each epoch. Free some space, or set TMPDIR to another directory.",
            stacklevel=2,
        )
        return None

    def _load(self, entry: Features | _FilePosition) -> Features:
        if isinstance(entry, np.ndarray):
            return entry.astype(np.float32, copy=False)
        if not isinstance(entry, _FilePosition):
            return entry
        assert self._file is not None
        n_tokens, width = entry.shape
        # Threads and forked processes share the file position. `pread` does not use it, unlike `seek` and `read`.
        dtype = np.dtype(np.float16 if self.half else np.float32)
        data = os.pread(self._file.fileno(), dtype.itemsize * n_tokens * width, entry.start)
        return np.frombuffer(data, dtype=dtype).reshape(entry.shape).astype(np.float32)


def _to_half(features: Features) -> Features:
    """Convert features to float16. Values outside the float16 range are clipped."""
    largest = np.finfo(np.float16).max
    return np.clip(features, -largest, largest).astype(np.float16)
