"""`spacy tener annotate`: large collections of texts, annotated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..annotate import AnnotateSettings, Annotator
from ..annotate.local import Progress, annotate_locally
from ..annotate.output import OUTPUTS, PARQUET, AnnotationJob
from ..annotate.records import ReadOptions, find_sources
from ..inputs import PLAIN_TEXT
from ..nn.run import check_gpu
from ..processes import count_cores, interrupted_by_signals
from . import options
from ._common import (
    command,
    load_pipeline,
    msg,
    refuse_options,
    setup_gpu,
)


@command("annotate", stopped="The same command resumes after the last whole file.")
def annotate_cli(
    ctx: typer.Context,
    model: options.Model,
    inputs: Annotated[list[str], typer.Argument(help="Text, JSONL, CSV, Parquet, .spacy; directories")],
    output: Annotated[Path, options.output("a directory")],
    format: Annotated[str, options.output_format(OUTPUTS)] = PARQUET,
    text: Annotated[str, typer.Option(help="Column with the text")] = "text",
    probability: Annotated[bool, typer.Option("--probability", help="Add the probability of each entity")] = False,
    prefix: Annotated[str, typer.Option(help="Prefix of the names of the added columns")] = "",
    encoding: options.Encoding = "utf-8",
    whole_files: Annotated[bool, typer.Option("--whole-files", help="Read a text file as one text")] = False,
    part_size: options.PartSize = 10_000,
    processes: Annotated[int, typer.Option("--processes", help="Number of processes; 0: one per core", min=0)] = 0,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Annotate large collections of texts with a trained pipeline.

    Uses all cores, in bounded memory, for any number of texts. Records keep their columns and their order, and get
    `entities` and `error`. A text that cannot be read is written with its error. Inputs may be compressed (.gz, .bz2,
    .xz, .zst). The same command resumes after any interruption: the output has each text once, in whole files. Parquet
    and .zst need the extra annotate.
    """
    settings = AnnotateSettings(text, probability, prefix)
    annotator = Annotator(model, settings, gpu_id=gpu_id, code=code)
    # By default, one process uses a GPU.
    n_processes = processes or (count_cores() if gpu_id < 0 else 1)
    check_gpu(gpu_id) if n_processes > 1 else setup_gpu(gpu_id)
    annotator.use(load_pipeline(model))  # reports errors before any text is read
    if n_processes > 1:
        annotator = Annotator(model, settings, gpu_id=gpu_id, code=code)  # each process has its own
    sources, left_out = find_sources(inputs, output)
    msg.warn_list("Files of other kinds, left out", left_out, most=5)
    formats = {source.format for source in sources}
    if PLAIN_TEXT not in formats:
        refuse_options(ctx, ["whole_files"], "no input is a text file", "Leave it out.")
    if formats <= {"parquet", "spacy"}:
        refuse_options(ctx, ["encoding"], f"no encoding is read from {' and '.join(sorted(formats))}", "Leave it out.")
    reading = ReadOptions(encoding, whole_files, part_size)
    job = AnnotationJob(annotator, sources, output, reading, format, n_processes)
    size = sum(source.size for source in sources)
    with interrupted_by_signals(), Progress(size, msg.info) as progress:
        total = annotate_locally(job, progress)
    summary = f"{output}: {total}"
    if total.errors == total.texts:
        msg.fail(summary, f"No text could be read: the column {settings.error} says why of each.", exits=1)
    msg.good(summary)
