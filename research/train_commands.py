"""Commands that train: grid, search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from spacy_tener.cli import options
from spacy_tener.cli._common import CommandLineError, msg, names
from spacy_tener.files import locked
from spacy_tener.processes import interrupted_by_signals
from spacy_tener.workbench.report.scores import read_scores
from spacy_tener.workbench.runs.training import METRICS_TEST, OUTPUT

from .app import command
from .grid import LOCK, Grid, Todo, check_unchanged, find_todo, plan, run_grid
from .on_ray import gpu_of_runs, training_engine
from .report_commands import warn_table
from .rows import make_table
from .runs import find_runs
from .search import SAMPLERS, Search, SearchPlan, TrialRow, open_search
from .search_space import find_space, read_space
from .tables import format_table

Base = Annotated[str, typer.Argument(help="Config: a name from the package, as weibo, or a path")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="Trainings at once (default: 1; on Ray as many as there is room for)", min=1),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Ray: address of the cluster (default: RAY_ADDRESS, this machine's, or a new one)"),
]
EngineName = Annotated[
    str, options.choice(("--engine",), "Where it runs, on this machine or on a Ray cluster", ("local", "ray"))
]
CpusPerRun = Annotated[float | None, typer.Option("--cpus-per-run", help="Ray: cores of a run (default: 1)", min=0)]
GpusPerRun = Annotated[
    float | None, typer.Option("--gpus-per-run", help="Ray: GPUs of a run, as 0.25 (default: 0)", min=0)
]
_SHOWN = 5
_WIDEST = 60


@command("grid", prints_result=True, stopped="The same command resumes; interrupted trainings begin again.")
def grid_cli(
    output: Annotated[Path, typer.Argument(help="Directory of runs, as CORPUS/SYSTEM/SEED")],
    corpora: Annotated[str, typer.Option(help="Names of configs and data, as in weibo,resume")],
    systems: Annotated[str, typer.Option(help="Overlays, joined by +, as in tener,flat,flat+vectors,ner")],
    seeds: Annotated[str, typer.Option(help="Seeds, as whole numbers")] = "1,2,3",
    data: Annotated[Path, typer.Option(help="Directory with CORPUS/{train,dev,test}.spacy")] = Path("corpus"),
    configs: Annotated[
        Path | None, typer.Option(help="Directory with CORPUS.cfg and models/OVERLAY.cfg of yours")
    ] = None,
    settings: options.Settings = None,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
    jobs: Jobs = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train finished runs again if their config or data changed")
    ] = False,
    engine: EngineName = "local",
    address: Address = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
) -> tuple[str, int]:
    """
    Train and score systems on corpora with several seeds.

    The config of a run is CORPUS.cfg with the overlays models/NAME.cfg named by the system; `tener` is the corpus'
    config as it is. Each run has its own processes: `spacy train`, which chooses the model on dev,
    and `spacy tener evaluate`, which scores it on test. They share the cores (OMP_NUM_THREADS, unless it is set). With
    several jobs, runs are scored one after another when all are trained, so that speeds are comparable. The run's
    output.log has its output, which is also printed with one job. At the end, the table of all runs is printed.

    The same command resumes after any interruption: it skips finished runs, even if their model-best was deleted, and
    trains the interrupted run again. If the config or data of a finished run changed, the command prints the difference
    and trains nothing, unless --retrain is given. If a run fails, the others continue, and the exit status is 1.

    --engine ray trains on a Ray cluster whose nodes share their files. Ray chooses a node with enough cores and GPU for
    each run, and repeats the runs of a lost node. Needs Ray.
    """
    grid = Grid(
        output=output,
        corpora=names(corpora),
        systems=names(systems),
        seeds=numbers("--seeds", seeds),
        data=data,
        configs=configs,
        settings=settings or [],
        gpu_id=gpu_of_runs(gpu_id, engine, gpus_per_run),
        code=code,
    )
    runs = plan(grid)
    where = training_engine(engine, address, cpus_per_run, gpus_per_run, jobs, on_ray_at_once=len(runs))
    with interrupted_by_signals(), locked(output / LOCK), where as trainer:
        todos = [find_todo(run) for run in runs]
        if not retrain:
            check_unchanged(todos)
        if finished := [todo.run.name for todo in todos if todo.action == "nothing"]:
            msg.info(f"Finished already: {len(finished)} of {len(todos)}", ", ".join(finished))
        remaining = [todo for todo in todos if todo.action != "nothing"]
        if not remaining:
            msg.good("There is nothing to do: all runs are finished")
        failures = run_grid(remaining, trainer, begun=_run_begun, ended=_run_ended)
        if failures:
            lines = [f"{todo.run.name}: {todo.run.folder / OUTPUT}" for todo in remaining if todo.run.name in failures]
            msg.fail(f"Failed: {len(failures)} of {len(todos)}", "\n".join(lines))
    found = find_runs([output]).only(corpora=grid.corpora, systems=grid.systems)
    table = make_table(found)
    warn_table(found, table)
    return format_table(table, "terminal"), 1 if failures else 0


def _run_begun(todo: Todo) -> None:
    doing = "scoring" if todo.action == "evaluate" else "training again" if todo.changes else "training"
    msg.info(f"{todo.run.name}: {doing}", "\n".join(todo.changes))


def _run_ended(todo: Todo, failure: str) -> None:
    if failure:
        msg.fail(f"{todo.run.name}: {failure}")
    else:
        msg.good(f"{todo.run.name}: F1 {100 * read_scores(todo.run.folder / METRICS_TEST).overall.f:.2f}")


@command("search", stopped="The same command resumes.")
def search_cli(
    base: Base,
    overlays: options.Overlays = None,
    *,
    space: Annotated[str, typer.Option("--space", help="Search space: a name, as mect, or a path")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the search")],
    trials: Annotated[int, typer.Option("--trials", "-n", min=1, help="Total number of trials of the search")],
    settings: options.Settings = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampler; trainings use the config's")] = 0,
    sampler: Annotated[str, options.choice(("--sampler",), "How settings are drawn", SAMPLERS)] = "random",
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps of each training (training.max_steps)")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Stop a training that is below the median of the others at the same step")
    ] = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the pipelines of all trials, not of the best one only")
    ] = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
    engine: EngineName = "local",
    address: Address = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
    jobs: Jobs = None,
) -> None:
    """
    Search for the settings that score best on dev.

    Samples settings and trains with `spacy train`. The config is composed as by `spacy tener config`, and the sampled
    settings override it. A search space is a config file with lists, ranges and formulas as values; those of the papers
    come with the package, by name: tener, tener-english, flat-atssa, mect. Scores are F1 on dev; test is never used.
    The config must name its corpora: --set paths.train=train.spacy --set paths.dev=dev.spacy

    Each trial has a directory with its config and its logs. trials.csv and trials.json list all trials, and best.cfg is
    the config of the best one, for `spacy train`. A failed training is recorded with its reason, and the search
    continues. The same command resumes after any interruption, and repeats the interrupted trial. More --trials extend
    a finished search.

    Needs optuna: pip install -r research/requirements.txt. Its database is study.db in the output. --sampler tpe
    samples near earlier good settings.

    --jobs trains several trials at once on this machine, --engine ray on a Ray cluster whose nodes share their files.
    Ray chooses a node with enough cores and GPU for each trial, and repeats the trials of a lost node. Needs
    Ray.
    """
    gpu_id = gpu_of_runs(gpu_id, engine, gpus_per_run)
    planned = SearchPlan(
        base=base,
        overlays=tuple(overlays or ()),
        settings=(*(settings or ()), *([] if steps is None else [f"training.max_steps={steps}"])),
        space=read_space(find_space(space)),
        seed=seed,
        sampler=sampler,
    )
    opened = open_search(planned, output, gpu_id=gpu_id, code=code, prune=prune, keep_models=keep_models)
    where = training_engine(engine, address, cpus_per_run, gpus_per_run, jobs)
    with interrupted_by_signals(), opened as search, where as trainer:
        before = [row for row in search.rows if row.state != "waiting"]
        ended = sum(row.ended for row in before)
        if before:
            interrupted = sum(row.state == "interrupted" for row in before)
            msg.info(f"{search.folder}: {ended} finished, {interrupted} interrupted")
        if ended >= trials:
            msg.good(f"There is nothing to do: {ended} of {trials} trials are finished")
        search.run(trials, trainer, lambda row: _trial_ended(row, search.best))
        _summarize(search)


def _trial_ended(row: TrialRow, best: TrialRow | None) -> None:
    so_far = "no score yet" if best is None else f"best {_percent(best.score)} (trial {best.number})"
    again = "" if row.again_of is None else f", again of {row.again_of}"
    line = f"Trial {row.number}{again}: {_percent(row.score)}, {row.state}, {row.seconds:.0f} s; {so_far}"
    if row.state == "failed":
        msg.warn(line, f"{row.reason}\n{_described(row.values)}")
    else:
        msg.text(f"{line}\n  {_described(row.values)}")


def _summarize(search: Search) -> None:
    failed = [f"{row.number}: {row.reason}" for row in search.rows if row.state == "failed"]
    msg.warn_list("Failed trials", failed, most=_SHOWN)
    best = search.best
    if best is None:
        msg.fail("No trial has a score", f"Their logs are in {search.folder / 'trials'}.", exits=1)
    rows = sorted((row for row in search.rows if row.state == "done"), key=lambda row: -(row.score or 0.0))
    msg.table(
        [(str(row.number), _percent(row.score), f"{row.seconds:.0f}", _described(row.values)) for row in rows[:_SHOWN]],
        header=("Trial", "F1 on dev", "Seconds", "Settings"),
        aligns=("r", "r", "r", "l"),
        divider=True,
        max_col=_WIDEST,
    )
    msg.good(f"{search.folder / 'best.cfg'}: trial {best.number}, F1 {_percent(best.score)} on dev")


def _described(values: Mapping[str, Any]) -> str:
    """Return settings as text, their names shortened to the last parts that keep them different."""
    shown = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in values.values())
    return "  ".join(f"{_short(name, list(values))}={value}" for name, value in zip(values, shown, strict=True))


def _short(name: str, names: Sequence[str]) -> str:
    parts = name.split(".")
    ends = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
    return next(end for end in ends if sum(f".{full_name}".endswith(f".{end}") for full_name in names) == 1)


def _percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.2f}"


def numbers(option: str, text: str) -> list[int]:
    """Split whole numbers at the commas between them."""
    if not names(text) or not all(name.isdecimal() for name in names(text)):
        raise CommandLineError(f"{option} {text}: not whole numbers with commas between them", f"Write {option} 1,2,3.")
    return [int(name) for name in names(text)]
