"""The command `annotate`, which annotates large collections of texts with a trained pipeline."""

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


@command("annotate", stopped="Run the same command to resume after the last complete file.")
def annotate_cli(
    ctx: typer.Context,
    model: options.Model,
    inputs: Annotated[list[str], typer.Argument(help="Files (text, JSONL, CSV, Parquet, .spacy) or directories")],
    output: Annotated[Path, options.output("a directory")],
    format: Annotated[str, options.output_format(OUTPUTS)] = PARQUET,
    text: Annotated[str, typer.Option(help="Name of the column that contains the text")] = "text",
    probability: Annotated[bool, typer.Option("--probability", help="Add the probability of each entity")] = False,
    prefix: Annotated[str, typer.Option(help="Prefix for the names of the added columns")] = "",
    encoding: options.Encoding = "utf-8",
    whole_files: Annotated[
        bool, typer.Option("--whole-files", help="Read each text file as a single text, instead of one text per line")
    ] = False,
    part_size: options.PartSize = 10_000,
    processes: Annotated[
        int, typer.Option("--processes", help="Number of processes, or 0 for one per CPU core", min=0)
    ] = 0,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Annotate large collections of texts with a trained pipeline.

    Uses all CPU cores. The memory usage doesn't depend on the number of texts. Each text becomes one output row, in
    input order. The row contains the input columns, and the new columns `entities` and `error`. If a text cannot be
    processed, the column `error` contains the reason.

    Inputs may be compressed (.gz, .bz2, .xz, .zst). If the command is interrupted, run it again to resume. The final
    output contains each text exactly once. Parquet and .zst require the extra `annotate`.
    """
    settings = AnnotateSettings(text, probability, prefix)
    annotator = Annotator(model, settings, gpu_id=gpu_id, code=code)
    # By default, use only one process on a GPU, since each process loads the pipeline into GPU memory.
    n_processes = processes or (count_cores() if gpu_id < 0 else 1)
    check_gpu(gpu_id) if n_processes > 1 else setup_gpu(gpu_id)
    # Load the pipeline now, so that its errors are reported before any text is read.
    annotator.use(load_pipeline(model))
    if n_processes > 1:
        # Pass an annotator without a pipeline to the processes. Each process loads the pipeline itself.
        annotator = Annotator(model, settings, gpu_id=gpu_id, code=code)
    sources, left_out = find_sources(inputs, output)
    msg.warn_list("Skipped files in unsupported formats", left_out, most=5)
    formats = {source.format for source in sources}
    if PLAIN_TEXT not in formats:
        refuse_options(
            ctx,
            ["whole_files"],
            "applies only to text files, but none of the inputs is a text file",
            "Remove {options}.",
        )
    if formats <= {"parquet", "spacy"}:
        refuse_options(
            ctx, ["encoding"], f"{' and '.join(sorted(formats))} files have a fixed encoding", "Remove {options}."
        )
    reading = ReadOptions(encoding, whole_files, part_size)
    job = AnnotationJob(annotator, sources, output, reading, format, n_processes)
    size = sum(source.size for source in sources)
    with interrupted_by_signals(), Progress(size, msg.info) as progress:
        total = annotate_locally(job, progress)
    summary = f"{output}: {total}"
    if total.errors == total.texts:
        msg.fail(summary, f"No text could be processed. The column {settings.error} contains the errors.", exits=1)
    msg.good(summary)
