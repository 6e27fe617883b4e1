"""`python -m spacy tener table`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from wasabi.printer import Printer

from ..errors import RemedyError
from ..files import write_text
from ..workbench.report.rows import ScoreTable, make_table
from ..workbench.report.runs import Found, find_runs
from ..workbench.report.tables import FORMATS, render
from ._app import Corpora, Runs, Systems, messages, names
from ._group import tener_cli

_SHOWN = 10


@tener_cli.command("table")
def table_cli(
    runs: Runs,
    metric: Annotated[str, typer.Option("--metric", "-m", help="Score to compare systems by: p, r, f")] = "f",
    by: Annotated[
        str, typer.Option(help="What runs share that are taken together: corpus, system, settings of the config")
    ] = "corpus,system",
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", help="System to compare the others with")] = None,
    corpus: Corpora = "",
    system: Systems = "",
    per_label: Annotated[bool, typer.Option("--per-label", "-l", help="Report each label as well")] = False,
    named_nominal: Annotated[
        bool, typer.Option("--named-nominal", help="Report names (X.NAM) and nominal mentions (X.NOM) as well")
    ] = False,
    published: Annotated[bool, typer.Option(help="Set rows that the papers printed beside ours")] = True,
    format: Annotated[
        str, typer.Option("--format", "-f", help=f"auto (by the output's ending), {', '.join(FORMATS)}")
    ] = "auto",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: print)")] = None,
) -> None:
    """
    Gather runs into one table: mean and standard deviation over seeds.

    A run is a directory CORPUS/SYSTEM/SEED, SEED a whole number. `metrics.json` in it holds the scores on test, as
    `spacy tener evaluate --output` or `spacy evaluate --output` writes them; `model-best` is what `spacy train
    --output` leaves there: its size, config.cfg and scores on dev are read (`metrics-dev.json` goes before the latter).
    A run without metrics.json is listed as unfinished.

    --baseline adds each system's difference to that system and its two-sided probability under no difference: by a
    paired bootstrap over test documents and seeds together, or, for runs without the counts per document that `spacy
    tener evaluate` writes, by Welch's t-test over seeds, which needs scipy: pip install 'spacy_tener[plot]'.
    --named-nominal needs such counts. --by takes the end of a setting's path (k for
    components.tener_ner.model.tok2vec.k); printed rows are given by corpus and system only. Runs that differ in more
    than their seed and their paths are not taken together.
    """
    with messages(on_stderr=True) as msg:
        found = find_runs(runs).only(corpora=names(corpus), systems=names(system))
        table = make_table(
            found,
            by=names(by),
            metric=metric,
            baseline=baseline,
            per_label=per_label,
            named_nominal=named_nominal,
            printed=published,
        )
        text = render(table, _format(format, output))
        if output:
            write_text(output, text)
        warn(msg, found, table)
        if output:
            msg.good(f"{output}: {len(found.runs)} runs")
    if not output:
        typer.echo(text, nl=False)
    if not found.runs:
        raise typer.Exit(1)


def warn_left_out(msg: Printer, found: Found) -> None:
    """Name what looks like a run and is not taken for one, and the runs that are not finished."""
    _warn_list(msg, "Not runs, since they are not at CORPUS/SYSTEM/SEED", list(map(str, found.left_out)))
    _warn_list(msg, "Unfinished runs", [f"{each.name}: {each.reason}" for each in found.unfinished], all_of_them=True)


def warn(msg: Printer, found: Found, table: ScoreTable) -> None:
    warn_left_out(msg, found)
    for warning in table.warnings:
        msg.warn(warning)
    if not found.runs:
        msg.warn("No run is finished")


def _warn_list(msg: Printer, what: str, lines: Sequence[str], *, all_of_them: bool = False) -> None:
    if lines:
        shown = lines if all_of_them else lines[:_SHOWN]
        more = [f"... {len(lines) - len(shown)} more"] if len(lines) > len(shown) else []
        msg.warn(f"{what}: {len(lines)}", "\n".join([*shown, *more]))


def _format(format: str, output: Path | None) -> str:
    if format != "auto":
        return format
    if output is None:
        return "terminal"
    ending = output.suffix.removeprefix(".")
    if ending not in FORMATS:
        raise RemedyError(f"{output}: no format has this ending", f"Name one by --format: {', '.join(FORMATS)}.")
    return ending
