"""Whether characters that share components lie closer than others: cosines over all pairs of characters.

It knows characters by their places only: a row of numbers, components and a radical for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

NEIGHBOURS = 10
"""So many of a character's nearest are looked at."""
_BLOCK = 1024


@dataclass(frozen=True)
class Group:
    """The cosines of some pairs; without a mean and a standard deviation if there are none."""

    pairs: int
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Cosines:
    """The cosines of all pairs of some characters.

    component: of the pairs that share a component.
    radical: of those that share the radical.
    neither: of those that share no component.
    difference: how much closer those are on average that share a component than those that share none.
    neighbours: of a character's nearest, the part that shares a component with it; the mean over characters that share
        one with anything.
    """

    component: Group
    radical: Group
    neither: Group
    difference: float | None
    neighbours: float | None


@dataclass(frozen=True)
class Near:
    """A character close to another one.

    kin: Do the two share a component?
    """

    place: int
    cosine: float
    kin: bool


class Kinship:
    """Which characters share components, and which the radical.

    components: those of each character.
    radicals: that of each character.
    """

    def __init__(self, components: Sequence[Sequence[str]], radicals: Sequence[str]) -> None:
        self.components = _incidence(components)
        self.radicals = _incidence(radicals)

    def __len__(self) -> int:
        return len(self.components)

    def of(self, rows: slice) -> tuple[Flags, Flags]:
        """For some characters, with which of all others they share a component, and with which the radical; with
        themselves they share nothing. *Shape* [rows, n] each"""
        shared = [table[rows] @ table.T > 0.0 for table in (self.components, self.radicals)]
        places = np.arange(len(self))[rows]
        for flags in shared:
            flags[np.arange(len(places)), places] = False
        return shared[0], shared[1]


def _incidence(parts: Sequence[Sequence[str]]) -> Floats:
    """Which part each character has. *Shape* [n, distinct parts]"""
    distinct = {part: column for column, part in enumerate(sorted(set(chain.from_iterable(parts))))}
    table = np.zeros((len(parts), len(distinct)), dtype=np.float32)
    rows = np.repeat(np.arange(len(parts)), [len(each) for each in parts])
    table[rows, [distinct[part] for part in chain.from_iterable(parts)]] = 1.0
    return table


def compare(vectors: Floats, kinship: Kinship) -> Cosines:
    """The cosines of all pairs, by what the two share: products of blocks of rows with all rows.

    *Shape* vectors: [n, width]
    """
    units = unit_length(vectors)
    sums = [_Sum(), _Sum(), _Sum()]
    hits: list[NDArray[np.float64]] = []
    for rows, cosines in _blocks(units):
        component, radical = kinship.of(rows)
        others = ~component
        others[np.arange(len(others)), np.arange(len(units))[rows]] = False
        for total, flags in zip(sums, (component, radical, others), strict=True):
            total.add(cosines[flags])
        related = component.any(axis=1)
        nearest = nearest_places(cosines[related], np.arange(len(units))[rows][related], NEIGHBOURS)
        hits.append(np.take_along_axis(component[related], nearest, axis=1).mean(axis=1))
    joined = np.concatenate(hits)
    shared, radical_shared, apart = (total.group() for total in sums)
    return Cosines(
        component=shared,
        radical=radical_shared,
        neither=apart,
        difference=None if shared.mean is None or apart.mean is None else shared.mean - apart.mean,
        neighbours=float(joined.mean()) if joined.size else None,
    )


def near(vectors: Floats, kinship: Kinship, middle: int, count: int) -> list[Near]:
    """The characters closest to one of them, the closest first. *Shape* vectors: [n, width]"""
    units = unit_length(vectors)
    cosines = units[middle : middle + 1] @ units.T
    shared, _ = kinship.of(slice(middle, middle + 1))
    places = nearest_places(cosines, np.array([middle]), count)[0].tolist()
    return [Near(place, float(cosines[0, place]), bool(shared[0, place])) for place in places]


def nearest_places(cosines: Floats, own: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The places of the greatest cosines of each row, the greatest first, without the character itself.

    *Shape* cosines: [rows, n]; own, the place of each row's character: [rows]; result: [rows, at most count]
    """
    others = cosines.copy()
    others[np.arange(len(own)), own] = -np.inf
    count = min(count, cosines.shape[1] - 1)
    found = np.argpartition(-others, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(others, found, axis=1), axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1)


def unit_length(vectors: Floats) -> Floats:
    """*Shape* [n, width]"""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return units


def centred(vectors: Floats) -> Floats:
    """The vectors without what all have in common. Filters before training give every character much the same."""
    apart: Floats = (vectors - vectors.mean(axis=0)).astype(np.float32)
    return apart


def _blocks(units: Floats) -> Iterator[tuple[slice, Floats]]:
    for begin in range(0, len(units), _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        yield rows, units[rows] @ units.T


class _Sum:
    """The sums that a mean and a standard deviation are made of. Every pair is added twice, from either side."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.squares = 0.0

    def add(self, values: Floats) -> None:
        self.count += values.size
        self.total += float(values.sum(dtype=np.float64))
        self.squares += float(np.square(values, dtype=np.float64).sum())

    def group(self) -> Group:
        if not self.count:
            return Group(0, None, None)
        mean = self.total / self.count
        return Group(self.count // 2, mean, max(self.squares / self.count - mean**2, 0.0) ** 0.5)
