"""Features of texts that training computes once, in memory and in a temporary file."""

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

_MAX_HASHES = 100_000
"""Maximum number of predicted texts that are remembered since the last update, and of those before it: more than a
corpus has in its dev part."""

Input = TypeVar("Input")
DocKey = tuple[str, bytes]
Features = Any
"""Features of a text: an array of numpy, or a tensor. *Shape:* (tokens, width)"""


class _FilePosition(NamedTuple):
    """Where the features of a text are in the file."""

    start: int
    shape: tuple[int, int]


def cache_key(doc: Doc) -> DocKey:
    """Return a key of a Doc's text and its tokens."""
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()


class FeatureCache:
    """Cache of the features of texts, by text and token offsets. Threads and forked processes may share it.

    It keeps features of texts in training, and of texts that are predicted both before and after an update, as those of
    dev are. So nothing is added when training has ended. Copies start empty.

    limit (int): Maximum size in memory, in bytes, which the last text may exceed.
    on_disk (int): Maximum size of further features, arrays of NumPy, in a temporary file. Windows keeps none there.
    half (bool): Keep arrays of NumPy in 16 bits.
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
        # Hashes of texts that were predicted since the last update, and before it.
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
        """Return the features of each text.

        keys (Sequence[DocKey]): The keys of the texts.
        inputs (Sequence[Input]): What their features are computed from.
        compute (Callable): Computes the features of texts that the cache lacks.
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
                    # A copy: these features are a view of the batch's.
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
        # A forked process adds nothing: it shares the file.
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
        """Append features to the file. If it cannot be written, return None, and write no more."""
        try:
            self._file = self._file or TemporaryFile()  # noqa: SIM115 - open as long as the features are kept
            if os.pwrite(self._file.fileno(), features.tobytes(), self.size_on_disk) == features.nbytes:
                return _FilePosition(self.size_on_disk, features.shape)
            reason = "it is full"
        except OSError as error:
            reason = error.strerror or str(error)
        self._room_on_disk = 0
        warnings.warn(
            f"Features of an encoder cannot be kept in {gettempdir()}: {reason}. Training goes on and computes further "
            "ones again in each epoch. Free some space, or set TMPDIR to another directory.",
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
        # By an offset of its own: threads and forked processes share the file's position.
        dtype = np.dtype(np.float16 if self.half else np.float32)
        data = os.pread(self._file.fileno(), dtype.itemsize * n_tokens * width, entry.start)
        return np.frombuffer(data, dtype=dtype).reshape(entry.shape).astype(np.float32)


def _to_half(features: Features) -> Features:
    """Return features in 16 bits. What these cannot hold becomes the largest number that they can."""
    largest = np.finfo(np.float16).max
    return np.clip(features, -largest, largest).astype(np.float16)
