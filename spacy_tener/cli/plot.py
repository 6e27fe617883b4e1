"""`python -m spacy tener plot`"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from wasabi.printer import Printer

from ..errors import RemedyError, check_choice
from ..workbench.report.curves import has_log
from ..workbench.report.groups import has_value
from ..workbench.report.plots import draw_convergence, draw_scores, draw_speed, draw_sweep
from ..workbench.report.runs import Found, Run, find_runs
from ._app import Corpora, Runs, Systems, messages, names
from ._group import tener_cli
from .table import warn_left_out

# Each kind of figure, what draws it, and the options that mean something for it.
KINDS: dict[str, tuple[Callable[..., object], set[str]]] = {
    "convergence": (draw_convergence, {"x", "metric", "y_min"}),
    "speed": (draw_speed, {"baseline"}),
    "scores": (draw_scores, {"metric", "published"}),
    "sweep": (draw_sweep, {"x", "by", "metric", "log_x"}),
}


@tener_cli.command("plot")
def plot_cli(
    runs: Runs,
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
    corpus: Corpora = "",
    system: Systems = "",
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
    options = {"x": x, "by": by, "metric": metric, "baseline": baseline, "published": published, "log_x": log_x}
    given: dict[str, Any] = {name: value for name, value in {**options, "y_min": y_min}.items() if value is not None}
    with messages(on_stderr=True) as msg:
        _check(kind, given)
        found = find_runs(runs).only(corpora=names(corpus), systems=names(system))
        warn_left_out(msg, found)
        if by is not None:
            given["by"] = names(by)
        drawn = _with(msg, found, *_needed(kind, given))
        KINDS[kind][0](drawn, output, **given)
        msg.good(f"{output}: {len(drawn)} runs")


def _check(kind: str, given: dict[str, Any]) -> None:
    check_choice("kind of figure", kind, KINDS)
    useless = sorted(set(given) - KINDS[kind][1])
    if useless:
        options = ", ".join("--" + name.replace("_", "-") for name in useless)
        raise RemedyError(f"{options}: means nothing for a figure of {kind}", "Leave it out.")
    if kind == "sweep" and "x" not in given:
        raise RemedyError("A sweep is drawn against a setting", "Name it by --x, as in --x k.")


def _needed(kind: str, given: dict[str, Any]) -> tuple[str, Callable[[Run], bool], str]:
    """What a run must have to be drawn, and what to do where none has it."""
    other = "Choose other runs, or another kind of figure."
    if kind == "convergence":
        return "training.jsonl", has_log, other
    if kind == "speed":
        return "speed in metrics.json", lambda run: run.test.speed is not None, other
    settings = [*given.get("by", ()), given["x"]] if kind == "sweep" else []
    remedy = "Name settings of the runs' config.cfg by --x and --by."
    return " or ".join(settings), lambda run: all(has_value(run, name) for name in settings), remedy


def _with(msg: Printer, found: Found, what: str, has: Callable[[Run], bool], remedy: str) -> list[Run]:
    """The finished runs that have what the figure is drawn from; the others are named."""
    without = [run.name for run in found.runs if not has(run)]
    if without:
        msg.warn(f"Left out, without {what}: {len(without)}", ", ".join(without))
    if found.runs and len(without) == len(found.runs):
        raise RemedyError(f"There is nothing to draw: no run has {what}", remedy)
    return [run for run in found.runs if has(run)]
