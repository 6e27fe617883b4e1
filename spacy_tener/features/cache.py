"""A cache of the features that a frozen encoder computes for the texts of a training run.

Training passes the same texts to the encoder in every epoch. `FeatureCache` stores the encoder's output in memory and
in a temporary file, so that each text is encoded once. It is used by `OnnxEmbed`, by `TransformerEmbed` with frozen
layers, and by knowledge distillation.
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

# Maximum number of hashes in each of the two sets of predicted texts, which is more than a development set contains.
_MAX_HASHES = 100_000

Input = TypeVar("Input")
DocKey = tuple[str, bytes]
# A NumPy array or a torch tensor with the features of one text. *Shape:* (tokens, width)
Features = Any


class _FilePosition(NamedTuple):
    """The location of a text's features in the temporary file.

    start (int): Offset in bytes.
    shape (tuple[int, int]): Shape of the array.
    """

    start: int
    shape: tuple[int, int]


def cache_key(doc: Doc) -> DocKey:
    """Return a cache key for a Doc, which depends on its text and on the offsets of its tokens."""
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()


class FeatureCache:
    """A cache of features by text and token offsets, which is filled during training only.

    The cache stores two kinds of texts: texts that are passed with `training=True`, and texts that are predicted both
    before and after an update, such as the development set. A trained pipeline therefore caches nothing when it
    predicts new texts. Threads and forked processes can share a cache. Copies and unpickled caches start empty.

    limit (int): Maximum size in memory, in bytes. The last stored text can exceed it.
    on_disk (int): Maximum size of the temporary file, in bytes, for NumPy arrays that do not fit in memory. The file is
        not used on Windows, which has no `os.pread`.
    half (bool): Store NumPy arrays as float16.
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
        # Hashes of texts that were predicted since the last update, and of texts that were predicted before that
        # update. A text in both groups is evaluated regularly, so its features are worth storing.
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
        inputs (Sequence[Input]): The input of `compute` for each text.
        compute (Callable): Computes the features of the texts that are not in the cache.
        training (bool): Whether the call belongs to an update. The first such call activates the cache.
        RETURNS (Sequence[Features]): The features. *Shape:* (tokens, width) for each text
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
                    # The features are a view of the whole batch, which would otherwise stay in memory.
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
        # A forked process shares the file with its parent, so it must not append to it.
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

        If the file cannot be written, return None, warn, and stop using the file.
        """
        try:
            self._file = self._file or TemporaryFile()  # noqa: SIM115 - open as long as the features are kept
            if os.pwrite(self._file.fileno(), features.tobytes(), self.size_on_disk) == features.nbytes:
                return _FilePosition(self.size_on_disk, features.shape)
            reason = "it is full"
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
        # `pread` takes the offset as an argument. `seek` would move the file position that threads and forked processes
        # share.
        dtype = np.dtype(np.float16 if self.half else np.float32)
        data = os.pread(self._file.fileno(), dtype.itemsize * n_tokens * width, entry.start)
        return np.frombuffer(data, dtype=dtype).reshape(entry.shape).astype(np.float32)


def _to_half(features: Features) -> Features:
    """Convert features to float16. Values beyond the range of float16 are clipped."""
    largest = np.finfo(np.float16).max
    return np.clip(features, -largest, largest).astype(np.float16)
