"""`spacy tener export`: a pipeline as one ONNX file, or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import counted
from ..export.check import Comparison, compare, sample_texts
from ..export.onnx_model import check_libraries, describe, export_model, find_tagger
from ..export.page import RUNTIME, make_model_page, read_runtime
from ..files import write_bytes
from ..pipeline.finding import entity_finders, entity_lists
from . import options
from ._common import CommandLineError, check_file, command, load_pipeline, msg, refuse_options, stream_texts

_SAME = 1e-4
"""The most by which probabilities differ by rounding."""


@command("export")
def export_cli(
    ctx: typer.Context,
    model: options.Model,
    output: Annotated[Path | None, options.output("an .onnx file")] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="HTML file to write: finds entities in a browser; or a directory, for index.html"),
    ] = None,
    wasm: Annotated[Path, typer.Option("--wasm", help="Directory of npm's package onnxruntime-web, for --page")] = Path(
        "node_modules", RUNTIME
    ),
    texts: Annotated[
        list[str] | None,
        typer.Option("--texts", help="Texts to read: files to check the result on; may be repeated"),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Store rows as 16-bit floats")] = False,
    component: options.Component = None,
    force: options.Force = False,
    code: options.Code = None,
) -> None:
    """
    Write a pipeline as one ONNX file, from text to entities.

    ONNX Runtime finds the same entities with the same probabilities by it, in a browser, in Node, or in Python without
    spaCy. Its inputs are the code points of texts. The pipeline must read characters: TENER or GRN over rows of
    characters and their pairs, with LAC or without; or `lac` alone. What reads words or pieces of words is refused. A
    student that it teaches, by the overlay `taught`, can be exported. Words of `entity_lists` before a `tener_ner` are
    in the file.

    The file is checked by the reader for Python, on --texts, or on texts of what the pipeline's tables contain. Needs
    onnx and onnxruntime.

    --page writes a page of one file, which needs no server: model, reader and ONNX Runtime are in it. It is opened from
    a disk or from any host, and no text leaves the machine. Get ONNX Runtime by `npm install onnxruntime-web`.
    """
    if output is None and page is None:
        raise CommandLineError("Nothing is to be written", "Name a file by --output or --page.")
    if page is None:
        refuse_options(ctx, ["wasm"], "there is no page", "Name one by --page.")
    if page and page.suffix != ".html":
        page /= "index.html"
    for path in (output, page):
        check_file(path, force)
    runtime = page and read_runtime(wasm)
    check_libraries()
    nlp = load_pipeline(model)
    pipe = find_tagger(nlp, component)
    lists = entity_lists(nlp)
    finders = [name for name in entity_finders(nlp) if name != pipe.name and name not in lists]
    msg.warn_list("Not in the file: entities of", finders)
    # A text of a file cannot ask for one.
    msg.warn_list("Not in the file: lists of words", [name for found in lists.values() for name in found.names])
    graph = export_model(nlp, pipe.name, half=half).SerializeToString()
    read = list(stream_texts(texts)) if texts else sample_texts(nlp, pipe.name)
    _print(compare(nlp, pipe.name, graph, read), "texts of what its tables contain" if not texts else ", ".join(texts))
    if output:
        _save(output, graph)
    if page and runtime:
        _save(page, make_model_page(graph, describe(nlp, pipe), runtime).encode())


def _save(path: Path, content: bytes) -> None:
    write_bytes(path, content)
    msg.good(f"Saved to {path}: {len(content) / 1e6:.1f} MB")


def _print(comparison: Comparison, source: str) -> None:
    """Print what was compared, and warn of a difference."""
    compared = f"{counted(comparison.n_texts, 'text')} of {counted(comparison.n_characters, 'character')} ({source})"
    same = counted(comparison.n_equal, "entity", "entities")
    if not comparison.different_texts and comparison.max_difference <= _SAME:
        msg.info(f"Checked on {compared}: {same}, all as the pipeline finds them, with the same probabilities")
        return
    msg.warn(
        f"Checked on {compared}: {same} as the pipeline finds them, with probabilities that differ by up to "
        f"{comparison.max_difference:.4f}"
    )
    msg.warn_list("Texts with other entities", comparison.different_texts)
