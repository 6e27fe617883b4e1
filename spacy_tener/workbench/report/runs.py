"""Finding runs on disk.

A run is a directory CORPUS/SYSTEM/SEED, anywhere; SEED is a whole number. Of what lies in it, this package reads

    metrics.json      the scores on test: what `spacy tener evaluate` or `spacy evaluate` writes with `--output`
    metrics-dev.json  the same on dev, if there; otherwise dev's scores are those in model-best/meta.json
    model-best/       the pipeline that `spacy train` chose: its size, its config.cfg, its meta.json
    config.cfg        the config, where there is no model-best
    training.jsonl    the log of the training: `output_file` of spacy.ConsoleLogger.v3

A run without metrics.json is not finished.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import RemedyError
from .scores import Metrics, parse_metrics, read_json, read_metrics

MODEL = "model-best"
METRICS = "metrics.json"
METRICS_DEV = "metrics-dev.json"
LOG = "training.jsonl"
CONFIG = "config.cfg"
_MODELS = (MODEL, "model-last")
_MARKS = frozenset({*_MODELS, METRICS, METRICS_DEV, LOG, CONFIG})
_SHAPE = "A run is a directory CORPUS/SYSTEM/SEED, SEED a whole number, with model-best and metrics.json in it."


@dataclass(frozen=True)
class Place:
    """A run's directory and what its name says."""

    corpus: str
    system: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.corpus}/{self.system}/{self.seed}"


@dataclass(frozen=True)
class Run(Place):
    """A finished run.

    test: The scores on test.
    dev: The scores on dev.
    megabytes: The size of the trained pipeline on disk, if it is still there.
    """

    test: Metrics
    dev: Metrics | None
    megabytes: float | None


@dataclass(frozen=True)
class Unfinished(Place):
    """A run without scores on test, and how far it came."""

    reason: str


@dataclass(frozen=True)
class Found:
    """All runs below some directories, in the order of their corpora, systems and seeds.

    left_out: Directories with a pipeline or scores in them whose name is not that of a run.
    """

    runs: tuple[Run, ...]
    unfinished: tuple[Unfinished, ...]
    left_out: tuple[Path, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        return (*self.runs, *self.unfinished)

    def only(self, *, corpora: Collection[str] = (), systems: Collection[str] = ()) -> Found:
        """The runs of some corpora and systems (none named: of all)."""
        _check_known("corpus", corpora, {place.corpus for place in self.places})
        _check_known("system", systems, {place.system for place in self.places})

        def wanted(place: Place) -> bool:
            return (not corpora or place.corpus in corpora) and (not systems or place.system in systems)

        runs, unfinished = tuple(filter(wanted, self.runs)), tuple(filter(wanted, self.unfinished))
        if not runs and not unfinished:
            raise RemedyError("There is no run of these corpora and systems together", "Ask for fewer restrictions.")
        return replace(self, runs=runs, unfinished=unfinished)


def find_runs(roots: Sequence[Path]) -> Found:
    """The runs in and below some directories."""
    places: list[Place] = []
    left_out: list[Path] = []
    for folder in _marked_folders(roots):
        place = _place(folder)
        if place is None:
            left_out.append(folder)
        else:
            places.append(place)
    if not places:
        raise RemedyError(f"No runs found in {', '.join(map(str, roots))}", _SHAPE)
    _check_once(places)
    read = [_read(place) for place in sorted(places, key=lambda place: (place.corpus, place.system, place.seed))]
    return Found(
        runs=tuple(each for each in read if isinstance(each, Run)),
        unfinished=tuple(each for each in read if isinstance(each, Unfinished)),
        left_out=tuple(left_out),
    )


def _marked_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Each directory that holds something of a run, once."""
    seen: set[Path] = set()
    for root in roots:
        if not root.is_dir():
            raise RemedyError(f"{root}: there is no such directory", _SHAPE)
        for folder, folders, files in os.walk(root):
            path = Path(folder)
            marked = not _MARKS.isdisjoint([*folders, *files])
            # Nothing of ours lies in a pipeline or below a run.
            folders[:] = [] if marked and _place(path) else sorted(set(folders) - set(_MODELS))
            if marked and path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _place(folder: Path) -> Place | None:
    corpus, system, seed = ("", "", "", *folder.resolve().parts[1:])[-3:]
    if not corpus or not seed.isdecimal():
        return None
    return Place(corpus=corpus, system=system, seed=int(seed), folder=folder)


def _read(place: Place) -> Run | Unfinished:
    model = place.folder / MODEL
    if not (place.folder / METRICS).is_file():
        reason = "not trained yet, or stopped before the first evaluation"
        if model.is_dir():
            reason = f"no {METRICS}: still in training, stopped, or not evaluated"
        return Unfinished(**vars(place), reason=reason)
    return Run(
        **vars(place),
        test=read_metrics(place.folder / METRICS),
        dev=dev_metrics(model / "meta.json", place.folder / METRICS_DEV),
        megabytes=size_mb(model) if model.is_dir() else None,
    )


def dev_metrics(meta: Path, kept: Path | None = None) -> Metrics | None:
    """The scores on dev in a pipeline's meta.json, or in a file of their own, which goes first."""
    if kept is not None and kept.is_file():
        return read_metrics(kept)
    performance = read_json(meta).get("performance", {}) if meta.is_file() else {}
    return parse_metrics(performance, meta) if performance.get("ents_f") is not None else None


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _check_once(places: Sequence[Place]) -> None:
    first: dict[str, Place] = {}
    for place in places:
        other = first.setdefault(place.name, place)
        if other is not place:
            raise RemedyError(
                f"{place.corpus}, {place.system}: seed {place.seed} is there twice: {other.folder} and {place.folder}",
                "Name only one of them.",
            )


def _check_known(kind: str, names: Collection[str], known: set[str]) -> None:
    unknown = sorted(set(names) - known)
    if unknown:
        raise RemedyError(f"No run of this {kind}: {', '.join(unknown)}", f"There are: {', '.join(sorted(known))}.")
