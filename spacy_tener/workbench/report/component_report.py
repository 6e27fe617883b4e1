"""What a trained embedder of components makes of characters, in numbers: as a table, and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .component_cosines import NEIGHBOURS, Cosines, Floats, Group, Kinship, centred, compare, near

HEADER = ("cosine, mean ± sd", "pairs", "before training", "after training")
_GROUPS = {
    "component": "pairs that share a component",
    "radical": "pairs that share the radical",
    "neither": "pairs that share no component",
}


@dataclass(frozen=True)
class Closeness:
    """How close characters are.

    cosines: of their embeddings.
    without_mean: of these without what all have in common. Filters before training give every character much the same,
        so that all cosines are high.
    """

    cosines: Cosines
    without_mean: Cosines

    @classmethod
    def of(cls, vectors: Floats, kinship: Kinship) -> Closeness:
        """*Shape* vectors: [n, width]"""
        return cls(compare(vectors, kinship), compare(centred(vectors), kinship))


@dataclass(frozen=True)
class Neighbour:
    """One of the characters nearest to the one in the middle."""

    character: str
    cosine: float
    shares_component: bool


@dataclass(frozen=True)
class ComponentReport:
    """How close characters are before and after training, and what is nearest to one of them after it.

    characters: how many.
    components: how many distinct ones they are made of.
    """

    characters: int
    components: int
    before: Closeness
    after: Closeness
    middle: str
    nearest: tuple[Neighbour, ...]

    def data(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, ...]]:
        """A table, with `HEADER`."""
        before, after = self.before, self.after
        parts = [_percent(closeness.cosines.neighbours) for closeness in (before, after)]
        return [
            *_rows(before.cosines, after.cosines),
            ("without what all have in common:", "", "", ""),
            *_rows(before.without_mean, after.without_mean),
            (f"of the {NEIGHBOURS} nearest, share a component", "", *parts),
        ]


def component_report(
    characters: Sequence[str], kinship: Kinship, *, before: Floats, after: Floats, middle: str, count: int
) -> ComponentReport:
    """Compare all pairs of characters.

    before, after: their embeddings. *Shape* [n, width]
    middle: the character whose nearest are listed.
    count: how many of these.
    """
    closest = near(after, kinship, characters.index(middle), count)
    return ComponentReport(
        characters=len(characters),
        components=kinship.components.shape[1],
        before=Closeness.of(before, kinship),
        after=Closeness.of(after, kinship),
        middle=middle,
        nearest=tuple(Neighbour(characters[each.place], round(each.cosine, 4), each.kin) for each in closest),
    )


def _rows(before: Cosines, after: Cosines) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, title in _GROUPS.items():
        groups: tuple[Group, Group] = (getattr(before, name), getattr(after, name))
        rows.append((title, f"{groups[0].pairs:,}", *map(_mean_sd, groups)))
    differences = [_signed(cosines.difference) for cosines in (before, after)]
    return [*rows, ("sharing a component, minus sharing none", "", *differences)]


def _mean_sd(group: Group) -> str:
    return "-" if group.mean is None else f"{group.mean:.3f} ± {group.sd:.3f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"
