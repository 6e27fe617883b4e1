"""Which rows of a vectors source are taken, and what became of the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class RowNames:
    """Decides which rows are taken, and counts why others were not.

    rows_read: rows in the source. duplicates: rows whose very string had come before. merged: rows whose string became
    that of an earlier row by normalisation. left_out: rows that `keep` did not want. nameless: rows whose string cannot
    be known: bytes that are no UTF-8, or a key that spaCy's string store lacks.
    """

    path: Path
    normalise: Callable[[str], str] | None
    keep: Callable[[str], bool] | None
    taken: dict[str, str] = field(default_factory=dict)  # to the string as the source has it
    rows_read: int = 0
    duplicates: int = 0
    merged: int = 0
    left_out: int = 0
    nameless: int = 0
    first_duplicate: str = ""
    promised: int | None = None

    def take(self, name: str, place: str) -> bool:
        """Whether the next row, under this name, is to be kept."""
        self.rows_read += 1
        string = self.normalise(name) if self.normalise else name
        if self.keep is not None and not self.keep(string):
            self.left_out += 1
            return False
        known = len(self.taken)
        earlier = self.taken.setdefault(string, name)
        if len(self.taken) > known:
            return True
        if earlier != name:
            self.merged += 1
            return False
        self.duplicates += 1
        self.first_duplicate = self.first_duplicate or f"{name!r} in {place}"
        return False

    def skip_nameless(self) -> None:
        self.rows_read += 1
        self.nameless += 1

    def warn(self) -> None:
        """Warn the caller of `read_vectors` about all that was not as it should be."""
        for message in self._complaints():
            warnings.warn(f"{self.path}: {message}", UserWarning, stacklevel=3)

    def _complaints(self) -> Iterator[str]:
        if self.promised not in (None, self.rows_read):
            yield f"its first line promises {self.promised} rows, but it has {self.rows_read}."
        if self.duplicates:
            yield (
                f"{self.duplicates} rows repeat a string that came before, the first of them {self.first_duplicate}. "
                f"The first row of each string was used."
            )
        if self.nameless:
            yield f"{self.nameless} rows were left out, because their string cannot be read."


def check_width(path: Path, actual: int, wanted: int | None) -> None:
    """Refuse a source whose rows are not as wide as the config says."""
    if wanted is not None and actual != wanted:
        raise ValueError(
            f"{path} has vectors of width {actual}, but width {wanted} is wanted. "
            f"Set the width in the config to {actual}, or give vectors of width {wanted}."
        )
