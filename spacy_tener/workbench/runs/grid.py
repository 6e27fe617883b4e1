"""Systems x corpora x seeds: what is to be trained, what of it is there already, and the rest of it done.

A run lies where `report.runs` looks for it, OUTPUT/CORPUS/SYSTEM/SEED. Its config is that of the corpus, CORPUS.cfg,
with the overlays models/NAME.cfg that the system's name is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from thinc.api import Config

from ...errors import RemedyError
from ...files import digest
from ...manifest import NAME, Manifest
from ..composing.compose import compose
from ..composing.files import ConfigError
from ..composing.named import SHIPPED, find_in, names_in
from ..report.runs import METRICS, MODEL
from .engines import Engine
from .processes import Echo, Processes
from .requirements import corpus_reader, missing
from .training import evaluate, manifest_of, train

LOCK = ".grid.lock"
BASE_NAMES = ("base", "tener")
"""What the config of a corpus as it is may be called, where no overlay has the name."""
PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class Grid:
    """What is asked for.

    data: Holds CORPUS/{train,dev,test}.spacy.
    configs: Holds CORPUS.cfg and models/OVERLAY.cfg.
    settings: Each as `section.key=value`, over all files.
    gpu_id: Or -1 for the CPU.
    code: A Python file with what the configs need.
    """

    output: Path
    corpora: Sequence[str]
    systems: Sequence[str]
    seeds: Sequence[int]
    data: Path
    configs: Path = SHIPPED
    settings: Sequence[str] = ()
    gpu_id: int = -1
    code: Path | None = None


@dataclass(frozen=True)
class GridRun:
    """One run of a grid.

    config: Complete, with its seed and its data.
    gold_preproc: Whether the corpus' own tokens are read in training; then in evaluation as well.
    """

    name: str
    folder: Path
    config: Config
    test: Path
    gold_preproc: bool
    gpu_id: int
    code: Path | None = None


@dataclass(frozen=True)
class Todo:
    """What is left to do for a run.

    manifest: Of what it is, or will be, trained from.
    changes: How that differs from what the finished run there was trained from, a line for each.
    """

    run: GridRun
    action: Literal["train", "evaluate", "nothing"]
    manifest: Manifest
    changes: tuple[str, ...] = ()


def plan(grid: Grid) -> list[GridRun]:
    """All runs, by corpus, system and seed. All that is wrong or missing is found here, and told at once."""
    runs: list[GridRun] = []
    problems: list[str] = []
    for corpus, part in product(grid.corpora, PARTS):
        path = grid.data / corpus / f"{part}.spacy"
        if not path.is_file():
            convert = f"Make it: python -m spacy tener convert FILES {path.parent}, or name another place by --data."
            problems.append(f"{path}: there is no such file. {convert}")
    for corpus, system in product(dict.fromkeys(grid.corpora), dict.fromkeys(grid.systems)):
        try:
            config = _config(grid, corpus, system)
            runs += [_run(grid, corpus, system, seed, config) for seed in dict.fromkeys(grid.seeds)]
            problems += [f"{corpus}, {system}: {line}" for line in missing(config)]
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("Nothing was trained, since something is wrong", "\n".join(dict.fromkeys(problems)))
    if not runs:
        raise ConfigError("There is nothing to train", "Name at least one corpus, one system and one seed.")
    return runs


def todo(run: GridRun) -> Todo:
    """What is left to do for a run. A finished one is left alone, also without its pipeline."""
    now, before = manifest_of(run.folder, run.config, run.code), Manifest.read(run.folder)
    scored, trained = (run.folder / METRICS).is_file(), (run.folder / MODEL).is_dir()
    if before is None or MODEL not in before.parts:
        unknown = f"it has {METRICS}, but no {NAME} that says what it was trained from"
        return Todo(run, "train", now, (unknown,) if scored else ())
    if not scored and not trained:
        return Todo(run, "train", now)
    if differences := before.changes(now):
        return Todo(run, "train", now, differences)
    if scored and before.parts.get(METRICS) == digest(run.test):
        return Todo(run, "nothing", before)
    if trained:
        return Todo(run, "evaluate", before)
    return Todo(run, "train", now, (f"{run.test} has other contents, and {MODEL} is not there to be scored on them",))


def check_unchanged(todos: Sequence[Todo]) -> None:
    """Refuse to train where a run is finished that is another one than is asked for."""
    other = [each for each in todos if each.changes]
    if other:
        what = f"{len(other)} finished run{'s' * (len(other) > 1)} would be lost, being others than are asked for now"
        lines = [f"{each.run.name}: {'; '.join(each.changes)}" for each in other]
        remedy = "To keep them, ask for what they were trained from, or name another output. To lose them: --retrain."
        raise ConfigError(what, "\n".join([*lines, remedy]))


def run_grid(
    todos: Sequence[Todo],
    jobs: int,
    *,
    begun: Callable[[Todo], None],
    ended: Callable[[Todo, str], None],
    echo: Echo | None = None,
) -> dict[str, str]:
    """Do what is left to do, several runs at once. Returns why each failed that did, by its name.

    begun: is told of each when it is its turn.
    ended: is told of each, and why it failed if it did.
    echo: takes what the processes print; of several at once the lines would be mixed.
    """
    processes = Processes(jobs)
    failures: dict[str, str] = {}

    def do(step: Callable[[Todo, Processes, Echo | None], str], each: Todo) -> None:
        try:
            failure = step(each, processes, echo if jobs == 1 else None)
        except (OSError, RemedyError) as error:
            failure = str(error)
        if failure:
            failures[each.run.name] = failure
            ended(each, failure)

    def train_one(each: Todo) -> None:
        begun(each)
        if each.action == "train":
            do(_train, each)

    # How fast a pipeline reads is measured with its scores: not while others are trained on the same cores.
    rounds = [[each] for each in todos] if jobs == 1 else [list(todos)]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for together in rounds:
                for future in as_completed([pool.submit(train_one, each) for each in together]):
                    future.result()
                for each in (each for each in together if each.run.name not in failures):
                    do(_evaluate, each)
                    if each.run.name not in failures:
                        ended(each, "")
        except BaseException:
            # First of all, so that no run that waits takes the place of one that is ended.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return failures


def run_grid_on(
    engine: Engine, todos: Sequence[Todo], *, begun: Callable[[Todo], None], ended: Callable[[Todo, str], None]
) -> dict[str, str]:
    """As `run_grid`, elsewhere: each run is trained and scored in one go. `begun` is told of each that is submitted."""
    failures: dict[str, str] = {}
    submitted: dict[Future[str], Todo] = {}
    for each in todos:
        submitted[engine.submit(_train_and_evaluate, each)] = each
        begun(each)
    for future in as_completed(submitted):
        try:
            failure = engine.result(future)
        except RemedyError as error:
            failure = str(error)
        each = submitted[future]
        if failure:
            failures[each.run.name] = failure
        ended(each, failure)
    return failures


def _train_and_evaluate(each: Todo) -> str:
    processes = Processes()
    try:
        failure = _train(each, processes, None) if each.action == "train" else ""
        return failure or _evaluate(each, processes, None)
    except (OSError, RemedyError) as error:
        return str(error)


def _train(each: Todo, processes: Processes, echo: Echo | None) -> str:
    run = each.run
    result = train(processes, run.config, run.folder, gpu_id=run.gpu_id, code=run.code, echo=echo)
    if not result.failure:
        each.manifest.finish(MODEL)
    return result.failure


def _evaluate(each: Todo, processes: Processes, echo: Echo | None) -> str:
    run, data = each.run, digest(each.run.test)
    failure = evaluate(
        processes,
        run.folder,
        run.test,
        gold_preproc=run.gold_preproc,
        gpu_id=run.gpu_id,
        code=run.code,
        echo=echo,
    )
    if not failure:
        each.manifest.finish(METRICS, data)
        each.manifest.save()
    return failure


def _config(grid: Grid, corpus: str, system: str) -> Config:
    base = _find(grid.configs, corpus, "config")
    models = grid.configs / "models"
    names = [name for name in system.split("+") if name not in BASE_NAMES or (models / f"{name}.cfg").is_file()]
    config = compose(base, [_find(models, name, "overlay") for name in names], grid.settings).config
    config["paths"].update({part: str(grid.data / corpus / f"{part}.spacy") for part in ("train", "dev")})
    return config


def _run(grid: Grid, corpus: str, system: str, seed: int, composed: Config) -> GridRun:
    config = composed.copy()
    config["system"]["seed"] = seed
    reader = corpus_reader(config, "train_corpus")
    if config.interpolate()["training"]["seed"] != seed:
        raise ConfigError(f"{corpus}, {system}: the seed is fixed", "Let [training] have seed = ${system.seed}.")
    if reader.get("path") != config["paths"]["train"]:
        raise ConfigError(f"{corpus}, {system}: the data is fixed", "Let [corpora.train] have path = ${paths.train}.")
    return GridRun(
        name=f"{corpus}/{system}/{seed}",
        folder=grid.output / corpus / system / str(seed),
        config=config,
        test=grid.data / corpus / "test.spacy",
        gold_preproc=bool(reader.get("gold_preproc")),
        gpu_id=grid.gpu_id,
        code=grid.code,
    )


def _find(folder: Path, name: str, kind: str) -> Path:
    names = dict.fromkeys([*(BASE_NAMES if kind == "overlay" else ()), *names_in(folder)])
    return find_in(folder, name, kind, list(names), "--configs names another place.")
