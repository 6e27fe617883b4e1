"""Runs that differ only in their seed, taken together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ReportError
from .runs import Run
from .settings import order_of, value_of
from .statistics import Summary, summarize

DEFAULT_BY = ("corpus", "system")


@dataclass(frozen=True)
class Group:
    """The runs with the same values for what they are grouped by, one for each seed."""

    by: tuple[str, ...]
    key: tuple[Any, ...]
    runs: tuple[Run, ...]

    def value(self, name: str) -> Any:
        """What all runs of this group have for one of the names they are grouped by."""
        return self.key[self.by.index(name)]

    def summary(self, measure: Callable[[Run], float | None]) -> Summary | None:
        """Mean and standard deviation over the runs that have something to measure."""
        values = [value for run in self.runs if (value := measure(run)) is not None]
        return summarize(values) if values else None

    def scores(self, metric: str) -> Mapping[int, float]:
        """Each seed's score on test."""
        return {run.seed: getattr(run.test.overall, metric) for run in self.runs}


def group_runs(runs: Iterable[Run], by: Sequence[str] = DEFAULT_BY) -> list[Group]:
    """Groups in the order of their keys. A seed may be in a group once only."""
    members: dict[tuple[Any, ...], dict[int, Run]] = {}
    for run in runs:
        key = tuple(_hashable(value_of(run, name)) for name in by)
        seeds = members.setdefault(key, {})
        other = seeds.setdefault(run.seed, run)
        if other is not run:
            what = ", ".join(f"{name} {value}" for name, value in zip(by, key, strict=True)) or "all runs together"
            raise ReportError(
                f"{what}: seed {run.seed} is there twice: {other.name} and {run.name}",
                "Group by what sets them apart as well, or name fewer systems.",
            )
    keys = sorted(members, key=lambda key: [order_of(value) for value in key])
    return [Group(tuple(by), key, runs=tuple(run for _, run in sorted(members[key].items()))) for key in keys]


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
