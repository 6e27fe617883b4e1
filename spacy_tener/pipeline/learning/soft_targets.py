"""A teacher's distributions over tag sequences, and an SQLite file that caches them for other trainings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import RemedyError
from ...tagging import TagLayout
from ...types import IntArray
from ..windows import Window


@dataclass(frozen=True)
class EmissionTarget:
    """The teacher's emissions of the student's own units. *Shape* [n, n_tags of the teacher]"""

    scores: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes

    def within(self, window: Window) -> EmissionTarget:
        return EmissionTarget(self.scores[window.start : window.end])


@dataclass(frozen=True)
class PathTarget:
    """The teacher's k best paths as tags of the student's units, if teacher and student have different units.

    *Shape* tags: [k, n]; weights: [k], the paths' probabilities, which add up to 1
    """

    tags: IntArray
    weights: NDArray[np.float64]
    layout: TagLayout

    @property
    def nbytes(self) -> int:
        return self.tags.nbytes + self.weights.nbytes

    def within(self, window: Window) -> PathTarget:
        """Return the paths within a window. Entities across its edges are clipped."""
        start, end = window.start, window.end
        rows = []
        for path in self.tags:
            first, last, label = self.layout.decode(path)
            inside = (last > start) & (first < end)
            edges = np.clip(first[inside], start, end) - start, np.clip(last[inside], start, end) - start
            rows.append(self.layout.encode(*edges, label[inside], end - start))
        return PathTarget(np.array(rows), self.weights, self.layout)


SoftTarget = EmissionTarget | PathTarget


_TABLE = "CREATE TABLE IF NOT EXISTS soft_targets (key BLOB PRIMARY KEY, rows BLOB, weights BLOB) WITHOUT ROWID"
_LOCK_TIMEOUT = 60.0  # seconds to wait while another training writes

Key = tuple[str, bytes]
"""A text, and the character offsets of its units as bytes."""


class SoftTargetStore:
    """Soft targets by text, in an SQLite file that several trainings on one machine may use at once.

    made_of: All else that soft targets depend on: the teacher, its settings, and the student's labels.
    teacher, student: The layouts of their tags.
    """

    def __init__(self, path: Path, made_of: str, teacher: TagLayout, student: TagLayout) -> None:
        self.path = path
        self.teacher = teacher
        self.student = student
        self._prefix = blake2b(made_of.encode("utf8"), digest_size=16).digest()
        with self._wrap_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, check_same_thread=False)
            with self._file:
                # SQLite does not wait for the lock if a transaction that began by reading wants to write.
                self._file.execute("BEGIN IMMEDIATE")
                self._file.execute(_TABLE)

    def read(self, keys: Iterable[Key]) -> dict[Key, SoftTarget]:
        """Return the cached soft targets of these keys."""
        found = {}
        with self._wrap_errors():
            for key in keys:
                rows = self._file.execute("SELECT rows, weights FROM soft_targets WHERE key = ?", [self._name(key)])
                for row in rows:
                    found[key] = self._soft_target(key, *row)
        return found

    def write(self, soft_targets: Mapping[Key, SoftTarget]) -> None:
        rows = [(self._name(key), *_columns(soft)) for key, soft in soft_targets.items()]
        with self._wrap_errors(), self._file:
            self._file.executemany("INSERT OR IGNORE INTO soft_targets VALUES (?, ?, ?)", rows)

    def _name(self, key: Key) -> bytes:
        text, places = key
        whole = blake2b(self._prefix, digest_size=16)
        whole.update(places)
        whole.update(b"\0" * 8)
        whole.update(text.encode("utf8", "surrogatepass"))
        return whole.digest()

    def _soft_target(self, key: Key, rows: bytes, weights: bytes | None) -> SoftTarget:
        n_units = np.frombuffer(key[1], dtype=np.int64).size // 2
        if weights is None:
            return EmissionTarget(np.frombuffer(rows, dtype=np.float32).reshape(n_units, self.teacher.n_tags))
        shares = np.frombuffer(weights, dtype=np.float64)
        return PathTarget(np.frombuffer(rows, dtype=np.int64).reshape(len(shares), n_units), shares, self.student)

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            reason = f"spacy_tener.Teacher.v1: cannot use cache_file {self.path}: {error}"
            raise RemedyError(
                reason, "Free disk space, delete the file if it is damaged, or set another cache_file."
            ) from error


def _columns(soft: SoftTarget) -> tuple[bytes, bytes | None]:
    if isinstance(soft, EmissionTarget):
        return soft.scores.tobytes(), None
    return soft.tags.tobytes(), soft.weights.tobytes()
