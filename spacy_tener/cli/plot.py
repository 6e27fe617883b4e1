"""`python -m spacy tener plot`"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from wasabi.printer import Printer

from ..errors import RemedyError
from ..workbench.report import (
    Found,
    ReportError,
    Run,
    draw_convergence,
    draw_scores,
    draw_speed,
    draw_sweep,
    find_runs,
    has_log,
    has_value,
)
from ._app import fail, tener_cli
from .table import names, warn_left_out

# Each kind of figure, and the options that mean something for it.
KINDS = {
    "convergence": {"x", "metric", "y_min"},
    "speed": {"baseline"},
    "scores": {"metric", "published"},
    "sweep": {"x", "by", "metric", "log_x"},
}


@dataclass(frozen=True)
class _Figure:
    """What is asked for; None where nothing is said."""

    kind: str
    output: Path
    x: str | None
    by: str | None
    metric: str | None
    baseline: str | None
    published: bool | None
    log_x: bool | None
    y_min: float | None


@tener_cli.command("plot")
def plot_cli(
    runs: Annotated[list[Path], typer.Argument(help="Directories with runs CORPUS/SYSTEM/SEED in them")],
    kind: Annotated[str, typer.Option("--kind", "-k", help=", ".join(KINDS))],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .png or .svg")],
    x: Annotated[
        str | None, typer.Option("--x", "-x", help="convergence: step or epoch; sweep: a setting of the config")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="sweep: what a line stands for: system, settings (default: all of a corpus)")
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="p, r or f (default); not for speed")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", help="speed: the system that is 1")] = None,
    published: Annotated[bool | None, typer.Option(help="scores: show what the papers printed")] = None,
    log_x: Annotated[bool | None, typer.Option("--log-x", help="sweep: a logarithmic axis")] = None,
    y_min: Annotated[float | None, typer.Option("--y-min", help="convergence: where the y-axis begins")] = None,
    corpus: Annotated[str, typer.Option(help="Corpora to draw, as in weibo,resume (default: all)")] = "",
    system: Annotated[str, typer.Option(help="Systems to draw, as in ner,tener (default: all)")] = "",
) -> None:
    """
    Draw many runs in one figure. Runs lie on disk as `spacy tener table --help` says. Needs matplotlib:
    pip install 'spacy_tener[plot]'

    convergence: scores on dev during training, from each run's training.jsonl; the mean over seeds with a band of one
    standard deviation as far as all seeds trained, thin lines beyond. speed: words per second on test, or with
    --baseline how many times that of one system. scores: each seed's score on test, mean and standard deviation, and
    printed rows. sweep: the score on test against a setting: its path, as in components.tener_ner.model.tok2vec.k, or
    the end of it, as in k.
    """
    figure = _Figure(kind, output, x, by, metric, baseline, published, log_x, y_min)
    with redirect_stdout(sys.stderr):
        msg = Printer()
        try:
            _check(figure)
            found = find_runs(runs).only(corpora=names(corpus), systems=names(system))
            warn_left_out(msg, found)
            drawn = _draw(msg, found, figure)
        except RemedyError as error:
            fail(msg, error)
        msg.good(f"{output}: {drawn} runs")


def _check(figure: _Figure) -> None:
    if figure.kind not in KINDS:
        raise ReportError(f"Unknown kind of figure '{figure.kind}'", f"Use one of: {', '.join(KINDS)}.")
    given = {name for name, value in vars(figure).items() if value is not None} - {"kind", "output"}
    useless = sorted(given - KINDS[figure.kind])
    if useless:
        options = ", ".join("--" + name.replace("_", "-") for name in useless)
        raise ReportError(f"{options}: means nothing for a figure of {figure.kind}", "Leave it out.")
    if figure.kind == "sweep" and figure.x is None:
        raise ReportError("A sweep is drawn against a setting", "Name it by --x, as in --x k.")


def _draw(msg: Printer, found: Found, figure: _Figure) -> int:
    """Draw what is asked for, and say of how many runs."""
    metric = figure.metric or "f"
    if figure.kind == "convergence":
        runs = _with(msg, found, "training.jsonl", has_log)
        draw_convergence(runs, figure.output, x=figure.x or "step", metric=metric, y_min=figure.y_min)
    elif figure.kind == "speed":
        runs = _with(msg, found, "speed in metrics.json", lambda run: run.test.speed is not None)
        draw_speed(runs, figure.output, baseline=figure.baseline)
    elif figure.kind == "scores":
        runs = list(found.runs)
        draw_scores(runs, figure.output, metric=metric, printed=figure.published is not False)
    else:
        x = str(figure.x)
        by = names(figure.by or "")
        runs = _with(msg, found, " or ".join([*by, x]), lambda run: all(has_value(run, name) for name in (*by, x)))
        draw_sweep(runs, figure.output, x=x, by=by, metric=metric, log=bool(figure.log_x))
    return len(runs)


def _with(msg: Printer, found: Found, what: str, has: Callable[[Run], bool]) -> list[Run]:
    """The finished runs that have what the figure is drawn from; the others are named."""
    without = [run.name for run in found.runs if not has(run)]
    if without:
        msg.warn(f"Left out, without {what}: {len(without)}", ", ".join(without))
    return [run for run in found.runs if has(run)]
