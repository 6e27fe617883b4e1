"""A teacher's answers about texts, and the file that keeps them for trainings after this one and beside it."""

from __future__ import annotations

import sqlite3
import time
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
class Emissions:
    """The teacher's emissions of the student's own units. *Shape* [n, n_tags of the teacher]"""

    scores: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes

    def within(self, window: Window) -> Emissions:
        return Emissions(self.scores[window.start : window.end])


@dataclass(frozen=True)
class Paths:
    """The teacher's best readings as tags of the student's units, where the two have other units.

    *Shape* tags: [k, n]; weights: [k], their probabilities, of sum 1
    """

    tags: IntArray
    weights: NDArray[np.float64]
    layout: TagLayout

    @property
    def nbytes(self) -> int:
        return self.tags.nbytes + self.weights.nbytes

    def within(self, window: Window) -> Paths:
        """Of an entity that is cut by the window's edge, what is inside."""
        start, end = window.start, window.end
        rows = []
        for path in self.tags:
            first, last, label = self.layout.decode(path)
            inside = (last > start) & (first < end)
            edges = np.clip(first[inside], start, end) - start, np.clip(last[inside], start, end) - start
            rows.append(self.layout.encode(*edges, label[inside], end - start))
        return Paths(np.array(rows), self.weights, self.layout)


Lesson = Emissions | Paths


_TABLE = "CREATE TABLE IF NOT EXISTS lessons (key BLOB PRIMARY KEY, rows BLOB, weights BLOB) WITHOUT ROWID"
_FIND = "SELECT key, rows, weights FROM lessons WHERE key IN ({})"
_AT_ONCE = 500  # keys in one question; SQLite has a limit
_PATIENCE = 60.0  # seconds to wait for another training that writes

Key = tuple[str, bytes]
"""A text, and the places of its units."""


class LessonStore:
    """Lessons by their texts, in an SQLite file that several trainings on one machine may use at once.

    made_of: All else that a lesson depends on: the teacher and its settings, and labels.
    layout: Of the student's tags where the teacher's first labels are its own.
    """

    def __init__(self, path: Path, made_of: str, teacher: TagLayout, student: TagLayout) -> None:
        self.path = path
        self.teacher = teacher
        self.student = student
        self._prefix = blake2b(made_of.encode("utf8"), digest_size=16).digest()
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=_PATIENCE, check_same_thread=False)
            # Readers and a writer do not wait for each other. What the system's crash takes is asked again.
            self._patiently("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._patiently(_TABLE)

    def _patiently(self, statement: str) -> None:
        """SQLite's own patience does not hold while a file that several make at once is set up."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._file.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def read(self, keys: Iterable[Key]) -> dict[Key, Lesson]:
        """Those that are there."""
        names = {self._name(key): key for key in keys}
        asked = list(names)
        with self._told():
            found = [
                row
                for block in (asked[i : i + _AT_ONCE] for i in range(0, len(asked), _AT_ONCE))
                for row in self._file.execute(_FIND.format(",".join("?" * len(block))), block)
            ]
            return {names[name]: self._lesson(names[name], rows, weights) for name, rows, weights in found}

    def write(self, lessons: Mapping[Key, Lesson]) -> None:
        rows = [(self._name(key), *_columns(lesson)) for key, lesson in lessons.items()]
        with self._told(), self._file:
            self._file.executemany("INSERT OR IGNORE INTO lessons VALUES (?, ?, ?)", rows)

    def _name(self, key: Key) -> bytes:
        text, places = key
        whole = blake2b(self._prefix, digest_size=16)
        whole.update(places)
        whole.update(b"\0" * 8)
        whole.update(text.encode("utf8", "surrogatepass"))
        return whole.digest()

    def _lesson(self, key: Key, rows: bytes, weights: bytes | None) -> Lesson:
        n_units = np.frombuffer(key[1], dtype=np.int64).size // 2
        if weights is None:
            return Emissions(np.frombuffer(rows, dtype=np.float32).reshape(n_units, self.teacher.n_tags))
        shares = np.frombuffer(weights, dtype=np.float64)
        return Paths(np.frombuffer(rows, dtype=np.int64).reshape(len(shares), n_units), shares, self.student)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            reason = f"spacy_tener.Teacher.v1: cache_file {self.path} cannot be used: {error}"
            raise RemedyError(reason, "Make room, delete the file where it is damaged, or name another.") from error


def _columns(lesson: Lesson) -> tuple[bytes, bytes | None]:
    if isinstance(lesson, Emissions):
        return lesson.scores.tobytes(), None
    return lesson.tags.tobytes(), lesson.weights.tobytes()
