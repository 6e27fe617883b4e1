"""The command `suggest`, which selects texts for annotation by active learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..annotate.answers import TEXT_COLUMN
from ..annotate.records import find_texts, stream_records
from ..corpora.tokenizers import blank_pipeline
from ..errors import UserError, pluralize
from ..files import write_text
from ..pipeline.finding import PipelineNER, crf_pipes, entity_labels, is_uncalibrated, overlap_groups
from ..pipeline.tokenizer import CharTokenizer
from ..review.active_learning import make_tasks, suggest
from ..review.annotation_tools import TOOLS
from ..review.page import (
    annotation_page,
)
from ..review.suspected_errors import describe_model
from . import options
from ._common import (
    CommandLineError,
    check_file,
    command,
    load_pipeline,
    msg,
    names,
    refuse_options,
    require_records,
    setup_gpu,
)

INTERFACE, BLANK = "-interface.xml", "blank:"
ANNOTATION_PAGE = "page"
# Default format for each output file suffix.
BY_ENDING = {".jsonl": "doccano", ".json": "labelstudio", ".html": ANNOTATION_PAGE}


@command("suggest")
def suggest_cli(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(help="Pipeline: a directory or an installed package; or blank:LANG if you have no pipeline")
    ],
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a file")],
    limit: Annotated[int, options.limit("selected from TEXTS")] = 200,
    format: Annotated[str | None, options.output_format((*TOOLS, ANNOTATION_PAGE))] = None,
    labels: Annotated[
        str,
        typer.Option(help="Labels, separated by commas, such as PER,ORG (default: the labels of MODEL)"),
    ] = "",
    annotated: Annotated[
        list[str] | None,
        typer.Option(help="File with texts that are already annotated, so they are not selected; may be repeated"),
    ] = None,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Select the texts that are most useful to annotate (active learning).

    The command selects texts with uncertain predictions (uncertainty sampling) that are not similar to each other
    (diversity sampling), without duplicates. The input may contain millions of texts. Each line in a text file is one
    text. Each record in a JSONL, CSV, Parquet or .spacy file is one text, and its id is kept.

    The output contains the texts with the predicted entities and their probabilities. It can be imported into doccano,
    Label Studio or Prodigy. To convert the finished annotation, use `tener convert`. The format `page` is an HTML
    page for annotation in a browser. Without --format, the output suffix determines the format: .jsonl for doccano,
    .json for Label Studio, .html for the page.

    If you have no trained pipeline, use blank:zh as MODEL. Texts are then selected by diversity only, and the output
    contains no predictions.
    """
    if format is None and (format := BY_ENDING.get(output.suffix)) is None:
        fix = f"Set --format to one of: {', '.join((*TOOLS, ANNOTATION_PAGE))}."
        raise CommandLineError(f"{output}: unknown format", fix)
    interface = output.with_name(f"{output.stem}{INTERFACE}")
    has_interface = format != ANNOTATION_PAGE and TOOLS[format].interface is not None
    for path in (output, interface if has_interface else None):
        check_file(path, force)
    blank = model.startswith(BLANK)
    if format != ANNOTATION_PAGE and not TOOLS[format].interface:
        refuse_options(
            ctx,
            ["labels"],
            f"{format} defines the labels in its project settings",
            "Remove {options}, and add the labels there.",
        )
    setup_gpu(gpu_id)
    nlp = blank_pipeline(model.removeprefix(BLANK)) if blank else load_pipeline(model)
    if not blank:
        PipelineNER.of(nlp)  # Report an error early if the pipeline has no `tener_ner`.
    shown = names(labels) or entity_labels(nlp)
    if has_interface and not shown:
        raise CommandLineError(f"{model} has no labels for the interface of {format}", "Add --labels, such as PER,ORG.")
    records = require_records(stream_records(find_texts(texts)[0]), texts)
    known_texts = [record[TEXT_COLUMN] for record in stream_records(find_texts(annotated or [])[0])]
    chosen = suggest(None if blank else nlp, records, limit, annotated=known_texts)
    if not chosen:
        raise UserError(
            "There are no texts to select, because all texts are empty or already annotated",
            "Use other texts, or remove files from --annotated.",
        )
    tasks = make_tasks(nlp, chosen, shown)
    if format == ANNOTATION_PAGE:
        sources = {"model": describe_model(nlp, model), "inputs": ", ".join(texts)}
        pipes = crf_pipes(nlp)
        page = annotation_page(
            tasks,
            shown,
            **sources,
            label_order=entity_labels(nlp),
            lang=str(nlp.lang),
            overlapping=not overlap_groups(nlp).keys().isdisjoint(pipes),
            uncalibrated=is_uncalibrated(nlp),
            characters=isinstance(nlp.tokenizer, CharTokenizer)
            or any(pipe.settings.view == "characters" for pipe in pipes.values()),
        )
        write_text(output, page)
        msg.good(f"{output.resolve()}: {pluralize(len(chosen), 'text')} to annotate in a browser")
    else:
        tool = TOOLS[format]
        write_text(output, tool.write(tasks))
        msg.good(f"{output}: {pluralize(len(chosen), 'text')} to annotate in {format}")
        if tool.interface:
            write_text(interface, tool.interface(shown))
            msg.info(f"{interface}: labelling interface to paste into the settings of the {format} project")
