"""Commands that score pipelines and compare runs: evaluate, table, plot."""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example
from spacy.vocab import Vocab
from wasabi.printer import Printer

from ..errors import RemedyError, check_choice
from ..files import write_text
from ..workbench.docbins import read_docs
from ..workbench.report.plots import draw_convergence, draw_scores, draw_speed, draw_sweep, has_log
from ..workbench.report.rows import ScoreTable, make_table
from ..workbench.report.runs import FoundRuns, Run, find_runs, has_setting
from ..workbench.report.scores import CountingScorer
from ..workbench.report.tables import FORMATS, format_table
from . import tener_cli
from ._common import Code, Corpora, GpuId, Runs, Systems, load_pipeline, messages, names, setup_gpu

_WARMING = 16


class NamingCorpus(Corpus):
    """spaCy's reader of corpora, which here names the file that cannot be read."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        return (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))


def read_examples(nlp: Language, path: Path, *, gold_preproc: bool = False) -> list[Example]:
    """All that is annotated in a corpus, of which there must be something."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[W090\]")  # no files: said below
        examples = list(NamingCorpus(path, gold_preproc=gold_preproc)(nlp))
    if not examples:
        raise RemedyError(f"{path}: there are no Docs in .spacy files", "Make them with `spacy tener convert`.")
    return examples


@tener_cli.command("evaluate")
def evaluate_cli(
    model: Annotated[str, typer.Argument(help="Name or path of a pipeline")],
    data: Annotated[Path, typer.Argument(help="A .spacy file, or a directory of them", exists=True)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write")] = None,
    gold_preproc: Annotated[bool, typer.Option("--gold-preproc", "-G", help="Keep the tokens of the data")] = False,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Score a pipeline as `spacy evaluate` does, and store counts beside the scores.

    The output has all scores of spaCy's scorer and `ents_counts`: for each label how many entities were found and
    right (tp), found and wrong (fp), and missed (fn); and `ents_counts_per_doc`: these three of each document. With
    them `spacy tener table` takes labels together exactly (--named-nominal), which precision, recall and F1 by label do
    not allow, and tests whether systems differ (--baseline).
    """
    import_code(code)
    with messages() as msg:
        if output and output.is_dir():
            raise RemedyError(f"--output {output}: is a directory", "Name a file, as in -o metrics.json.")
        setup_gpu(gpu_id, silent=False)
        nlp = load_pipeline(model)
        examples = read_examples(nlp, data, gold_preproc=gold_preproc)
        # What a first text loads, such as a dictionary, is no part of the speed.
        deque(nlp.pipe(example.reference.text for example in examples[:_WARMING]), maxlen=0)
        scores = nlp.evaluate(examples, scorer=CountingScorer(nlp))
        if scores.get("ents_f") is None:
            raise RemedyError(f"{data}: no entities to score", "Are they annotated, and does the pipeline find any?")
        msg.table(_table(scores), header=("", "P", "R", "F1", "Entities"), aligns=("l", *"rrrr"), divider=True)
        msg.info(f"{scores['speed']:.0f} words per second")
        if output:
            write_text(output, _json(scores))
            msg.good(str(output))


def _json(scores: Mapping[str, Any]) -> str:
    """A line for each score: one for each number would make the counts of documents a long file."""
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in scores.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def _table(scores: Mapping[str, Any]) -> list[list[str]]:
    counts = {label: each["tp"] + each["fn"] for label, each in scores["ents_counts"].items()}
    overall = {part: scores[f"ents_{part}"] for part in "prf"}
    rows = [_row("All", overall, sum(counts.values()))]
    return rows + [_row(label, each, counts[label]) for label, each in sorted(scores["ents_per_type"].items())]


def _row(name: str, score: Mapping[str, float], gold: int) -> list[str]:
    return [name, *(f"{100 * score[part]:.2f}" for part in "prf"), str(gold)]


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
        text = format_table(table, _format(format, output))
        if output:
            write_text(output, text)
        warn(msg, found, table)
        if output:
            msg.good(f"{output}: {len(found.runs)} runs")
    if not output:
        typer.echo(text, nl=False)
    if not found.runs:
        raise typer.Exit(1)


def warn_left_out(msg: Printer, found: FoundRuns) -> None:
    """Name what looks like a run and is not taken for one, and the runs that are not finished."""
    _warn_list(msg, "Not runs, since they are not at CORPUS/SYSTEM/SEED", list(map(str, found.left_out)))
    _warn_list(msg, "Unfinished runs", [f"{each.name}: {each.reason}" for each in found.unfinished], all_of_them=True)


def warn(msg: Printer, found: FoundRuns, table: ScoreTable) -> None:
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
    return " or ".join(settings), lambda run: all(has_setting(run, name) for name in settings), remedy


def _with(msg: Printer, found: FoundRuns, what: str, has: Callable[[Run], bool], remedy: str) -> list[Run]:
    """The finished runs that have what the figure is drawn from; the others are named."""
    without = [run.name for run in found.runs if not has(run)]
    if without:
        msg.warn(f"Left out, without {what}: {len(without)}", ", ".join(without))
    if found.runs and len(without) == len(found.runs):
        raise RemedyError(f"There is nothing to draw: no run has {what}", remedy)
    return [run for run in found.runs if has(run)]
