"""Runs that differ only in their seed, taken together, and the settings of their configs that they are grouped by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from confection import ConfigValidationError
from spacy.util import load_config

from ...errors import RemedyError
from ..composing.files import entries
from .runs import CONFIG, MODEL, Place, Run
from .statistics import Summary, summarize

DEFAULT_BY = ("corpus", "system")
_PLACE = ("corpus", "system", "seed")
# What may differ between the runs of one group: sections, and the last parts of settings' paths.
_FREE_SECTIONS, _FREE_NAMES = ("paths.", "system."), ("seed", "path", "output_file")


class MissingSettingError(RemedyError):
    """A run's config lacks a setting that others may have."""


@dataclass(frozen=True)
class SeedGroup:
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

    def scores(self, metric: str) -> list[float]:
        """Each seed's score on test, in percent."""
        return [100 * getattr(run.test.overall, metric) for run in self.runs]


def group_runs(runs: Iterable[Run], by: Sequence[str] = DEFAULT_BY) -> list[SeedGroup]:
    """Groups in the order of their keys. A seed may be in a group once only, and all configs must be the same."""
    members: dict[tuple[Any, ...], dict[int, Run]] = {}
    for run in runs:
        key = tuple(_hashable(value_of(run, name)) for name in by)
        seeds = members.setdefault(key, {})
        other = seeds.setdefault(run.seed, run)
        what = ", ".join(f"{name} {value}" for name, value in zip(by, key, strict=True)) or "all runs together"
        remedy = "Group by what sets them apart as well (--by), or name fewer systems."
        if other is not run:
            raise RemedyError(f"{what}: seed {run.seed} is there twice: {other.name} and {run.name}", remedy)
        first = next(iter(seeds.values()))
        if different := list(_differences(first, run)):
            reason = f"{what}: {first.name} and {run.name} were not trained alike: {'; '.join(different)}"
            raise RemedyError(reason, remedy)
    keys = sorted(members, key=lambda key: [order_of(value) for value in key])
    return [SeedGroup(tuple(by), key, runs=tuple(run for _, run in sorted(members[key].items()))) for key in keys]


def value_of(run: Place, name: str) -> Any:
    """What a run has for a name.

    name: `corpus`, `system`, `seed`, a setting of the config as in `components.tener_ner.model.tok2vec.k`, or the end
        of one, as in `k` or `tok2vec.k`, if only one setting of the config ends so.
    """
    if name in _PLACE:
        return getattr(run, name)
    settings = _settings(run.folder)
    matches = [path for path in settings if path == name] or [path for path in settings if path.endswith(f".{name}")]
    if not matches:
        remedy = "Use corpus, system, seed or a setting's path, as in components.tener_ner.model.tok2vec.k."
        raise MissingSettingError(f"{run.name}: its config has no setting '{name}'", remedy)
    if len(matches) > 1:
        raise RemedyError(f"{run.name}: several settings end in '{name}'", f"Use one of: {', '.join(matches)}.")
    return settings[matches[0]]


def has_value(run: Place, name: str) -> bool:
    """Whether a run has anything for a name: systems have settings that others lack."""
    try:
        value_of(run, name)
    except MissingSettingError:
        return False
    return True


def order_of(value: Any) -> tuple[bool, float, str]:
    """Sorts numbers by value, and everything else as text behind them."""
    number = is_number(value)
    return (not number, value if number else 0.0, str(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _differences(one: Run, other: Run) -> Iterator[str]:
    """The settings that two runs have both, but not alike, and that are neither seeds nor paths."""
    if one is other or not (_config(one.folder) and _config(other.folder)):
        return
    # Without interpolation: what a path or a seed is referred to by stays.
    settings, others = (_settings(run.folder, interpolate=False) for run in (one, other))
    for path, value in settings.items():
        free = path.startswith(_FREE_SECTIONS) or path.rpartition(".")[2] in _FREE_NAMES
        if not free and path in others and value != others[path]:
            yield f"{path} is {value} and {others[path]}"


def _config(folder: Path) -> Path | None:
    return next((path for path in (folder / MODEL / CONFIG, folder / CONFIG) if path.is_file()), None)


@cache
def _settings(folder: Path, *, interpolate: bool = True) -> Mapping[str, Any]:
    """Every setting of a run's config by its dotted path."""
    path = _config(folder)
    if path is None:
        raise RemedyError(f"{folder}: there is neither {MODEL}/{CONFIG} nor {CONFIG}", "Train the run again.")
    try:
        config = load_config(path, interpolate=interpolate)
    except (ConfigValidationError, OSError, ValueError) as error:
        raise RemedyError(f"{path}: cannot be read as a config: {error}", "Train the run again.") from error
    return {name: value for name, value in entries(config) if not isinstance(value, Mapping)}


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
