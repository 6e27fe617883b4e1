"""Commands that read texts with a trained pipeline: annotate, explain, serve."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from spacy.language import Language
from spacy.training import Example
from spacy.util import is_package

from ..annotate import AnnotateSettings, Annotator
from ..annotate.local import Progress, annotate_locally
from ..annotate.output import OUTPUTS, PARQUET, AnnotationJob
from ..annotate.records import ReadOptions, find_sources, stream_records
from ..annotate.settings import TEXT_COLUMN
from ..errors import RemedyError, counted, install
from ..files import write_text
from ..inputs import PLAIN_TEXT, STDIN
from ..pipeline.finding import check_finders
from ..pipeline.gpu import check_gpu
from ..processes import count_cores, interrupted_by_signals
from . import options
from ._common import (
    CommandLineError,
    check_file,
    command,
    load_pipeline,
    msg,
    of_command_line,
    refuse_options,
    setup_gpu,
)
from .scores import read_examples

_FILE_NAME = re.compile(r"\S+\.(txt|json|jsonl|ndjson|spacy)(\.\w+)?")


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


@command("explain", prints_result=True)
def explain_cli(
    ctx: typer.Context,
    model: options.Model,
    text: Annotated[
        str,
        typer.Argument(
            help="A text; a file: a text a line, JSONL, .spacy; a directory of .spacy; - for standard input"
        ),
    ],
    output: Annotated[Path | None, options.output("a file: .html or .json (default: print JSON)")] = None,
    limit: Annotated[int, options.limit("of a file")] = 100,
    component: options.Component = None,
    evidence: Annotated[bool, typer.Option(help="Mask characters, to find those that support an entity")] = True,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> tuple[str, int]:
    """
    Explain the entities that a pipeline finds.

    Writes one HTML page that needs no network. For each entity it shows the probability, rivals, the characters that
    support it, and matching words of the lexicon; and differences from the annotation of a .spacy file. Without
    --output, prints the data as JSON.
    """
    from ..explain import explain  # here, as it is slow to import

    if output is not None and output.suffix not in (".html", ".json"):
        raise CommandLineError(f"{output}: no format has this ending", "Use .html or .json.")
    if not (text == STDIN or _FILE_NAME.fullmatch(text) or os.path.exists(text)):
        refuse_options(ctx, ["limit"], "there is one text", "Leave it out, or name a file of texts.")
    check_file(output, force)
    setup_gpu(gpu_id, silent=output is None)
    nlp = load_pipeline(model)
    texts = _texts(nlp, text, limit + 1)
    if len(texts) > limit:
        msg.warn(f"Only the first {limit} texts are explained", "Take more by --limit.")
    explained = explain(nlp, texts[:limit], name=component, evidence=evidence)
    if output is None:
        return explained.to_json(), 0
    write_text(output, explained.to_json() if output.suffix == ".json" else explained.to_html())
    count = counted(sum(len(text.entities) for text in explained.texts), "entity", "entities")
    msg.good(f"{output.resolve()}: {count} in {counted(len(explained.texts), 'text')}")
    return "", 0


def _texts(nlp: Language, text: str, limit: int) -> list[str] | list[Example]:
    """Return texts, or the examples of a corpus."""
    if os.path.isdir(text) or (os.path.isfile(text) and Path(text).suffix == ".spacy"):
        own_tokens = nlp.config.get("corpora", {}).get("dev", {}).get("gold_preproc", False)
        return read_examples(nlp, Path(text), gold_preproc=own_tokens, limit=limit)
    if _FILE_NAME.fullmatch(text) and not os.path.isfile(text):
        raise RemedyError(f"{text}: there is no such file", "Give a text, or a file of texts.")
    is_file = text == STDIN or os.path.isfile(text)
    records = stream_records([text]) if is_file else iter([{TEXT_COLUMN: text}] if text.strip() else [])
    texts = [record[TEXT_COLUMN] for record in islice(records, limit)]
    if not texts:
        raise RemedyError(f"{text or 'The text'}: there is nothing in it", "Give a text with some characters.")
    return texts


@command("serve", stopped="All accepted requests were answered.")
def serve_cli(
    models: Annotated[list[str], typer.Argument(help="Pipelines: MODEL, or NAME=MODEL; the first is the default")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port, or 0 for any free one")] = 8000,
    max_characters: Annotated[
        int, typer.Option("--max-characters", min=1, help="Maximum number of characters in a text")
    ] = 20_000,
    max_body: Annotated[int, typer.Option("--max-body", min=1, help="Maximum number of bytes in a request")] = 2
    * 2**20,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds for a request to arrive, and for its answer")
    ] = 30.0,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="File with the key that clients must send (or TENER_API_KEY)")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="CORS: origin to allow, as https://host; may be repeated; * for all"),
    ] = None,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Serve pipelines over HTTP, with a page to try them on.

    POST /v1/entities answers one text, /v1/entities/batch several; /docs describes the API. /health, /ready and
    /metrics are for monitoring. SIGTERM and Ctrl-C end the service once all accepted requests are answered. Needs the
    extra serve.
    """
    try:
        from ..serve import Limits, address, bind, check_origins, make_app, read_api_key, serve
    except ImportError as error:
        raise RemedyError(
            f"Serving needs {error.name}", install("fastapi", "httptools", "prometheus_client", "uvicorn", "uvloop")
        ) from error
    with of_command_line():
        named, origins = _named(models), check_origins(allow_origin or ())
    api_key = read_api_key(api_key_file)
    for model in named.values():
        if not (os.path.exists(model) or is_package(model)):
            load_pipeline(model)  # its error, before any about the port
    with bind(host, port) as sock:
        setup_gpu(gpu_id)
        pipelines = {name: _load(model) for name, model in named.items()}
        limits = Limits(characters=max_characters, body=max_body, timeout=timeout)
        app = make_app(pipelines, limits, api_key=api_key, allow_origins=origins, gpu_id=gpu_id)
        started = f"{address(sock)}: {', '.join(named)}"
        serve(app, sock, lambda: msg.good(started, "Ctrl-C stops it."))


def _named(models: list[str]) -> dict[str, str]:
    """Return name -> pipeline. The default name is that of the directory or package."""
    named = {}
    for model in models:
        name, equals, path = model.partition("=")
        # A path may hold an equals sign, as in runs/lr=0.1/model-best.
        is_named = equals and Path(name).name == name and not Path(model).is_dir()
        named.update({name: path} if is_named else {Path(model).name: model})
    if len(named) < len(models) or "" in named:
        raise RemedyError("Models need different names", "Name them, as in: news=MODEL web=MODEL.")
    return named


def _load(model: str) -> Language:
    nlp = load_pipeline(model)
    check_finders(nlp, model)
    return nlp
