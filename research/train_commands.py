"""Commands that train: grid, search."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from wasabi.tables import table as terminal_table

from research.scores import read_scores
from spacy_tener.cli import options
from spacy_tener.cli._common import CommandLineError, msg, names
from spacy_tener.files import locked
from spacy_tener.nn.run import check_gpu
from spacy_tener.processes import interrupted_by_signals
from spacy_tener.training.config_files import ConfigError
from spacy_tener.training.runs import METRICS_TEST, OUTPUT, Processes

from .app import command
from .engines import on_this_machine
from .grid import LOCK, Grid, Todo, check_unchanged, find_todo, plan, run_grid
from .report_commands import warn_table
from .rows import make_table
from .runs import find_runs
from .search import BEST, REASON, Search, find_best, find_space, table
from .tables import format_table

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


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
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Trainings at once", min=1)] = 1,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train finished runs again if their config or data changed")
    ] = False,
) -> tuple[str, int]:
    """
    Train and score systems on corpora with several seeds.

    The config of a run is CORPUS.cfg with the overlays models/NAME.cfg that the system lists; `tener` is the config of
    the corpus without changes. Each run has its own processes: `spacy train`, which selects the model on the
    development set, and `spacy tener evaluate`, which scores it on the test set. They share the cores (OMP_NUM_THREADS,
    unless it is set). With several jobs, runs are scored sequentially after all training runs, so that speeds are
    comparable. The output is written to output.log in the directory of the run, and also printed if there is one job.
    At the end, the table of all runs is printed.

    The same command resumes after any interruption: it skips finished runs, even if their model-best was deleted, and
    restarts the interrupted run. If the config or data of a finished run changed, the command prints the difference and
    trains nothing, unless --retrain is given. If a run fails, the others continue, and the exit status is 1.
    """
    check_gpu(gpu_id)
    grid = Grid(
        output=output,
        corpora=names(corpora),
        systems=names(systems),
        seeds=numbers("--seeds", seeds),
        data=data,
        configs=configs,
        settings=settings or [],
        gpu_id=gpu_id,
        code=code,
    )
    runs = plan(grid)
    with interrupted_by_signals(), locked(output / LOCK), on_this_machine(jobs, sys.stderr.write) as trainer:
        todos = [find_todo(run) for run in runs]
        if not retrain:
            check_unchanged(todos)
        finished = [todo.run.name for todo in todos if todo.action == "nothing"]
        if finished:
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


def numbers(option: str, text: str) -> list[int]:
    """Parse a list of integers separated by commas."""
    if not names(text) or not all(name.isdecimal() for name in names(text)):
        raise CommandLineError(f"{option} {text}: not whole numbers with commas between them", f"Write {option} 1,2,3.")
    return [int(name) for name in names(text)]


@command("search", prints_result=True, stopped="The same command resumes.")
def search_cli(
    output: Annotated[Path, typer.Argument(help="Directory of the search")],
    corpus: Annotated[str, typer.Option(help="Name of a config and of its data, as weibo")],
    system: Annotated[str, typer.Option(help="Overlays, joined by +, as flat-atssa+sgd")],
    space: Annotated[str, typer.Option(help="Search space: a name in research/spaces, or a Python file")],
    trials: Annotated[int, typer.Option("--trials", "-n", help="Number of trials of the whole search", min=1)],
    data: Annotated[Path, typer.Option(help="Directory with CORPUS/{train,dev,test}.spacy")] = Path("corpus"),
    configs: Annotated[
        Path | None, typer.Option(help="Directory with CORPUS.cfg and models/OVERLAY.cfg of yours")
    ] = None,
    settings: options.Settings = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn, and of the trainings", min=0)] = 1,
    storage: Annotated[
        str | None, typer.Option(help="Address of a database, as optuna has it (default: a file in the output)")
    ] = None,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> tuple[str, int]:
    """
    Search at random for the settings that score best on the development set.

    Samples settings from a search space, trains with `spacy train`, and keeps the best pipeline and its config,
    best.cfg. Corpora and systems have the same names as for `grid`. The best trial is selected on the development set;
    the test set is not used. The search spaces of the papers are tener, tener-english, bilstm, idcnn, flat-atssa and
    mect. You can also write your own as a Python file.

    The same command resumes after any interruption: an interrupted trial is enqueued again, immediately after Ctrl-C,
    or a minute after kill -9. To share a search between processes, run the command several times at once. Together they
    train this number of trials; trials in progress are completed. Machines without a shared directory need a --storage
    that they can all access, and keep their own pipelines. Pass a larger number of --trials to extend a search. If a
    training run fails, the reason is recorded, and the search continues. Needs optuna.
    """
    check_gpu(gpu_id)
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ConfigError("A search needs optuna", "pip install -r research/requirements.txt") from error
    (run,) = plan(Grid(output, [corpus], [system], [seed], data, configs, settings or [], gpu_id, code))
    search = Search(replace(run, folder=output), find_space(space), seed, storage)
    with interrupted_by_signals():
        study = search.carry_on(trials, Processes(echo=sys.stderr.write), _trial_ended)
    header, rows = table(study)
    best = find_best(study)
    if best is None:
        msg.fail("No trial has a score", f"Their logs are in {output}.")
    else:
        msg.good(f"{output / BEST}: trial {best.number}, F1 {100 * best.values[0]:.2f} on dev")
    return terminal_table(rows, header, divider=True, aligns=["r"] * len(header)), 1 if best is None else 0


def _trial_ended(trial: FrozenTrial) -> None:
    drawn = ", ".join(f"{name} {value:.4g}" for name, value in trial.params.items())
    if trial.values is None:
        msg.fail(f"Trial {trial.number} ({drawn}): {trial.user_attrs[REASON]}")
    else:
        msg.good(f"Trial {trial.number} ({drawn}): F1 {100 * trial.values[0]:.2f} on dev")
