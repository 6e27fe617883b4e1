"""`python -m spacy tener grid`"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code
from wasabi.printer import Printer

from ..files import locked
from ..workbench.composing.named import SHIPPED
from ..workbench.report.rows import make_table
from ..workbench.report.runs import METRICS, find_runs
from ..workbench.report.scores import read_metrics
from ..workbench.report.tables import render
from ..workbench.runs.engines import Engine
from ..workbench.runs.grid import LOCK, Grid, Todo, check_unchanged, plan, run_grid, run_grid_on, todo
from ..workbench.runs.processes import interrupted_by_signals
from ..workbench.runs.training import OUTPUT
from ._app import Code, GpuId, Settings, messages, names, numbers
from ._engines import Address, CpusPerRun, EngineName, GpusPerRun, gpu_of_runs, training_engine
from ._group import tener_cli
from .table import warn


@tener_cli.command("grid")
def grid_cli(
    output: Annotated[Path, typer.Argument(help="Where runs lie, as CORPUS/SYSTEM/SEED")],
    corpora: Annotated[str, typer.Option(help="Names of configs and data, as in weibo,resume")],
    systems: Annotated[str, typer.Option(help="Overlays, joined by +, as in tener,flat,flat+vectors,ner")],
    seeds: Annotated[str, typer.Option(help="Whole numbers")] = "1,2,3",
    data: Annotated[Path, typer.Option(help="Holds CORPUS/{train,dev,test}.spacy")] = Path("corpus"),
    configs: Annotated[
        Path | None, typer.Option(help="Holds CORPUS.cfg and models/OVERLAY.cfg (default: those of the package)")
    ] = None,
    settings: Settings = None,
    gpu_id: GpuId = -1,
    code: Code = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="How many are trained at once on this machine", min=1)] = 1,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train finished runs again where their config or data is another")
    ] = False,
    engine: EngineName = "local",
    address: Address = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
) -> None:
    """
    Train and score systems x corpora x seeds, and print their table.

    The config of a run is CORPUS.cfg with the overlays models/NAME.cfg that the system's name is made of; `tener` and
    `base` are the corpus' config as it is. Each run is trained by `spacy train`, chosen on dev, and scored on test by
    `spacy tener evaluate`, in processes of its own, which share the cores (OMP_NUM_THREADS, unless it is set). Several
    jobs are scored one after another when all are trained, so that their speeds compare. What they print is in the
    run's output.log, and with one job here too.

    Whatever ended the command, the same command goes on: finished runs are left alone, also without their model-best,
    and the run that was interrupted is trained again. Where a finished run was trained from another config or other
    data than is asked for, the command says what differs and trains nothing, unless --retrain is given. Where runs
    fail the others go on, and the exit status is 1.

    --engine ray hands all runs to a cluster of Ray, whose nodes see the same files: it chooses a node for each that has
    the cores and the part of a GPU asked for, and does a run again whose node is lost. Needs the extra ray.
    """
    import_code(code)
    stopped = "The same command goes on; it trains again what was being trained."
    with messages(on_stderr=True, stopped=stopped) as msg:
        grid = Grid(
            output=output,
            corpora=names(corpora),
            systems=names(systems),
            seeds=numbers("--seeds", seeds),
            data=data,
            configs=configs or SHIPPED,
            settings=settings or [],
            gpu_id=gpu_of_runs(gpu_id, engine, gpus_per_run),
            code=code,
        )
        runs = plan(grid)
        where = training_engine(engine, address, cpus_per_run, gpus_per_run)
        with locked(output / LOCK), where as elsewhere, interrupted_by_signals():
            failed = _run(msg, [todo(each) for each in runs], elsewhere or jobs, retrain=retrain)
        text = _table(msg, grid)
    typer.echo(text, nl=False)
    if failed:
        raise typer.Exit(1)


def _run(msg: Printer, todos: list[Todo], where: Engine | int, *, retrain: bool) -> bool:
    """Do what is left to do, elsewhere or with so many jobs here. Returns whether anything went wrong."""
    if not retrain:
        check_unchanged(todos)
    if done := [each.run.name for each in todos if each.action == "nothing"]:
        msg.info(f"Finished already: {len(done)} of {len(todos)}", ", ".join(done))
    left = [each for each in todos if each.action != "nothing"]
    if not left:
        msg.good("There is nothing to do")
    begun, ended = partial(_begun, msg), partial(_ended, msg)
    if isinstance(where, int):
        failures = run_grid(left, where, begun=begun, ended=ended, echo=sys.stderr.write)
    else:
        failures = run_grid_on(where, left, begun=begun, ended=ended)
    if failures:
        lines = [f"{each.run.name}: {each.run.folder / OUTPUT}" for each in left if each.run.name in failures]
        msg.fail(f"Failed: {len(failures)} of {len(todos)}", "\n".join(lines))
    return bool(failures)


def _begun(msg: Printer, each: Todo) -> None:
    doing = "scoring" if each.action == "evaluate" else "training again" if each.changes else "training"
    msg.info(f"{each.run.name}: {doing}", "\n".join(each.changes))


def _ended(msg: Printer, each: Todo, failure: str) -> None:
    if failure:
        msg.fail(f"{each.run.name}: {failure}")
    else:
        msg.good(f"{each.run.name}: F1 {100 * read_metrics(each.run.folder / METRICS).overall.f:.2f}")


def _table(msg: Printer, grid: Grid) -> str:
    found = find_runs([grid.output]).only(corpora=grid.corpora, systems=grid.systems)
    table = make_table(found)
    warn(msg, found, table)
    return render(table, "terminal")
