"""Commands that compare training runs in tables and figures: table, plot, attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from spacy_tener.cli import options
from spacy_tener.cli._common import CommandLineError, check_file, load_pipeline, msg, names
from spacy_tener.errors import UserError, pluralize
from spacy_tener.files import write_text

from .app import command
from .canvas import check_ending
from .plots import draw_convergence, draw_scores, draw_speed, draw_sweep, has_log
from .rows import ScoreTable, make_table
from .runs import FoundRuns, Run, find_runs
from .tables import FORMATS, format_table

Runs = Annotated[list[Path], typer.Argument(help="Directories that hold runs as CORPUS/SYSTEM/SEED")]
Corpora = Annotated[str, typer.Option("--corpus", help="Corpora to take, as in weibo,resume (default: all)")]
Systems = Annotated[str, typer.Option("--system", help="Systems to take, as in ner,tener (default: all)")]
# Kind of figure -> function that draws it, and the options that it takes.
KINDS: dict[str, tuple[Callable[..., object], set[str]]] = {
    "convergence": (draw_convergence, {"x", "metric", "y_min"}),
    "speed": (draw_speed, {"baseline"}),
    "scores": (draw_scores, {"metric", "published"}),
    "sweep": (draw_sweep, {"x", "metric"}),
}


@command("table", prints_result=True)
def table_cli(
    runs: Runs,
    metric: Annotated[str, options.choice(("--metric", "-m"), "Score to compare systems by", ("p", "r", "f"))] = "f",
    by: Annotated[
        str, typer.Option(help="Group runs by these: corpus, system, settings of the config")
    ] = "corpus,system",
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", help="System to compare the others with")] = None,
    corpus: Corpora = "",
    system: Systems = "",
    per_label: Annotated[bool, typer.Option("--per-label", "-l", help="Report each label as well")] = False,
    named_nominal: Annotated[
        bool, typer.Option("--named-nominal", help="Report names (X.NAM) and nominal mentions (X.NOM) as well")
    ] = False,
    published: Annotated[bool, typer.Option(help="Add the rows that the papers printed")] = True,
    format: Annotated[str, options.output_format(("auto", *FORMATS))] = "auto",
    output: Annotated[Path | None, options.output("a file (default: print)")] = None,
) -> tuple[str, int]:
    """
    Make a table of training runs: mean and standard deviation over seeds.

    A run is a directory CORPUS/SYSTEM/SEED, where SEED is an integer. It contains `metrics.json`, the test scores as
    written by `spacy tener evaluate --output` or `spacy evaluate --output`, and `model-best`, as written by `spacy
    train --output`, which is used for the size, the config and the scores on the development set (unless there is a
    `metrics-dev.json`). Runs without metrics.json are listed as unfinished.

    --baseline adds the difference between each system and the baseline, and its two-sided p-value. The p-value is
    computed by a paired bootstrap over test documents and seeds. If runs lack the counts per document that `spacy tener
    evaluate` writes, Welch's t-test over seeds is used instead, which needs scipy. --named-nominal needs these counts
    too. You can pass the end of a setting's path to --by (k for components.tener_ner.model.tok2vec.k). Published
    results are only shown for runs grouped by corpus and system. Runs that differ in more than seed and paths are not
    grouped.
    """
    if format == "auto":
        format = output.suffix.removeprefix(".") if output else "terminal"
        if format not in FORMATS:
            raise CommandLineError(
                f"{output}: no format has this ending", f"Name one by --format: {', '.join(FORMATS)}."
            )
    check_file(output, force=True)
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
    text = format_table(table, format)
    if output:
        write_text(output, text)
    warn_table(found, table)
    if output:
        msg.good(f"{output}: {pluralize(len(found.runs), 'run')}")
    return "" if output else text, 0 if found.runs else 1


def warn_left_out(found: FoundRuns) -> None:
    """Print warnings about directories that resemble runs but have a different path, and about unfinished runs."""
    msg.warn_list("Not runs, since they are not at CORPUS/SYSTEM/SEED", found.left_out)
    unfinished = [f"{run.name}: {run.reason}" for run in found.unfinished]
    msg.warn_list("Unfinished runs", unfinished, most=len(unfinished))


def warn_table(found: FoundRuns, table: ScoreTable) -> None:
    """Print the warnings of a table."""
    warn_left_out(found)
    for warning in table.warnings:
        msg.warn(warning)
    if not found.runs:
        msg.warn("No run is finished")


@command("plot")
def plot_cli(
    runs: Runs,
    kind: Annotated[str, options.choice(("--kind", "-k"), "Kind of figure", KINDS)],
    output: Annotated[Path, options.output("a file: .png, .webp or .svg")],
    x: Annotated[
        str | None, typer.Option("--x", "-x", help="convergence: step or epoch; sweep: a setting of the config")
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="p, r or f (default); not for speed")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", help="speed: the system whose speed is 1")] = None,
    published: Annotated[bool | None, typer.Option(help="scores: show what the papers printed")] = None,
    y_min: Annotated[float | None, typer.Option("--y-min", help="convergence: where the y-axis begins")] = None,
    corpus: Corpora = "",
    system: Systems = "",
) -> None:
    """
    Draw the scores of many training runs in one figure.

    `python -m research table --help` describes runs. Needs matplotlib.

    convergence: scores on the development set during training, from the training.jsonl of each run. Shows the mean over
        seeds with a band of one standard deviation, and thin lines for seeds that trained longer. speed: tokens per
        second on the test set, or relative to --baseline. scores: the test score of each seed, mean and standard
        deviation, and published results. sweep: the test score by a setting, given as its path
        (components.tener_ner.model.tok2vec.k) or the end of the path (k).
    """
    values: dict[str, Any] = {"x": x, "metric": metric, "baseline": baseline}
    values |= {"published": published, "y_min": y_min}
    arguments = {name: value for name, value in values.items() if value is not None}
    draw, meaningful = KINDS[kind]
    useless = sorted(set(arguments) - meaningful)
    if useless:
        shown = ", ".join("--" + name.replace("_", "-") for name in useless)
        raise CommandLineError(f"{shown}: not an option of --kind {kind}", "Leave it out.")
    if kind == "sweep" and x is None:
        raise CommandLineError("A sweep is drawn against a setting", "Name it by --x, as in --x k.")
    check_file(output, force=True)
    found = find_runs(runs).only(corpora=names(corpus), systems=names(system))
    warn_left_out(found)
    drawn = _drawable(kind, found)
    draw(drawn, output, **arguments)
    msg.good(f"{output}: {pluralize(len(drawn), 'run')}")


def _drawable(kind: str, found: FoundRuns) -> list[Run]:
    """Return the finished runs that have the data for a figure, and print a warning about the others."""
    if kind == "convergence":
        needed, drawn = "training.jsonl", [run for run in found.runs if has_log(run)]
    elif kind == "speed":
        needed, drawn = "speed in metrics.json", [run for run in found.runs if run.test.speed is not None]
    else:
        return list(found.runs)
    without = [run.name for run in found.runs if run not in drawn]
    msg.warn_list(f"Left out, without {needed}", without, most=len(without))
    if without and not drawn:
        raise UserError(
            f"There is nothing to draw: no run has {needed}", "Choose other runs, or another kind of figure."
        )
    return drawn


@command("attention")
def attention_cli(
    model: options.Model,
    text: Annotated[str, typer.Argument(help="A sentence")],
    output: Annotated[Path, options.output("a file: .png or .svg")],
    head: Annotated[int | None, typer.Option(help="Head to show, from 1 (default: as below)")] = None,
    component: options.Component = None,
    code: options.Code = None,
) -> None:
    """
    Draw attention maps of a sentence, as in the papers.

    Uses the last layer of the encoder. FLAT-ATSSA: the selected attention of the head with the largest attention
    between characters of entities (Figure 9). MECT: the attention of both streams from characters to characters and,
    right of a line, to words, averaged over heads (Figure 4). FLAT has a single stream. GRN: the norms of r_ij for the
    words of entities, scaled to the range from 0 to 1 (Figure 4). Needs matplotlib and a font with the characters of
    the sentence.
    """
    from .attention import draw_attention

    check_ending(output)
    check_file(output, force=True)
    found = draw_attention(load_pipeline(model), text, output, head=head, name=component)
    entities = ", ".join(f"{ent.text} {ent.label_}" for ent in found.doc.ents)
    msg.good(f"{output}: {entities or 'no entity is found'}")
