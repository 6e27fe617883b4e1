"""Cosines over all pairs of characters, beside a plain loop over the pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from spacy_tener.workbench.report import component_cosines
from spacy_tener.workbench.report.component_cosines import Kinship, centred, compare, near, nearest_places, unit_length

COMPONENTS = ["氵工", "氵可", "木木", "木寸", "艹化", "十", "钅十", "氵木"]
RADICALS = ["氵", "氵", "木", "木", "艹", "十", "钅", "氵"]


@pytest.fixture
def kinship() -> Kinship:
    return Kinship(COMPONENTS, RADICALS)


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(COMPONENTS), 5)).astype("f")


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def by_pairs(vectors: np.ndarray, wanted) -> list[float]:
    pairs = combinations(range(len(vectors)), 2)
    return [cosine(vectors[i], vectors[j]) for i, j in pairs if wanted(i, j)]


def shares(i: int, j: int) -> bool:
    return bool(set(COMPONENTS[i]) & set(COMPONENTS[j]))


@pytest.mark.parametrize(
    ("group", "wanted"),
    [
        ("component", shares),
        ("radical", lambda i, j: RADICALS[i] == RADICALS[j]),
        ("neither", lambda i, j: not shares(i, j)),
    ],
)
@pytest.mark.parametrize("block", [3, 8, 1000])
def test_each_group_has_the_cosines_of_its_pairs(kinship, vectors, group, wanted, block, monkeypatch) -> None:
    monkeypatch.setattr(component_cosines, "_BLOCK", block)
    found = getattr(compare(vectors, kinship), group)
    expected = by_pairs(vectors, wanted)
    assert found.pairs == len(expected) > 0
    assert found.mean == pytest.approx(np.mean(expected), abs=1e-6)
    assert found.sd == pytest.approx(np.std(expected), abs=1e-5)


def test_pairs_are_counted_once_and_none_is_lost(kinship, vectors) -> None:
    found = compare(vectors, kinship)
    assert found.component.pairs + found.neither.pairs == 8 * 7 // 2


def test_difference_is_that_of_the_means(kinship, vectors) -> None:
    found = compare(vectors, kinship)
    assert found.difference == pytest.approx(found.component.mean - found.neither.mean)


def test_a_component_that_a_character_has_twice_counts_once() -> None:
    twice, once = Kinship(["木木", "木寸"], ["木", "木"]), Kinship(["木", "木寸"], ["木", "木"])
    assert twice.of(slice(None))[0].tolist() == once.of(slice(None))[0].tolist() == [[False, True], [True, False]]


def test_without_pairs_of_a_kind_there_is_no_mean(vectors) -> None:
    strangers = compare(vectors[:2], Kinship(["氵", "木"], ["氵", "木"]))
    assert (strangers.component.pairs, strangers.component.mean, strangers.component.sd) == (0, None, None)
    assert (strangers.difference, strangers.neighbours) == (None, None)
    relatives = compare(vectors[:2], Kinship(["氵", "氵"], ["氵", "氵"]))
    assert (relatives.neither.mean, relatives.difference, relatives.neighbours) == (None, None, 1.0)


def test_neighbours_are_the_part_of_the_nearest_that_shares_a_component(kinship, vectors, monkeypatch) -> None:
    monkeypatch.setattr(component_cosines, "NEIGHBOURS", 3)
    parts = []
    for i in range(8):
        others = sorted((j for j in range(8) if j != i), key=lambda j: -cosine(vectors[i], vectors[j]))
        if any(shares(i, j) for j in others):
            parts.append(np.mean([shares(i, j) for j in others[:3]]))
    assert len(parts) == 7
    assert compare(vectors, kinship).neighbours == pytest.approx(np.mean(parts))


def test_the_nearest_come_in_order_and_without_the_character_itself(vectors) -> None:
    units = unit_length(vectors)
    cosines = units @ units.T
    found = nearest_places(cosines, np.arange(8), 100)
    assert found.shape == (8, 7)
    for row, places in enumerate(found.tolist()):
        assert places == sorted((j for j in range(8) if j != row), key=lambda j: -cosines[row, j])


def test_near_names_places_cosines_and_kin(kinship, vectors) -> None:
    found = near(vectors, kinship, 0, 4)
    assert len(found) == 4
    assert [each.cosine for each in found] == sorted((each.cosine for each in found), reverse=True)
    for each in found:
        assert each.cosine == pytest.approx(cosine(vectors[0], vectors[each.place]), abs=1e-6)
        assert each.kin == shares(0, each.place)


def test_what_all_have_in_common_hides_differences_until_it_is_taken_away(kinship, vectors) -> None:
    shifted = vectors + 50.0
    assert compare(shifted, kinship).neither.mean > 0.99
    alone = compare(centred(shifted), kinship)
    assert alone.neither.mean == pytest.approx(compare(centred(vectors), kinship).neither.mean, abs=1e-4)


def test_zeros_have_no_direction_and_break_nothing(kinship) -> None:
    assert compare(np.zeros((8, 5), dtype="f"), kinship).component.mean == 0.0
