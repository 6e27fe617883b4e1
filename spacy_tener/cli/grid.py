"""`python -m spacy tener grid`"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from wasabi.printer import Printer

from ..errors import RemedyError
from ..workbench.composing.files import ConfigError
from ..workbench.report import find_runs, make_table, render
from ..workbench.report.runs import METRICS
from ..workbench.report.scores import read_metrics
from ..workbench.runs.grid import Grid, Task, plan, task
from ..workbench.runs.jobs import Outcome, run_tasks
from ._app import Messages, fail, tener_cli
from .table import names, warn
from .train import INTERRUPTED, interruptible

_BEGINS = {
    "train": "training",
    "continue": "going on with its training",
    "anew": "training anew",
    "evaluate": "scoring",
}
_SHOWN = 5
_LAST_LINES = 3


@tener_cli.command("grid")
def grid_cli(
    output: Annotated[Path, typer.Argument(help="Where runs lie, as CORPUS/SYSTEM/SEED")],
    corpora: Annotated[str, typer.Option(help="Names of configs and data, as in weibo,resume")],
    systems: Annotated[str, typer.Option(help="Overlays, joined by +, as in tener,flat,flat+vectors,ner")],
    seeds: Annotated[str, typer.Option(help="Whole numbers")] = "1,2,3",
    data: Annotated[Path, typer.Option(help="Holds CORPUS/{train,dev,test}.spacy")] = Path("corpus"),
    configs: Annotated[Path, typer.Option(help="Holds CORPUS.cfg and models/OVERLAY.cfg")] = Path("configs"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="section.key=value, over all files; may be repeated")
    ] = None,
    gpu_id: Annotated[int, typer.Option("--gpu-id", "-g", help="GPU, or -1 for the CPU")] = -1,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="How many are trained at once", min=1)] = 1,
) -> None:
    """
    Train and score systems x corpora x seeds, and print their table.

    The config of a run is CONFIGS/CORPUS.cfg with the overlays CONFIGS/models/NAME.cfg that the system's name is made
    of; `tener` and `base` are the corpus' config as it is. Each run is trained by `spacy tener train`, chosen on dev,
    and scored on test by `spacy tener evaluate`, in processes of its own, which share the cores (OMP_NUM_THREADS,
    unless it is set). Several jobs are scored one after another when all are trained, so that their speeds compare.
    What they print is in the run's output.log, and with one job here too.

    Whatever ended the command, the same command goes on, in the midst of a training too. Runs that are finished are
    left alone, unless their config or data is another: then they are trained anew. Where runs fail the others go on,
    and the exit status is 1.
    """
    with redirect_stdout(sys.stderr):  # standard output is the table's
        msg = Messages()
        try:
            grid = Grid(output, names(corpora), names(systems), _numbers(seeds), data, configs, settings or [], gpu_id)
            failed = _run(msg, grid, jobs)
            text = _table(msg, grid)
        except RemedyError as error:
            fail(msg, error)
        except KeyboardInterrupt:
            msg.warn("Stopped", "The same command goes on from each training's last evaluation.")
            raise typer.Exit(INTERRUPTED) from None
    typer.echo(text, nl=False)
    if failed:
        raise typer.Exit(1)


def _numbers(text: str) -> list[int]:
    wrong = [name for name in names(text) if not name.isdecimal()]
    if wrong or not names(text):
        raise ConfigError(f"--seeds {text}: not whole numbers with commas between them", "Write --seeds 1,2,3.")
    return [int(name) for name in names(text)]


def _plan(grid: Grid) -> list[Task]:
    tasks = [task(cell) for cell in plan(grid)]
    if not tasks:
        raise ConfigError("There is nothing to train", "Name at least one corpus and one system.")
    return tasks


def _run(msg: Printer, grid: Grid, jobs: int) -> bool:
    """Do what is left to do. Returns whether anything went wrong."""
    tasks = _plan(grid)
    wanted = [each for each in tasks if each.kind != "nothing"]
    if done := [each.cell.name for each in tasks if each.kind == "nothing"]:
        msg.info(f"Finished already: {len(done)} of {len(tasks)}", ", ".join(done))
    with interruptible():
        outcomes = run_tasks(wanted, jobs, begun=partial(_begin, msg), ended=partial(_end, msg), echo=sys.stderr.write)
    failed = [outcome for outcome in outcomes if outcome.failure]
    if failed:
        lines = [f"{each.task.cell.name}: {each.failure}: {each.log}" for each in failed]
        msg.fail(f"Failed: {len(failed)} of {len(tasks)}", "\n".join(lines))
    elif not wanted:
        msg.good("There is nothing to do")
    return bool(failed)


def _begin(msg: Printer, each: Task) -> None:
    more = [f"... {len(each.why) - _SHOWN} more"] if len(each.why) > _SHOWN else []
    msg.info(f"{each.cell.name}: {_BEGINS[each.kind]}", "\n".join([*each.why[:_SHOWN], *more]))


def _end(msg: Printer, outcome: Outcome) -> None:
    name, folder = outcome.task.cell.name, outcome.task.cell.folder
    if outcome.failure:
        # Where a run's directory cannot be made, nothing was printed.
        printed = outcome.log.read_text(encoding="utf8", errors="replace") if outcome.log.is_file() else ""
        lines = printed.split("\n")
        last = [line for line in lines if line.strip()][-_LAST_LINES:]
        msg.fail(f"{name}: {outcome.failure}", "\n".join(last))
    else:
        msg.good(f"{name}: F1 {100 * read_metrics(folder / METRICS).overall.f:.2f}")


def _table(msg: Printer, grid: Grid) -> str:
    found = find_runs([grid.output]).only(corpora=grid.corpora, systems=grid.systems)
    table = make_table(found)
    warn(msg, found, table)
    return render(table, "terminal")
