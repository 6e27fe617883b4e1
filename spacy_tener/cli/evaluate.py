"""The command `evaluate`, which scores a pipeline and writes HTML pages with its errors."""

from __future__ import annotations

import shlex
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from spacy import displacy
from spacy.language import Language
from spacy.training import Example

from ..corpora.docs import read_examples
from ..errors import UserError, pluralize
from ..evaluation.errors_page import Pair, errors_page, most_confident_errors, score_texts
from ..evaluation.scores import DOCS_KEY, INTERVAL_KEY, CountingScorer, score_rows, scores_json
from ..files import write_text
from ..pages import Heading, displacy_options
from ..pipeline.finding import (
    entity_finders,
    entity_labels,
    find_crf_pipe,
    is_uncalibrated,
    known_labels,
    overlap_groups,
    spancat_pipes,
)
from ..pipeline.scoring import nested_score_rows
from . import options
from ._common import CommandLineError, check_file, command, load_pipeline, msg, refuse_options, setup_gpu

ENTITIES_PAGE: Final = "entities.html"
_N_WARM_UP = 16  # Number of texts to process before the speed is measured.


@command("evaluate")
def evaluate_cli(
    ctx: typer.Context,
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="A .spacy file, or a directory of .spacy files")],
    output: Annotated[Path | None, options.output("a JSON file")] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Output path of an HTML page: scores, confusion matrix and errors")
    ] = None,
    explained: Annotated[
        int,
        typer.Option(
            "--explain",
            min=0,
            help="Number of texts with errors to explain on a second HTML page, saved next to --page",
        ),
    ] = 0,
    displacy_path: Annotated[
        Path | None,
        typer.Option("--displacy-path", "-dp", help="Output directory for displaCy pages with the predictions"),
    ] = None,
    displacy_limit: Annotated[
        int, typer.Option("--displacy-limit", "-dl", min=1, help="Maximum number of texts on the displaCy pages")
    ] = 25,
    gold_preproc: Annotated[
        bool, typer.Option("--gold-preproc", "-G", help="Use gold preprocessing (gold tokens and sentences)")
    ] = False,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Score a pipeline, and count its true positives, false positives and false negatives.

    The scores are the same as in `spacy evaluate`. The command also prints the 95 % confidence interval of F1, computed
    by a bootstrap over texts. It shows how much F1 could differ on other texts of the same kind. The output file
    contains all scores, the interval (`ents_f_interval`), and the counts tp, fp and fn for each label (`ents_counts`)
    and for each document (`ents_counts_per_doc`). Use the counts to score groups of labels, or to test whether the
    difference between two systems is significant.

    --page writes an HTML page with the scores, a confusion matrix, and all texts with errors, which can be filtered and
    searched. --explain 20 writes a second page, which explains the 20 texts with the most confident errors, that is,
    the wrong predictions with the highest probability. --displacy-path writes displaCy pages, as `spacy evaluate` does.
    """
    if displacy_path is None:
        refuse_options(
            ctx, ["displacy_limit"], "used only with --displacy-path", "Add --displacy-path pages, or remove {options}."
        )
    elif displacy_path.is_file():
        raise CommandLineError(f"--displacy-path {displacy_path}: is a file", "Use a directory.")
    shown = displacy_path and displacy_path / ENTITIES_PAGE
    outputs = [
        path for path in (output, page, _page_of_explanations(page) if page and explained else None, shown) if path
    ]
    for path in outputs:
        check_file(path, force)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise CommandLineError(
            "Two output files have the same path", "Choose another --output, --page or --displacy-path."
        )
    if explained and page is None:
        raise CommandLineError("--explain: requires --page", "Add --page errors.html.")
    setup_gpu(gpu_id)
    nlp = load_pipeline(model)
    for pipe in () if entity_finders(nlp) else spancat_pipes(nlp).values():
        fix = f"Use `python -m spacy evaluate {model} {data} --spans-key {pipe.key}`."
        raise UserError(
            f"{model}: predicts overlapping spans in doc.spans['{pipe.key}'], and no doc.ents to score", fix
        )
    if explained:
        find_crf_pipe(nlp)  # Raise an error early if no component can explain its entities.
    examples = read_examples(nlp, data, gold_preproc=gold_preproc)
    # Warm up, so that the measured speed doesn't include one-time costs such as loading a dictionary.
    deque(nlp.pipe(example.reference.text for example in examples[:_N_WARM_UP]), maxlen=0)
    compared: list[tuple[Example, list[Pair]]] = []
    if page:
        scores, compared = score_texts(nlp, examples)
    else:
        scores = nlp.evaluate(examples, scorer=CountingScorer(nlp))
    if scores.get("ents_f") is None:
        if page is None:
            fix = "Check that the data is annotated and that the pipeline predicts entities."
            raise UserError(f"{data}: no entities to score", fix)
        msg.warn(
            f"{data}: no entities to score",
            "Check that the data contains gold annotation. The page shows only the predicted entities.",
        )
    else:
        _print_scores(scores)
    msg.info(f"{scores['speed']:.0f} tokens per second")
    if output:
        write_text(output, scores_json(scores))
        msg.good(str(output))
    if displacy_path:
        texts = (example.reference.text for example in examples)
        for written in write_displacy(nlp, texts, displacy_path, title=model, limit=displacy_limit):
            msg.good(f"{written.resolve()}: {pluralize(min(len(examples), displacy_limit), 'text')}")
    if page:
        _write_errors(page, nlp, model, data, scores, compared, explained)


def _page_of_explanations(page: Path) -> Path:
    """Return the path of the page that explains errors: `errors-why.html` for the page `errors.html`."""
    return page.with_name(f"{page.stem}-why.html")


def _print_scores(scores: Mapping[str, Any]) -> None:
    """Print a table with the scores: overall, for each label, and for each nesting depth."""
    shown = [(label, score, tp + fn) for label, *score, (tp, _, fn) in score_rows(scores)]
    shown += nested_score_rows(scores)
    rows = [(label, *(f"{100 * part:.2f}" for part in score), str(count)) for label, score, count in shown]
    msg.table(rows, header=("", "P", "R", "F1", "Entities"), aligns=("l", *"rrrr"), divider=True)
    if interval := scores[INTERVAL_KEY]:
        low, high = (f"{100 * bound:.1f}" for bound in interval)
        n_texts = pluralize(len(scores[DOCS_KEY]), "text")
        msg.info(f"95 % confidence interval of F1: {low} to {high} (bootstrap over {n_texts})")


def _write_errors(
    page: Path,
    nlp: Language,
    model: str,
    data: Path,
    scores: Mapping[str, Any],
    compared: Sequence[tuple[Example, Sequence[Pair]]],
    explained: int,
) -> None:
    """Write the HTML page with errors, and the page that explains some errors.

    compared (Sequence[tuple[Example, Sequence[Pair]]]): Examples with their pairs of predicted and gold entities.
    explained (int): Number of texts to explain. If 0, the second page is not written.
    """
    name = "/".join(data.with_suffix("").parts[-2:])
    texts = [(example.reference, pairs) for example, pairs in compared]
    numbers = most_confident_errors(texts, explained)
    why = _page_of_explanations(page)
    if numbers:
        from ..explain import explain  # Imported here, because the import is slow.

        found = explain(nlp, [compared[number][0] for number in numbers])
        links = [f"{page.name}#text-{number}" for number in numbers]
        write_text(why, found.to_html(title="Errors on {data}, explained", values={"data": name}, links=links))
        msg.good(f"{why.resolve()}: {pluralize(len(numbers), 'text')}")
    values = {"data": name, "model": model, "path": str(data), "n": f"{len(texts):,}"}
    content = errors_page(
        Heading("Errors on {data}", "{model} on {path}, texts: {n}", values, is_uncalibrated(nlp)),
        None if scores.get("ents_f") is None else scores,
        texts,
        labels=known_labels(nlp),
        label_order=entity_labels(nlp),
        lang=str(nlp.lang),
        explained=(why.name, numbers),
        # `review` takes a single file, so that decisions can be applied to it.
        review=""
        if data.is_dir()
        else f"python -m spacy tener review {shlex.join([model, str(data)])} --output reviewed",
    )
    write_text(page, content)
    wrong = sum(any(pair.is_error for pair in pairs) for _, pairs in texts)
    msg.good(f"{page.resolve()}: {pluralize(wrong, 'text')} with errors, of {len(texts):,} texts")


def write_displacy(nlp: Language, texts: Iterable[str], folder: Path, *, title: str, limit: int) -> list[Path]:
    """Write displaCy pages for the first texts.

    `entities.html` shows the entities, `spans.html` the nested entities, and `parses.html` the dependency parses. The
    last two are written only if the pipeline predicts these annotations.

    limit (int): Maximum number of texts.
    RETURNS (list[Path]): Page paths.
    """
    docs = list(nlp.pipe(islice(texts, limit)))
    if not docs:
        return []
    docs[0].user_data["title"] = title
    options = displacy_options(entity_labels(nlp))
    pages: list[tuple[str, str, dict[str, Any]]] = [(ENTITIES_PAGE, "ent", options)]
    pages += [("spans.html", "span", {**options, "spans_key": key}) for key in overlap_groups(nlp).values()]
    if any(nlp.get_pipe_meta(name).factory == "parser" for name in nlp.pipe_names):
        pages.append(("parses.html", "dep", {"compact": True}))
    for name, style, style_options in pages:
        with warnings.catch_warnings():
            # displaCy warns about each text without entities.
            warnings.filterwarnings("ignore", r"\[W(006|117)\]")
            html = displacy.render(docs, style=style, page=True, options=style_options, jupyter=False)
        write_text(folder / name, html)
    return [folder / name for name, *_ in pages]
