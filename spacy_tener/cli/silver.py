"""The command `silver`, which annotates raw texts with trained pipelines, to use them as training data."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from ..annotate.records import find_texts, stream_records
from ..errors import pluralize
from ..files import check_folder, locked
from ..manifest import file_input
from ..pipeline.finding import entity_finders
from ..processes import interrupted_by_signals
from ..training.silver import (
    DEFAULT_THRESHOLD,
    SilverThresholds,
    check_teachers,
    manifest_inputs,
    unknown_labels,
    write_silver,
)
from . import options
from ._common import (
    CommandLineError,
    command,
    load_pipeline,
    msg,
    names,
    require_records,
    setup_gpu,
)


@command(
    "silver", stopped="Run the same command to resume after the last complete file, unless it reads standard input."
)
def silver_cli(
    teachers: Annotated[str, typer.Argument(help="Trained pipelines to annotate the texts with, separated by commas")],
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a directory for .spacy files")],
    entity_threshold: Annotated[
        float,
        options.fraction(
            "--entity-threshold", "Minimum probability for keeping a predicted entity", above=0.5, with_1=True
        ),
    ] = DEFAULT_THRESHOLD,
    outside_threshold: Annotated[
        float,
        options.fraction(
            "--outside-threshold",
            "Minimum probability for annotating a token as outside entities (tag O)",
            above=0.5,
            with_1=True,
        ),
    ] = DEFAULT_THRESHOLD,
    limit: Annotated[int | None, options.limit("default: all texts")] = None,
    part_size: options.PartSize = 5000,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Annotate raw texts with trained pipelines, to use them as training data (silver-standard data).

    Keeps entities with a probability of at least --entity-threshold. Tokens are annotated as outside entities (O)
    if the probability of O is at least --outside-threshold. All other tokens get missing annotation, which `tener_ner`
    supports in training.

    With several pipelines, the probabilities are averaged. Calibrate a `tener_ner` with `tener calibrate` first, so
    that its probabilities are reliable. Components other than `tener_ner` don't provide probabilities: their
    entities get the probability 1.

    Each line in a text file is one text. Each record in a JSONL, CSV, Parquet or .spacy file is one text, and its id
    is kept. To train on the output, use `spacy.Corpus.v1`. To combine the output with gold annotation, use
    `spacy_tener.MixedCorpus.v1`.

    If the command is stopped, run it again to resume after the last complete file. You cannot resume if the pipelines
    or the texts have changed, or if the texts come from standard input.
    """
    setup_gpu(gpu_id)
    check_folder(output)
    thresholds = SilverThresholds(entity_threshold, outside_threshold)
    pipelines = {name: load_pipeline(name) for name in names(teachers)}
    if not pipelines:
        raise CommandLineError("No pipeline given", "Pass at least one, such as teacher/model-best.")
    sources, left_out = find_texts(texts)
    msg.warn_list("Skipped files in unsupported formats", left_out, most=5)
    check_teachers(pipelines)
    silent = [name for name, teacher in pipelines.items() if not entity_finders(teacher)]
    if silent:
        fix = "Check that the pipeline predicts entities. Otherwise, all tokens are annotated as outside entities (O)."
        msg.warn(f"No component declares that it assigns doc.ents in the pipeline {', '.join(silent)}", fix)
    missing_labels = unknown_labels(pipelines)
    if missing_labels:
        lines = [f"{name} doesn't have {', '.join(labels)}" for name, labels in missing_labels.items()]
        msg.warn(
            "The pipelines have different labels. If a pipeline doesn't have a label, the label gets the probability 0",
            "\n".join(lines),
        )
    inputs = manifest_inputs(list(pipelines), list(pipelines.values()), sources)
    settings = {**inputs, "limit": limit, "code": file_input(code) if code else None}
    with closing(stream_records(sources)) as records:
        nonempty = require_records(records, texts)
        with interrupted_by_signals(), locked(output / ".lock"):
            total = write_silver(
                list(pipelines.values()),
                islice(nonempty, limit),
                output,
                thresholds,
                settings=settings,
                part_size=part_size,
            )
    missing = 100 * total.missing / max(1, total.tokens)
    summary = f"{pluralize(total.texts, 'text')}, {pluralize(total.entities, 'entity', 'entities')}"
    msg.good(f"{output}: {summary}, {missing:.1f} % of the tokens with missing annotation")
    if total.has_few_entities:
        n_kept = pluralize(total.entities, "entity", "entities")
        few = f"Only {n_kept} of about {total.expected:,.0f} expected entities were kept"
        fix = (
            "Lower --entity-threshold. This is often necessary for calibrated pipelines, because calibration often "
            "lowers probabilities."
            if entity_threshold > DEFAULT_THRESHOLD
            else "Raise --outside-threshold, so that fewer tokens are annotated as O."
        )
        msg.warn(few, f"A model that is trained on few entities and many O tokens has a low recall. {fix}")
