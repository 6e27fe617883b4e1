"""Train and score a grid of systems x corpora x seeds. Finished runs are skipped. Used by `python -m research grid`.

Each run has a directory OUTPUT/CORPUS/SYSTEM/SEED, in the format that `runs` describes. The config of a run is
CORPUS.cfg with the overlays models/NAME.cfg, which the name of the system lists separated by `+`, and the settings of
an ablation (see `systems`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

from thinc.api import Config

from spacy_tener.files import digest
from spacy_tener.manifest import NAME, Manifest
from spacy_tener.training.config_files import (
    BASES,
    ConfigError,
    corpus_reader,
    find_in,
    names_in,
)
from spacy_tener.training.overlays import compose
from spacy_tener.training.runs import (
    METRICS_TEST,
    MODEL,
    OUTPUT,
    Processes,
    TrainingRun,
    exit_reason,
    train,
)

from .engines import Engine, Task, run_tasks
from .requirements import missing_requirements
from .systems import find_system

LOCK = ".grid.lock"
PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class Grid:
    """The corpora, systems and seeds of a grid.

    output: Directory for the runs.
    corpora, systems, seeds: The values to combine.
    data: Directory that contains CORPUS/{train,dev,test}.spacy.
    configs: Directory with additional CORPUS.cfg and models/OVERLAY.cfg. They take precedence over the package's
        configs with the same names.
    settings: Settings as `section.key=value`, which override all files.
    gpu_id: The GPU id, or -1 for the CPU.
    code: Python file with registered functions to import.
    """

    output: Path
    corpora: Sequence[str]
    systems: Sequence[str]
    seeds: Sequence[int]
    data: Path
    configs: Path | None = None
    settings: Sequence[str] = ()
    gpu_id: int = -1
    code: Path | None = None


@dataclass(frozen=True, kw_only=True)
class GridRun(TrainingRun):
    """A training run whose pipeline is scored by `spacy tener evaluate`. The scores are recorded in the manifest as
    METRICS_TEST, with a digest of the test set.

    test: The test set as a .spacy file.
    gold_preproc: Whether the pipeline is scored with the gold tokenization of the test set.
    """

    test: Path
    gold_preproc: bool = False


@dataclass(frozen=True)
class Todo:
    """The action that a run needs.

    run: The run.
    action: Train (and score), only score, or nothing.
    changes: Differences from the finished run in the same directory, one line each.
    """

    run: GridRun
    action: Literal["train", "evaluate", "nothing"]
    changes: tuple[str, ...] = ()


def plan(grid: Grid) -> list[GridRun]:
    """Return all runs of a grid, sorted by corpus, system and seed. Raises a single ConfigError that lists all
    problems."""
    runs: list[GridRun] = []
    problems: list[str] = []
    for corpus, part in product(grid.corpora, PARTS):
        path = grid.data / corpus / f"{part}.spacy"
        if not path.is_file():
            convert = f"Make it: python -m spacy tener convert FILES --output {path.parent}, or give another --data."
            problems.append(f"{path}: No such file. {convert}")
    for corpus, system in product(dict.fromkeys(grid.corpora), dict.fromkeys(grid.systems)):
        try:
            config = _config(grid, corpus, system)
            runs += [_run(grid, corpus, system, seed, config) for seed in dict.fromkeys(grid.seeds)]
            problems += [f"{corpus}, {system}: {line}" for line in missing_requirements(config)]
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("Nothing was trained: the grid has errors", "\n".join(dict.fromkeys(problems)))
    if not runs:
        raise ConfigError("The grid is empty", "Name at least one corpus, one system and one seed.")
    return runs


def find_todo(run: GridRun) -> Todo:
    """Return the action that a run needs. Finished runs need no action, even if the pipeline was deleted."""
    now, before = run.manifest(), Manifest.read(run.folder)
    scored, trained = (run.folder / METRICS_TEST).is_file(), (run.folder / MODEL).is_dir()
    if before is None or MODEL not in before.parts:
        unknown = f"it has {METRICS_TEST}, but no {NAME} that records its config and data"
        return Todo(run, "train", (unknown,) if scored else ())
    if not scored and not trained:
        return Todo(run, "train")
    differences = before.changes(now)
    if differences:
        return Todo(run, "train", differences)
    if scored and before.parts.get(METRICS_TEST) == digest(run.test):
        return Todo(run, "nothing")
    if trained:
        return Todo(run, "evaluate")
    return Todo(run, "train", (f"{run.test} has changed, and there is no {MODEL} to score on it",))


def check_unchanged(todos: Sequence[Todo]) -> None:
    """Raise an error if finished runs with another config or other data would be overwritten."""
    changed = [todo for todo in todos if todo.changes]
    if changed:
        runs = "1 finished run has" if len(changed) == 1 else f"{len(changed)} finished runs have"
        what = f"{runs} another config or other data and would be lost"
        lines = [f"{todo.run.name}: {'; '.join(todo.changes)}" for todo in changed]
        fix = "Name another output to keep them, or overwrite them with --retrain."
        raise ConfigError(what, "\n".join([*lines, fix]))


def run_grid(
    todos: Sequence[Todo], engine: Engine, *, begun: Callable[[Todo], None], ended: Callable[[Todo, str], None]
) -> dict[str, str]:
    """Train and score runs. Returns error messages by the names of the failed runs.

    begun: Callback for each run when it is submitted.
    ended: Callback for each run when it ends, with an error message or an empty string.
    """
    failures: dict[str, str] = {}

    def note(todo: Todo, failure: str) -> None:
        if failure:
            failures[todo.run.name] = failure
        ended(todo, failure)

    def training_tasks() -> Iterator[tuple[Todo, Task]]:
        for todo in todos:
            begun(todo)
            yield todo, partial(_train if engine.shares_cores else _train_and_score, todo)

    for todo, failure in run_tasks(engine, training_tasks()):
        if failure or not engine.shares_cores:
            note(todo, failure)
    if engine.shares_cores:
        # Score sequentially after all training runs. Scoring also measures speed, which parallel training runs would
        # distort.
        for todo in (todo for todo in todos if todo.run.name not in failures):
            for _, failure in run_tasks(engine, [(todo, partial(evaluate, todo.run))]):
                note(todo, failure)
    return failures


def evaluate(run: GridRun, processes: Processes) -> str:
    """Score a trained pipeline on the test set. Returns an error message, or an empty string on success."""
    folder, data = run.folder, digest(run.test)
    command = ["tener", "evaluate", str(folder / MODEL), str(run.test), "--output", str(folder / METRICS_TEST)]
    options = ["--gold-preproc"] * run.gold_preproc
    status = processes.run([*command, *run.options, *options], folder / OUTPUT)
    if status:
        return f"evaluation {exit_reason(status, folder)}"
    manifest = Manifest.read(folder) or run.manifest()
    manifest.finish(METRICS_TEST, data)
    return ""


def _train(todo: Todo, processes: Processes) -> str:
    return train(todo.run, processes) if todo.action == "train" else ""


def _train_and_score(todo: Todo, processes: Processes) -> str:
    return _train(todo, processes) or evaluate(todo.run, processes)


def _config(grid: Grid, corpus: str, system: str) -> Config:
    own_names = names_in(grid.configs) if grid.configs else []
    folder = grid.configs if grid.configs and corpus in own_names else BASES
    names = sorted({*own_names, *names_in(BASES)})
    base = find_in(folder, corpus, "config", names, "--configs names a directory of yours.")
    overlays, settings = find_system(system, grid.configs and grid.configs / "models")
    config = compose(base, overlays, [*settings, *grid.settings])
    config["paths"].update({part: str(grid.data / corpus / f"{part}.spacy") for part in ("train", "dev")})
    return config


def _run(grid: Grid, corpus: str, system: str, seed: int, composed: Config) -> GridRun:
    config = composed.copy()
    config["system"]["seed"] = seed
    reader = corpus_reader(config)
    if config.interpolate()["training"]["seed"] != seed:
        raise ConfigError(f"{corpus}, {system}: the seed is fixed", "Set seed = ${system.seed} in [training].")
    if reader.get("path") != config["paths"]["train"]:
        raise ConfigError(f"{corpus}, {system}: the data is fixed", "Set path = ${paths.train} in [corpora.train].")
    return GridRun(
        name=f"{corpus}/{system}/{seed}",
        folder=grid.output / corpus / system / str(seed),
        config=config,
        test=grid.data / corpus / "test.spacy",
        gold_preproc=bool(reader.get("gold_preproc")),
        gpu_id=grid.gpu_id,
        code=grid.code,
    )
