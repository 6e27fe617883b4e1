"""64-bit keys, of strings as spaCy hashes them, looked up many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..types import BoolArray, IntArray

Keys = NDArray[np.uint64]


def search(haystack: Keys, needles: Keys) -> tuple[IntArray, BoolArray]:
    """Where each needle stands in the sorted haystack, and whether it does."""
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    places = np.searchsorted(haystack, needles)
    np.minimum(places, haystack.size - 1, out=places)
    return places, haystack[places] == needles


class KeyMap:
    """Distinct keys, each with a number of 64 bits.

    It never changes: `joined` gives another one, so that threads may share it. Keys stand in sorted runs, each at least
    twice as long as the next, which are merged where they are not. A key is thus moved at most once for each doubling
    of the map: adding one costs little however many there are.
    """

    def __init__(self, runs: tuple[tuple[Keys, Keys], ...] = ()) -> None:
        self.runs = runs

    def __len__(self) -> int:
        return sum(keys.size for keys, _ in self.runs)

    def get(self, keys: Keys) -> tuple[Keys, BoolArray]:
        """The number of each key, and whether it has one; where it has none, the number may be any. *Shape* [N] each"""
        if not self.runs:
            return np.zeros(keys.size, dtype=np.uint64), np.zeros(keys.size, dtype=bool)
        (known, numbers), *others = self.runs
        places, found = search(known, keys)
        values = numbers[places]
        for known, numbers in others:
            missing = np.flatnonzero(~found)
            if not missing.size:
                break
            places, found[missing] = search(known, keys[missing])
            values[missing] = numbers[places]
        return values, found

    def joined(self, keys: Keys, values: Keys) -> KeyMap:
        """With more keys, which are distinct and new."""
        if not keys.size:
            return self
        runs = [*self.runs, _sorted(keys, values)]
        while len(runs) > 1 and runs[-2][0].size < 2 * runs[-1][0].size:
            (left, numbers), (right, more) = runs.pop(-2), runs.pop()
            runs.append(_sorted(np.concatenate((left, right)), np.concatenate((numbers, more))))
        return KeyMap(tuple(runs))


def _sorted(keys: Keys, values: Keys) -> tuple[Keys, Keys]:
    # Stable is what is fast where two sorted stretches are merged.
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]
