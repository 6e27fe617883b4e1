"""`python -m spacy tener annotate`"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code

from ..annotate import Annotator, Settings
from ..annotate.local.engine import annotate
from ..annotate.local.job import Job
from ..annotate.local.progress import Progress
from ..annotate.on_ray import Actors, annotate_on_ray
from ..annotate.reading.addresses import find_sources
from ..annotate.reading.parts import Reading
from ..annotate.writing.encoding import OUTPUTS, PARQUET
from ..cluster import connected
from ..errors import RemedyError
from ..workbench.runs.processes import cores, interrupted_by_signals
from ._app import Code, GpuId, check_gpu, load_pipeline, messages, numbers, setup_gpu
from ._engines import Address, EngineName, check_engine, gpu_of_runs
from ._group import tener_cli


@tener_cli.command("annotate")
def annotate_cli(
    model: Annotated[str, typer.Argument(help="Pipeline: its directory or package")],
    inputs: Annotated[list[str], typer.Argument(help="Text, JSONL, CSV, Parquet, .spacy; directories; addresses")],
    output: Annotated[str, typer.Option("--output", "-o", help="Directory to write, or an address of one")],
    format: Annotated[str, typer.Option("--format", "-f", help=f"Of the output: {', '.join(OUTPUTS)}")] = PARQUET,
    text: Annotated[str, typer.Option(help="Column of the text")] = "text",
    probability: Annotated[bool, typer.Option("--probability", help="Say how sure each entity is")] = False,
    k_best: Annotated[int, typer.Option(help="Add the k best readings of each text as a whole", min=0)] = 0,
    prefix: Annotated[str, typer.Option(help="Before the names of the columns that are added")] = "",
    encoding: Annotated[str, typer.Option(help="Of text files, JSONL and CSV")] = "utf-8",
    whole_files: Annotated[bool, typer.Option("--whole-files", help="A text file is one text, not one a line")] = False,
    part_size: Annotated[int, typer.Option(help="Most texts of a file of the output", min=1)] = 10_000,
    processes: Annotated[int, typer.Option("--processes", help="How many annotate; 0: one for each core", min=0)] = 0,
    gpu_id: GpuId = -1,
    code: Code = None,
    engine: EngineName = "local",
    address: Address = None,
    actors: Annotated[str | None, typer.Option(help="How many annotate on Ray: 8, or from 4 to 64 as 4,64")] = None,
    cpus_per_actor: Annotated[float | None, typer.Option(help="Cores of each on Ray (default: 1)", min=0)] = None,
    gpus_per_actor: Annotated[float | None, typer.Option(help="GPUs of each on Ray (default: 0)", min=0)] = None,
) -> None:
    """
    Annotate archives: as many texts as there are, on all cores, in memory that stays bounded.

    Records keep their columns and their order, and get `entities`, `error` and, if asked, `readings`. A text that
    cannot be read is written with its error. Inputs may be compressed (.gz, .bz2, .xz, .zst), and stand wherever fsspec
    reads, as s3://bucket/texts/. Stopped at any moment, the same command goes on; the output holds each text once, in
    whole files. Parquet, .zst and addresses need: pip install 'spacy_tener[annotate]'

    --engine ray does the same on a cluster of Ray, whose nodes see the same files. Needs the extra ray.
    """
    import_code(code)
    with messages(stopped="The same command goes on behind the last whole file.") as msg:
        given: dict[str, Any] = {"--address": address, "--actors": actors}
        given |= {"--cpus-per-actor": cpus_per_actor, "--gpus-per-actor": gpus_per_actor}
        on_ray = check_engine(engine, given)
        gpu_id = gpu_of_runs(gpu_id, engine, gpus_per_actor) if on_ray else gpu_id
        settings = Settings(text, probability, k_best, prefix)
        annotator = Annotator(model, settings, gpu_id=gpu_id, code=code)
        # Without a number, a GPU is for one process.
        n_processes = processes or (cores() if gpu_id < 0 else 1)
        if not on_ray:
            check_gpu(gpu_id) if n_processes > 1 else setup_gpu(gpu_id, silent=False)
        annotator.use(load_pipeline(model))  # which says at once what is wrong with it
        if n_processes > 1 or on_ray:
            annotator = Annotator(model, settings, gpu_id=gpu_id, code=code)  # each process has its own
        sources, left_out = find_sources(inputs)
        if left_out:
            msg.warn(f"Left out: {len(left_out)} files of other kinds", ", ".join(left_out[:5]))
        reading = Reading(encoding, whole_files, part_size)
        job = Job(annotator, sources, output, reading, format, n_processes)
        size = sum(each.size for each in sources)
        # Ray takes signals for itself when it connects.
        with (
            connected(address) if on_ray else nullcontext(),
            interrupted_by_signals(),
            Progress(size, msg.info) as progress,
        ):
            if on_ray:
                pool = Actors(
                    *_least_and_most(actors), 1 if cpus_per_actor is None else cpus_per_actor, gpus_per_actor or 0
                )
                total = annotate_on_ray(job, progress, pool)
            else:
                total = annotate(job, progress)
        if not total.texts:
            raise RemedyError(f"{', '.join(inputs)}: there is no text", "Name files with a text in them.")
        msg.good(f"{output}: {progress.said(total)}")


def _least_and_most(actors: str | None) -> tuple[int, int | None]:
    if actors is None:
        return 1, None
    least, *most = numbers("--actors", actors)
    if len(most) > 1 or not 1 <= least <= max(most, default=least):
        raise RemedyError(f"--actors {actors}: not a number, or the least and the most", "Write --actors 4,64.")
    return least, most[0] if most else least
