"""Find training runs on disk, read their scores and configs, and group runs that differ only in their seed.

A run is a directory CORPUS/SYSTEM/SEED, where SEED is an integer. These files are used:

    metrics.json      test scores, written by `spacy tener evaluate --output` or `spacy evaluate --output`
    metrics-dev.json  scores on the development set; model-best/meta.json is used if this file does not exist
    model-best/       the best pipeline, written by `spacy train`: its size, config.cfg and meta.json
    config.cfg        the config, if there is no model-best
    training.jsonl    the training log: `output_file` of spacy.ConsoleLogger.v3

A run without metrics.json is unfinished.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from research.scores import Scores, dev_scores, read_scores
from spacy_tener.errors import UserError
from spacy_tener.files import size_mb
from spacy_tener.training.config_files import entries
from spacy_tener.training.overlays import CONFIG, read_trained_config
from spacy_tener.training.runs import LOG, METRICS_DEV, METRICS_TEST, MODEL

from .comparing import Summary, summarize

_MODELS = (MODEL, "model-last")
_MARKS = frozenset({*_MODELS, METRICS_TEST, METRICS_DEV, LOG, CONFIG})
_SHAPE = "A run is a directory CORPUS/SYSTEM/SEED, SEED a whole number, with model-best and metrics.json in it."
DEFAULT_BY = ("corpus", "system")
_PLACE = ("corpus", "system", "seed")
# Settings that may differ between runs of a group: these sections, and settings whose paths end in these names.
_FREE_SECTIONS, _FREE_NAMES = ("paths.", "system."), ("seed", "path", "output_file")


@dataclass(frozen=True)
class RunFolder:
    """The directory of a run, and the parts of its name."""

    corpus: str
    system: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.corpus}/{self.system}/{self.seed}"


@dataclass(frozen=True)
class Run(RunFolder):
    """A finished run.

    test: Scores on the test set.
    dev: Scores on the development set.
    megabytes: Size of the trained pipeline on disk. None if the pipeline was deleted.
    """

    test: Scores
    dev: Scores | None
    megabytes: float | None


@dataclass(frozen=True)
class UnfinishedRun(RunFolder):
    """A run without test scores, and the reason why they are missing."""

    reason: str


@dataclass(frozen=True)
class FoundRuns:
    """All runs in some directories, sorted by corpus, system and seed.

    runs: The finished runs.
    unfinished: The unfinished runs.
    left_out: Directories that contain a pipeline or scores, but whose paths do not have the form CORPUS/SYSTEM/SEED.
    """

    runs: tuple[Run, ...]
    unfinished: tuple[UnfinishedRun, ...]
    left_out: tuple[Path, ...]

    def only(self, *, corpora: Collection[str] = (), systems: Collection[str] = ()) -> FoundRuns:
        """Return the runs of some corpora and systems. An empty collection selects all of them."""
        all_runs = (*self.runs, *self.unfinished)
        for kind, names, existing in (
            ("corpus", corpora, {run.corpus for run in all_runs}),
            ("system", systems, {run.system for run in all_runs}),
        ):
            unknown = sorted(set(names) - existing)
            if unknown:
                reason = f"No run of this {kind}: {', '.join(unknown)}"
                raise UserError(reason, f"There are: {', '.join(sorted(existing))}.")

        def chosen(run: RunFolder) -> bool:
            return (not corpora or run.corpus in corpora) and (not systems or run.system in systems)

        runs, unfinished = tuple(filter(chosen, self.runs)), tuple(filter(chosen, self.unfinished))
        if not runs and not unfinished:
            raise UserError("There is no run of these corpora and systems together", "Name fewer of them.")
        return replace(self, runs=runs, unfinished=unfinished)


def find_runs(roots: Sequence[Path]) -> FoundRuns:
    """Find all runs in some directories and their subdirectories."""
    places: dict[str, RunFolder] = {}
    left_out: list[Path] = []
    for folder in _marked_folders(roots):
        place = _run_folder(folder)
        if place is None:
            left_out.append(folder)
            continue
        earlier = places.setdefault(place.name, place)
        if earlier is not place:
            reason = f"{place.corpus}, {place.system}: seed {place.seed} is there twice: {earlier.folder} and {folder}"
            raise UserError(reason, "Name only one of them.")
    if not places:
        raise UserError(f"No runs found in {', '.join(map(str, roots))}", _SHAPE)
    read = [_read(place) for place in sorted(places.values(), key=lambda run: (run.corpus, run.system, run.seed))]
    return FoundRuns(
        runs=tuple(run for run in read if isinstance(run, Run)),
        unfinished=tuple(run for run in read if isinstance(run, UnfinishedRun)),
        left_out=tuple(left_out),
    )


def _marked_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield each directory that contains files of a run. Directories that are found twice are yielded once."""
    visited: set[Path] = set()
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root}: there is no such directory", _SHAPE)
        for folder, folders, files in os.walk(root):
            path = Path(folder)
            marked = not _MARKS.isdisjoint([*folders, *files])
            # Do not search for runs inside pipelines or other runs.
            folders[:] = [] if marked and _run_folder(path) else sorted(set(folders) - set(_MODELS))
            if marked and path.resolve() not in visited:
                visited.add(path.resolve())
                yield path


def _run_folder(folder: Path) -> RunFolder | None:
    corpus, system, seed = ("", "", "", *folder.resolve().parts[1:])[-3:]
    if not corpus or not seed.isdecimal():
        return None
    return RunFolder(corpus=corpus, system=system, seed=int(seed), folder=folder)


def _read(place: RunFolder) -> Run | UnfinishedRun:
    model = place.folder / MODEL
    if not (place.folder / METRICS_TEST).is_file():
        reason = "not trained yet, or stopped before the first evaluation"
        if model.is_dir():
            reason = f"no {METRICS_TEST}: still in training, stopped, or not evaluated"
        return UnfinishedRun(**vars(place), reason=reason)
    return Run(
        **vars(place),
        test=read_scores(place.folder / METRICS_TEST),
        dev=dev_scores(model / "meta.json", place.folder / METRICS_DEV),
        megabytes=size_mb(model) if model.is_dir() else None,
    )


@dataclass(frozen=True)
class SeedGroup:
    """Runs with the same values of some settings, one for each seed.

    by: Names of the settings by which the runs are grouped.
    key: Values of these settings.
    runs: The runs, sorted by seed.
    """

    by: tuple[str, ...]
    key: tuple[Any, ...]
    runs: tuple[Run, ...]

    def value(self, name: str) -> Any:
        """Return the value of a setting by which the runs are grouped."""
        return self.key[self.by.index(name)]

    def summary(self, measure: Callable[[Run], float | None]) -> Summary | None:
        """Return the mean and standard deviation of a measure. Runs for which it is None are ignored."""
        values = [value for run in self.runs if (value := measure(run)) is not None]
        return summarize(values) if values else None

    def scores(self, metric: str) -> list[float]:
        """Return the test score of each seed, in percent."""
        return [100 * getattr(run.test.overall, metric) for run in self.runs]


def group_runs(runs: Iterable[Run], by: Sequence[str] = DEFAULT_BY) -> list[SeedGroup]:
    """Group runs, and sort the groups by their keys. Raises an error if a group contains a seed twice, or different
    configs."""
    members: dict[tuple[Any, ...], dict[int, Run]] = {}
    for run in runs:
        values = [setting(run, name) for name in by]
        key = tuple(value if isinstance(value, str | int | float | bool | None) else str(value) for value in values)
        seeds = members.setdefault(key, {})
        earlier = seeds.setdefault(run.seed, run)
        what = ", ".join(f"{name} {value}" for name, value in zip(by, key, strict=True)) or "all runs together"
        fix = "Group by the setting that differs, too (--by), or name fewer systems."
        if earlier is not run:
            raise UserError(f"{what}: seed {run.seed} is there twice: {earlier.name} and {run.name}", fix)
        first = next(iter(seeds.values()))
        different = list(_differences(first, run))
        if different:
            reason = f"{what}: {first.name} and {run.name} have different configs: {'; '.join(different)}"
            raise UserError(reason, fix)
    keys = sorted(members, key=lambda key: [order_of(value) for value in key])
    return [SeedGroup(tuple(by), key, runs=tuple(run for _, run in sorted(members[key].items()))) for key in keys]


def setting(run: RunFolder, name: str) -> Any:
    """Return the value of a setting in a run.

    name: `corpus`, `system`, `seed`, the path of a setting in the config (`components.tener_ner.model.tok2vec.k`), or
        the end of its path (`k` or `tok2vec.k`) if only one setting ends in it.
    """
    found = _matches(run, name)
    if not found:
        fix = "Use corpus, system, seed or a setting's path, as in components.tener_ner.model.tok2vec.k."
        raise UserError(f"{run.name}: its config has no setting '{name}'", fix)
    if len(found) > 1:
        raise UserError(f"{run.name}: several settings end in '{name}'", f"Use one of: {', '.join(found)}.")
    return next(iter(found.values()))


def _matches(run: RunFolder, name: str) -> dict[str, Any]:
    """Return the setting with this path, or else all settings whose paths end in it."""
    if name in _PLACE:
        return {name: getattr(run, name)}
    settings = _settings(run.folder)
    if name in settings:
        return {name: settings[name]}
    return {path: value for path, value in settings.items() if path.endswith(f".{name}")}


def order_of(value: Any) -> tuple[bool, float, str]:
    """Return a sort key: numbers are sorted by value, and all other values alphabetically after them."""
    number = is_number(value)
    return (not number, value if number else 0.0, str(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _differences(run: Run, reference: Run) -> Iterator[str]:
    """Yield settings with different values in two runs, except seeds and paths."""
    if run is reference or not (_config_file(run.folder) and _config_file(reference.folder)):
        return
    # The configs are compared without interpolation, so that references to paths and seeds are equal.
    settings, reference_settings = (_settings(run.folder, interpolate=False) for run in (run, reference))
    for path, value in settings.items():
        free = path.startswith(_FREE_SECTIONS) or path.rpartition(".")[2] in _FREE_NAMES
        if not free and path in reference_settings and value != reference_settings[path]:
            yield f"{path} is {value} and {reference_settings[path]}"


def _config_file(folder: Path) -> Path | None:
    return next((path for path in (folder / MODEL / CONFIG, folder / CONFIG) if path.is_file()), None)


@cache
def _settings(folder: Path, *, interpolate: bool = True) -> Mapping[str, Any]:
    """Return all settings of a run's config by their dotted paths."""
    path = _config_file(folder)
    if path is None:
        raise UserError(f"{folder}: there is neither {MODEL}/{CONFIG} nor {CONFIG}", "Train the run again.")
    config = read_trained_config(path, interpolate=interpolate)
    return {name: value for name, value in entries(config) if not isinstance(value, Mapping)}
