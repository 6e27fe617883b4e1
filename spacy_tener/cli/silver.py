"""`spacy tener silver`: training data from raw text, by trained pipelines."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from ..annotate.records import find_texts, stream_records
from ..errors import counted
from ..files import check_folder, locked
from ..manifest import file_input
from ..pipeline.finding import entity_finders
from ..processes import interrupted_by_signals
from ..training.silver import (
    DEFAULT_SURENESS,
    Sureness,
    check_teachers,
    made_of,
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
    not_empty,
    setup_gpu,
)


@command("silver", stopped="The same command resumes after the last whole file, unless it reads standard input.")
def silver_cli(
    teachers: Annotated[str, typer.Argument(help="Pipelines that find entities, separated by commas")],
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a directory of files")],
    sure: Annotated[
        float, options.share("--sure", "Minimum probability of the entities to keep", above=0.5, with_1=True)
    ] = DEFAULT_SURENESS,
    outside: Annotated[
        float,
        options.share("--outside", "Minimum probability of the tokens to keep as outside", above=0.5, with_1=True),
    ] = DEFAULT_SURENESS,
    limit: Annotated[int | None, options.limit("to annotate; default: all")] = None,
    part_size: options.PartSize = 5000,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Annotate raw text by trained pipelines, as training data.

    Keeps entities with a probability of at least --sure, and tokens that are outside of entities with a probability of
    at least --outside. All other tokens have missing annotation, which `tener_ner` learns as such. With several
    teachers, the mean of their probabilities counts. `tener_ner` gives probabilities (`spacy tener calibrate` corrects
    them); entities of other components have the probability 1.

    Each line of a text file is a text. A record of JSONL, CSV or a .spacy file stays whole, and keeps its id.
    `spacy.Corpus.v1` reads the output; `spacy_tener.MixedCorpus.v1` mixes it with your own annotation. The same command
    resumes a stopped one after the last whole file, unless teachers or texts have changed, or come from standard input.
    """
    setup_gpu(gpu_id)
    check_folder(output)
    sureness = Sureness(sure, outside)
    pipelines = {name: load_pipeline(name) for name in names(teachers)}
    if not pipelines:
        raise CommandLineError("No pipeline given", "Name one or more, as in teacher/model-best.")
    sources, left_out = find_texts(texts)
    msg.warn_list("Files left out, as they hold no text", left_out, most=5)
    check_teachers(pipelines)
    silent = [name for name, teacher in pipelines.items() if not entity_finders(teacher)]
    if silent:
        remedy = "Where it finds none, its tokens count as outside with the probability 1."
        msg.warn(f"No component is known to set entities: {', '.join(silent)}", remedy)
    lacks = unknown_labels(pipelines)
    if lacks:
        lines = [f"{name} does not know {', '.join(labels)}" for name, labels in lacks.items()]
        msg.warn("A label that a pipeline does not know has the probability 0 there", "\n".join(lines))
    inputs = made_of(list(pipelines), list(pipelines.values()), sources)
    settings = {**inputs, "limit": limit, "code": file_input(code) if code else None}
    with closing(stream_records(sources)) as records:
        some = not_empty(records, texts)
        with interrupted_by_signals(), locked(output / ".lock"):
            total = write_silver(
                list(pipelines.values()),
                islice(some, limit),
                output,
                sureness,
                settings=settings,
                part_size=part_size,
            )
    missing = 100 * total.missing / max(1, total.tokens)
    said = f"{counted(total.texts, 'text')}, {counted(total.entities, 'entity', 'entities')}"
    msg.good(f"{output}: {said}, {missing:.1f} % of the tokens without annotation")
    if total.is_starved:
        few = f"Only {counted(total.entities, 'entity', 'entities')} of about {total.expected:,.0f} kept"
        remedy = (
            "Lower --sure." if sure > DEFAULT_SURENESS else "Raise --outside, so that fewer tokens count as outside."
        )
        why = "A model that learns from so few entities, beside many tokens outside, misses most."
        msg.warn(few, f"{remedy} {why} Calibration often lowers probabilities.")
