"""`python -m spacy tener search`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code
from wasabi.printer import Printer

from ..workbench.composing.named import find_space
from ..workbench.composing.search_space import read_space
from ..workbench.runs.engines import Engine
from ..workbench.runs.processes import interrupted_by_signals
from ..workbench.runs.search import SAMPLERS, Plan, Search, open_search
from ..workbench.runs.trials import TrialRow
from ._app import Code, GpuId, Settings, messages
from ._engines import Address, CpusPerRun, EngineName, GpusPerRun, gpu_of_runs, training_engine
from ._group import tener_cli

_SHOWN = 5
_WIDEST = 60


@tener_cli.command("search")
def search_cli(
    base: Annotated[str, typer.Argument(help="A config, as of a corpus: weibo, or the path of a file")],
    overlays: Annotated[
        list[str] | None, typer.Argument(help="Overlays, as of models: mect, or paths of files")
    ] = None,
    *,
    space: Annotated[str, typer.Option("--space", help="What to draw from: mect, or the path of a file")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the search")],
    trials: Annotated[int, typer.Option("--trials", "-n", min=1, help="How many trials the search is to have in all")],
    settings: Settings = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Start of what is drawn; the trainings have the config's")
    ] = 0,
    sampler: Annotated[str, typer.Option("--sampler", help=" or ".join(SAMPLERS))] = "random",
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps of each training (training.max_steps)")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Stop a training that is below the median of the others at the same step")
    ] = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the pipelines of all trials, not of the best one only")
    ] = False,
    gpu_id: GpuId = -1,
    code: Code = None,
    engine: EngineName = "local",
    address: Address = None,
    cpus_per_run: CpusPerRun = None,
    gpus_per_run: GpusPerRun = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="With --engine ray: how many at once (default: as many as fit now)"),
    ] = None,
) -> None:
    """
    Search settings: draw them, train with `spacy train`, and keep what is best on dev.

    The config is put together as by `spacy tener config`, with what is drawn on top. A space is a file with lists to
    choose from, ranges and formulas at the places of settings; those of the papers come with the package, by name:
    tener, tener-english, flat-atssa, mect. Scores are F1 on dev; test is never looked at. The config must name its
    corpora: --set paths.train=train.spacy --set paths.dev=dev.spacy

    Each trial has a directory with its config and its logs. trials.csv and trials.json have all of them, and best.cfg
    is the best one's config for `spacy train`. A training that fails is kept, with the reason, and the search goes on.
    The same command goes on with a search, whatever ended it: the trial that was interrupted is done again. With more
    --trials a finished search goes on as well.

    Needs optuna: pip install 'spacy_tener[search]'. DIR/study.db is its database. --sampler tpe draws near what was
    good before.

    --engine ray trains several trials at once on a cluster of Ray, whose nodes see the same files: each on a node that
    has the cores and the part of a GPU asked for, and again where its node is lost. Needs the extra ray.
    """
    import_code(code)
    with messages(stopped="The same command goes on.") as msg:
        gpu_id = gpu_of_runs(gpu_id, engine, gpus_per_run)
        plan = Plan(
            base=base,
            overlays=tuple(overlays or ()),
            settings=(*(settings or ()), *([] if steps is None else [f"training.max_steps={steps}"])),
            space=read_space(find_space(space)),
            seed=seed,
            sampler=sampler,
        )
        opened = open_search(plan, output, gpu_id=gpu_id, code=code, prune=prune, keep_models=keep_models)
        where = training_engine(engine, address, cpus_per_run, gpus_per_run, jobs)
        with opened as search, where as elsewhere, interrupted_by_signals():
            _run(msg, search, trials, elsewhere)


def _run(msg: Printer, search: Search, trials: int, elsewhere: Engine | None) -> None:
    before = [row for row in search.rows if row.state != "waiting"]
    ended = sum(row.ended for row in before)
    if before:
        interrupted = sum(row.state == "interrupted" for row in before)
        msg.info(f"{search.folder}: {ended} trials are there, and {interrupted} that were interrupted")
    if ended >= trials:
        msg.good(f"Nothing to do: {ended} of {trials} trials are there")
    search.run(trials, lambda row: _say(msg, row, search.best), elsewhere)
    _summary(msg, search)


def _say(msg: Printer, row: TrialRow, best: TrialRow | None) -> None:
    so_far = "no score yet" if best is None else f"best {_percent(best.score)} (trial {best.number})"
    again = "" if row.again_of is None else f", again of {row.again_of}"
    line = f"Trial {row.number}{again}: {_percent(row.score)}, {row.state}, {row.seconds:.0f} s; {so_far}"
    if row.state == "failed":
        msg.warn(line, f"{row.reason}\n{_described(row.values)}")
    else:
        msg.text(f"{line}\n  {_described(row.values)}")


def _summary(msg: Printer, search: Search) -> None:
    failed = [row for row in search.rows if row.state == "failed"]
    if failed:
        msg.warn(f"Failed trials: {len(failed)}", "\n".join(f"{row.number}: {row.reason}" for row in failed[:_SHOWN]))
    best = search.best
    if best is None:
        msg.fail("No trial has a score", f"Their logs are in {search.folder / 'trials'}.", exits=1)
    rows = sorted((row for row in search.rows if row.state == "done"), key=lambda row: -(row.score or 0.0))
    table = [
        (str(row.number), _percent(row.score), f"{row.seconds:.0f}", _described(row.values)) for row in rows[:_SHOWN]
    ]
    msg.table(
        table,
        header=("Trial", "F1 on dev", "Seconds", "Settings"),
        aligns=("r", "r", "r", "l"),
        divider=True,
        max_col=_WIDEST,
    )
    msg.good(f"{search.folder / 'best.cfg'}: trial {best.number}, F1 {_percent(best.score)} on dev")


def _described(values: Mapping[str, Any]) -> str:
    """Settings by the last parts of their names, as many as tell them apart."""
    names = _short(list(values))
    return "  ".join(f"{names[name]}={_shown(value)}" for name, value in values.items())


def _short(names: Sequence[str]) -> dict[str, str]:
    short: dict[str, str] = {}
    for name in names:
        parts = name.split(".")
        ends = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
        short[name] = next(end for end in ends if sum(f".{other}".endswith(f".{end}") for other in names) == 1)
    return short


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.2f}"
