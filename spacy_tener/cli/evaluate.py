"""`spacy tener evaluate`: scores and errors of a pipeline."""

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
from ..errors import RemedyError, counted
from ..evaluation.errors_page import Pair, errors_page, most_confident_errors, score_texts
from ..evaluation.scores import CountingScorer, score_rows, scores_json
from ..files import write_text
from ..pages import Heading, displacy_options
from ..pipeline.finding import entity_finders, entity_labels, find_crf_pipe, known_labels, overlap_groups, span_finders
from ..pipeline.scoring import nested_score_rows
from . import options
from ._common import CommandLineError, check_file, command, load_pipeline, msg, refuse_options, setup_gpu

ENTITIES_PAGE: Final = "entities.html"
_WARMING = 16


@command("evaluate")
def evaluate_cli(
    ctx: typer.Context,
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="A .spacy file, or a directory of them")],
    output: Annotated[Path | None, options.output("a JSON file")] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="HTML file to write: scores, confusion matrix, errors")
    ] = None,
    explained: Annotated[
        int, typer.Option("--explain", min=0, help="Number of texts with errors to explain, on a page beside --page")
    ] = 0,
    displacy_path: Annotated[
        Path | None, typer.Option("--displacy-path", "-dp", help="Directory for pages of displacy with what is found")
    ] = None,
    displacy_limit: Annotated[
        int, typer.Option("--displacy-limit", "-dl", min=1, help="Number of texts on the pages of displacy")
    ] = 25,
    gold_preproc: Annotated[bool, typer.Option("--gold-preproc", "-G", help="Use gold preprocessing")] = False,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Score a pipeline and count right, wrong and missed entities.

    Scores like `spacy evaluate`. The output has all scores of spaCy's scorer, `ents_counts` (true positives tp, false
    positives fp and false negatives fn by label) and `ents_counts_per_doc` (the same by document). From these counts
    follow exact scores of groups of labels, and tests whether two systems differ.

    --page writes one HTML file that needs no network: scores, a confusion matrix, and all texts with their errors, to
    filter, sort and search. --explain 20 explains the 20 errors that the pipeline is surest of; the page links to the
    explanations. --displacy-path writes the pages that `spacy evaluate` writes for `ner`, as entities.html.
    """
    if displacy_path is None:
        refuse_options(ctx, ["displacy_limit"], "there are no pages of displacy", "Add --displacy-path pages.")
    elif displacy_path.is_file():
        raise CommandLineError(f"--displacy-path {displacy_path}: is a file", "Name a directory.")
    shown = displacy_path and displacy_path / ENTITIES_PAGE
    for path in (output, page, _page_of_explanations(page) if page and explained else None, shown):
        check_file(path, force)
    if explained and page is None:
        raise CommandLineError("--explain: there is no page to link from", "Add --page errors.html.")
    setup_gpu(gpu_id)
    nlp = load_pipeline(model)
    for pipe in () if entity_finders(nlp) else span_finders(nlp).values():
        remedy = f"Score it by `python -m spacy evaluate {model} {data} --spans-key {pipe.key}`."
        raise RemedyError(f"{model}: its entities are in doc.spans['{pipe.key}'], and may overlap", remedy)
    if explained:
        find_crf_pipe(nlp)  # refuses, before any work, a pipeline whose entities cannot be explained
    examples = read_examples(nlp, data, gold_preproc=gold_preproc)
    # Warm up, so that loading a dictionary, say, does not count for the speed.
    deque(nlp.pipe(example.reference.text for example in examples[:_WARMING]), maxlen=0)
    compared: list[tuple[Example, list[Pair]]] = []
    if page:
        scores, compared = score_texts(nlp, examples)
    else:
        scores = nlp.evaluate(examples, scorer=CountingScorer(nlp))
    if scores.get("ents_f") is None:
        if page is None:
            remedy = "Check that the data is annotated, and that the pipeline finds entities."
            raise RemedyError(f"{data}: no entities to score", remedy)
        msg.warn(f"{data}: no entities to score", "The page shows the entities found.")
    else:
        _print_scores(scores)
    msg.info(f"{scores['speed']:.0f} tokens per second")
    if output:
        write_text(output, scores_json(scores))
        msg.good(str(output))
    if displacy_path:
        texts = (example.reference.text for example in examples)
        for written in write_displacy(nlp, texts, displacy_path, title=model, limit=displacy_limit):
            msg.good(f"{written.resolve()}: {counted(min(len(examples), displacy_limit), 'text')}")
    if page:
        _write_errors(page, nlp, model, data, scores, compared, explained)


def _page_of_explanations(page: Path) -> Path:
    return page.with_name(f"{page.stem}-why.html")


def _print_scores(scores: Mapping[str, Any]) -> None:
    shown = [(label, score, tp + fn) for label, *score, (tp, _, fn) in score_rows(scores)]
    shown += nested_score_rows(scores)
    rows = [(label, *(f"{100 * part:.2f}" for part in score), str(count)) for label, score, count in shown]
    msg.table(rows, header=("", "P", "R", "F1", "Entities"), aligns=("l", *"rrrr"), divider=True)


def _write_errors(
    page: Path,
    nlp: Language,
    model: str,
    data: Path,
    scores: Mapping[str, Any],
    compared: Sequence[tuple[Example, Sequence[Pair]]],
    explained: int,
) -> None:
    """Write the page of errors, and the page of explanations beside it if any are asked for."""
    name = "/".join(data.with_suffix("").parts[-2:])
    texts = [(example.reference, pairs) for example, pairs in compared]
    numbers = most_confident_errors(texts, explained)
    why = _page_of_explanations(page)
    if numbers:
        from ..explain import explain  # here, as it is slow to import

        found = explain(nlp, [compared[number][0] for number in numbers])
        links = [f"{page.name}#text-{number}" for number in numbers]
        write_text(why, found.to_html(title="Errors on {data}, explained", values={"data": name}, links=links))
        msg.good(f"{why.resolve()}: {counted(len(numbers), 'text')}")
    values = {"data": name, "model": model, "path": str(data), "n": f"{len(texts):,}"}
    content = errors_page(
        Heading("Errors on {data}", "{model} on {path}, texts: {n}", values),
        None if scores.get("ents_f") is None else scores,
        texts,
        labels=known_labels(nlp),
        label_order=entity_labels(nlp),
        lang=str(nlp.lang),
        explained=(why.name, numbers),
        review=f"python -m spacy tener review {shlex.join([model, str(data)])} --output reviewed",
    )
    write_text(page, content)
    wrong = sum(any(pair.is_error for pair in pairs) for _, pairs in texts)
    msg.good(f"{page.resolve()}: {counted(wrong, 'text')} with errors of {len(texts):,}")


def write_displacy(nlp: Language, texts: Iterable[str], folder: Path, *, title: str, limit: int) -> list[Path]:
    """Write a page of the entities of the first texts, one of those within others, and one of parses, as far as the
    pipeline finds these. Labels have the colours of this package's pages.

    RETURNS (list[Path]): The pages.
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
            warnings.filterwarnings("ignore", r"\[W(006|117)\]")  # a text without entities
            html = displacy.render(docs, style=style, page=True, options=style_options, jupyter=False)
        write_text(folder / name, html)
    return [folder / name for name, *_ in pages]
