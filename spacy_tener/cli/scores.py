"""Commands that score pipelines and compare runs: evaluate, table, plot."""

from __future__ import annotations

import json
import shlex
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy import displacy
from spacy.language import Language
from spacy.training import Example

from ..errors import RemedyError, check_choice, counted
from ..files import write_text
from ..pages import displacy_options
from ..pipeline.finding import known_labels
from ..workbench.docbins import NamingCorpus
from ..workbench.report.errors import compare_texts, errors_page, surest_errors
from ..workbench.report.plots import draw_convergence, draw_scores, draw_speed, draw_sweep, has_log
from ..workbench.report.rows import ScoreTable, make_table
from ..workbench.report.runs import FoundRuns, Run, find_runs, has_setting
from ..workbench.report.scores import CountingScorer, parse_scores, read_scores
from ..workbench.report.tables import FORMATS, format_table
from . import options
from ._common import check_file, command, load_pipeline, msg, names, refuse_given, setup_gpu

_WARMING = 16
# Kind of figure -> function that draws it, and the options that it takes.
KINDS: dict[str, tuple[Callable[..., object], set[str]]] = {
    "convergence": (draw_convergence, {"x", "metric", "y_min"}),
    "speed": (draw_speed, {"baseline"}),
    "scores": (draw_scores, {"metric", "published"}),
    "sweep": (draw_sweep, {"x", "by", "metric", "log_x"}),
}


def read_examples(nlp: Language, path: Path, *, gold_preproc: bool = False, limit: int | None = None) -> list[Example]:
    """Read the examples of a corpus. An empty corpus is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[W090\]")  # no files: an error below
        examples = list(islice(NamingCorpus(path, gold_preproc=gold_preproc)(nlp), limit))
    if not examples:
        raise RemedyError(f"{path}: there are no Docs in .spacy files", "Make them with `spacy tener convert`.")
    return examples


@command("evaluate")
def evaluate_cli(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="Pipeline: a package's name or a directory; or a JSON file of scores")],
    data: Annotated[
        Path | None, typer.Argument(help="A .spacy file, or a directory of them", exists=True, show_default=False)
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write")] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="HTML file to write: scores, confusion matrix, errors")
    ] = None,
    explained: Annotated[
        int, typer.Option("--explain", min=0, help="Number of texts with errors to explain, on a page beside --page")
    ] = 0,
    gold_preproc: Annotated[bool, typer.Option("--gold-preproc", "-G", help="Use gold preprocessing")] = False,
    displacy_path: Annotated[
        Path | None, typer.Option("--displacy-path", "-dp", help="Directory to write entities.html to")
    ] = None,
    displacy_limit: Annotated[
        int, typer.Option("--displacy-limit", "-dl", help="Most texts of entities.html", min=1)
    ] = 25,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Score a pipeline and count right, wrong and missed entities.

    Scores like `spacy evaluate`. The output has all scores of spaCy's scorer, `ents_counts` (true positives tp, false
    positives fp and false negatives fn by label) and `ents_counts_per_doc` (the same by document). From these counts
    `spacy tener table` computes exact scores of groups of labels (--named-nominal), and tests whether systems differ
    (--baseline).

    --page writes one HTML file that needs no network: scores, a confusion matrix, and all texts with their errors, to
    filter, sort and search. --explain 20 explains the 20 errors that the pipeline is surest of; the page links to the
    explanations. A page with scores only is made from a JSON file: tener evaluate metrics.json --page scores.html

    --displacy-path draws entities, which `spacy evaluate --displacy-path` does for the factory `ner` only.
    """
    for path in (output, page, displacy_path and displacy_path / "entities.html"):
        check_file(path)
    if explained and page is None:
        raise RemedyError("--explain: there is no page to link from", "Add --page errors.html.")
    if data is None:
        if page is not None:
            useless = ["output", "explained", "displacy_path", "displacy_limit", "gold_preproc", "gpu_id", "code"]
            refuse_given(ctx, useless, f"{model} has no texts, only scores", "Leave out all options but --page.")
        _write_scores(Path(model), page)
        return
    if displacy_path is None:
        refuse_given(ctx, ["displacy_limit"], "there is no directory to draw to", "Name one by --displacy-path.")
    setup_gpu(gpu_id)
    nlp = load_pipeline(model)
    examples = read_examples(nlp, data, gold_preproc=gold_preproc)
    # Warm up, so that loading a dictionary, say, does not count for the speed.
    deque(nlp.pipe(example.reference.text for example in examples[:_WARMING]), maxlen=0)
    scorer = CountingScorer(nlp)
    scores = nlp.evaluate(examples, scorer=scorer)
    if scores.get("ents_f") is None:
        if page is None:
            remedy = "Check that the data is annotated, and that the pipeline finds entities."
            raise RemedyError(f"{data}: no entities to score", remedy)
        msg.warn(f"{data}: no entities to score", "The page shows the entities found.")
    else:
        _print_scores(scores)
    msg.info(f"{scores['speed']:.0f} tokens per second")
    if output:
        # A line per score: indented JSON would put each of the many counts by document on its own line.
        lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in scores.items()]
        write_text(output, "{\n  " + ",\n  ".join(lines) + "\n}\n")
        msg.good(str(output))
    if page:
        _write_errors(page, nlp, model, data, scores, scorer.examples, explained)
    if displacy_path:
        docs = list(nlp.pipe(example.predicted for example in examples[:displacy_limit]))
        shown = displacy_options({ent.label_ for doc in docs for ent in doc.ents})
        drawn = displacy.render(docs, style="ent", page=True, jupyter=False, options=shown)
        write_text(displacy_path / "entities.html", drawn)
        msg.good(f"{displacy_path / 'entities.html'}: {counted(len(docs), 'text')}")


def _print_scores(scores: Mapping[str, Any]) -> None:
    gold = {label: each["tp"] + each["fn"] for label, each in scores["ents_counts"].items()}
    overall = {part: scores[f"ents_{part}"] for part in "prf"}
    shown = [("All", overall, sum(gold.values()))]
    shown += [(label, each, gold[label]) for label, each in sorted(scores["ents_per_type"].items())]
    rows = [(label, *(f"{100 * each[part]:.2f}" for part in "prf"), str(count)) for label, each, count in shown]
    msg.table(rows, header=("", "P", "R", "F1", "Entities"), aligns=("l", *"rrrr"), divider=True)


def _write_scores(path: Path, page: Path | None) -> None:
    """Write the page of the scores in a JSON file."""
    if page is None or path.suffix != ".json":
        raise RemedyError(
            f"{path}: there is no corpus to score on", "Name one after the pipeline; or a .json of scores and --page."
        )
    write_text(page, errors_page(f"Scores of {path.name}", read_scores(path), about=str(path)))
    msg.good(f"{page.resolve()}: scores only")


def _write_errors(
    page: Path,
    nlp: Language,
    model: str,
    data: Path,
    scores: Mapping[str, Any],
    examples: Sequence[Example],
    explained: int,
) -> None:
    """Write the page of errors, and the page of explanations beside it if any are asked for."""
    title = f"Errors on {'/'.join(data.with_suffix('').parts[-2:])}"
    compared = list(compare_texts(nlp, examples))
    texts = [(example.reference, pairs) for example, pairs in compared]
    numbers = surest_errors(texts, explained)
    why = page.with_name(f"{page.stem}-why.html")
    if numbers:
        from ..explain import explain  # here, as it is slow to import

        found = explain(nlp, [compared[number][0] for number in numbers])
        write_text(why, found.to_html(title=f"{title}, explained"))
        msg.good(f"{why.resolve()}: {counted(len(numbers), 'text')}")
    content = errors_page(
        title,
        None if scores.get("ents_f") is None else parse_scores(scores, data),
        texts,
        labels=known_labels(nlp),
        about=f"{model} on {data}, {counted(len(texts), 'text')}",
        lang=str(nlp.lang),
        explained=(why.name, numbers),
        review=f"python -m spacy tener review {shlex.join([model, str(data)])} --output reviewed",
    )
    write_text(page, content)
    wrong = sum(any(pair.is_error for pair in pairs) for _, pairs in texts)
    msg.good(f"{page.resolve()}: {counted(wrong, 'text')} with errors of {len(texts):,}")


@command("table", prints_result=True)
def table_cli(
    runs: options.Runs,
    metric: Annotated[str, typer.Option("--metric", "-m", help="Score to compare systems by: p, r, f")] = "f",
    by: Annotated[
        str, typer.Option(help="Group runs by these: corpus, system, settings of the config")
    ] = "corpus,system",
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", help="System to compare the others with")] = None,
    corpus: options.Corpora = "",
    system: options.Systems = "",
    per_label: Annotated[bool, typer.Option("--per-label", "-l", help="Report each label as well")] = False,
    named_nominal: Annotated[
        bool, typer.Option("--named-nominal", help="Report names (X.NAM) and nominal mentions (X.NOM) as well")
    ] = False,
    published: Annotated[bool, typer.Option(help="Add the rows that the papers printed")] = True,
    format: Annotated[
        str, typer.Option("--format", "-f", help=f"auto (by the output's ending), {', '.join(FORMATS)}")
    ] = "auto",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: print)")] = None,
) -> tuple[str, int]:
    """
    Make a table of runs: mean and deviation over seeds.

    A run is a directory CORPUS/SYSTEM/SEED, SEED a whole number. It holds `metrics.json`, the scores on test as `spacy
    tener evaluate --output` or `spacy evaluate --output` writes them, and `model-best`, which `spacy train --output`
    writes: its size, config.cfg and scores on dev are read (those of `metrics-dev.json`, if it exists). A run without
    metrics.json is listed as unfinished.

    --baseline adds each system's difference from the baseline, and its two-sided p-value: by a paired bootstrap over
    test documents and seeds together, or, for runs without the counts per document that `spacy tener evaluate` writes,
    by Welch's t-test over seeds, which needs scipy: pip install 'spacy_tener[stats]'. --named-nominal needs these
    counts too. --by takes the end of a setting's path (k for components.tener_ner.model.tok2vec.k); rows of papers are
    by corpus and system only. Runs that differ in more than seed and paths are not grouped.
    """
    if format == "auto":
        format = output.suffix.removeprefix(".") if output else "terminal"
        if format not in FORMATS:
            raise RemedyError(f"{output}: no format has this ending", f"Name one by --format: {', '.join(FORMATS)}.")
    check_file(output)
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
        msg.good(f"{output}: {counted(len(found.runs), 'run')}")
    return "" if output else text, 0 if found.runs else 1


def warn_left_out(found: FoundRuns) -> None:
    """Name directories that look like runs but are not, and the runs that are not finished."""
    msg.warn_list("Not runs, since they are not at CORPUS/SYSTEM/SEED", found.left_out)
    unfinished = [f"{each.name}: {each.reason}" for each in found.unfinished]
    msg.warn_list("Unfinished runs", unfinished, most=len(unfinished))


def warn_table(found: FoundRuns, table: ScoreTable) -> None:
    """Print the warnings about a table."""
    warn_left_out(found)
    for warning in table.warnings:
        msg.warn(warning)
    if not found.runs:
        msg.warn("No run is finished")


@command("plot")
def plot_cli(
    runs: options.Runs,
    kind: Annotated[str, typer.Option("--kind", "-k", help=", ".join(KINDS))],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .png or .svg")],
    x: Annotated[
        str | None, typer.Option("--x", "-x", help="convergence: step or epoch; sweep: a setting of the config")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="sweep: a line for each system, or for each value of settings (default: corpus)")
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="p, r or f (default); not for speed")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", help="speed: the system whose speed is 1")] = None,
    published: Annotated[bool | None, typer.Option(help="scores: show what the papers printed")] = None,
    log_x: Annotated[bool | None, typer.Option("--log-x", help="sweep: a logarithmic axis")] = None,
    y_min: Annotated[float | None, typer.Option("--y-min", help="convergence: where the y-axis begins")] = None,
    corpus: options.Corpora = "",
    system: options.Systems = "",
) -> None:
    """
    Draw the scores of many runs in one figure.

    `spacy tener table --help` describes runs. Needs matplotlib: pip install 'spacy_tener[plot]'

    convergence: scores on dev during training, from each run's training.jsonl; the mean over seeds with a band of one
    standard deviation as far as all seeds trained, thin lines beyond. speed: tokens per second on test, or with
    --baseline how many times that of one system. scores: each seed's score on test, mean and standard deviation, and
    printed rows. sweep: the score on test against a setting: its path, as in components.tener_ner.model.tok2vec.k, or
    the end of it, as in k.
    """
    values: dict[str, Any] = {"x": x, "by": names(by) if by else None, "metric": metric, "baseline": baseline}
    values |= {"published": published, "log_x": log_x, "y_min": y_min}
    given = {name: value for name, value in values.items() if value is not None}
    check_choice("kind of figure", kind, KINDS)
    draw, meaningful = KINDS[kind]
    if useless := sorted(set(given) - meaningful):
        shown = ", ".join("--" + name.replace("_", "-") for name in useless)
        raise RemedyError(f"{shown}: not an option of --kind {kind}", "Leave it out.")
    if kind == "sweep" and x is None:
        raise RemedyError("A sweep is drawn against a setting", "Name it by --x, as in --x k.")
    check_file(output)
    found = find_runs(runs).only(corpora=names(corpus), systems=names(system))
    warn_left_out(found)
    drawn = _drawable(kind, found, given)
    draw(drawn, output, **given)
    msg.good(f"{output}: {counted(len(drawn), 'run')}")


def _drawable(kind: str, found: FoundRuns, given: Mapping[str, Any]) -> list[Run]:
    """Return the finished runs that have what the figure is drawn from; name the others."""
    remedy = "Choose other runs, or another kind of figure."
    if kind == "convergence":
        needed, drawn = "training.jsonl", [run for run in found.runs if has_log(run)]
    elif kind == "speed":
        needed, drawn = "speed in metrics.json", [run for run in found.runs if run.test.speed is not None]
    else:
        settings = [*given.get("by", ()), given["x"]] if kind == "sweep" else []
        needed, drawn = " or ".join(settings), [run for run in found.runs if all(has_setting(run, s) for s in settings)]
        remedy = "Name settings of the runs' config.cfg by --x and --by."
    without = [run.name for run in found.runs if run not in drawn]
    msg.warn_list(f"Left out, without {needed}", without, most=len(without))
    if without and not drawn:
        raise RemedyError(f"There is nothing to draw: no run has {needed}", remedy)
    return drawn
