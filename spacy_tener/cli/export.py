"""The command `export`, which exports a pipeline as one ONNX file or as an HTML page."""

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

_MAX_DIFFERENCE = 1e-4  # Maximum difference of probabilities that is caused by rounding.


@command("export")
def export_cli(
    ctx: typer.Context,
    model: options.Model,
    output: Annotated[Path | None, options.output("an .onnx file")] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page", help="Output path of an HTML page: the model in a browser; or a directory for index.html"
        ),
    ] = None,
    wasm: Annotated[
        Path, typer.Option("--wasm", help="Directory of the npm package onnxruntime-web, for --page")
    ] = Path("node_modules", RUNTIME),
    texts: Annotated[
        list[str] | None,
        typer.Option("--texts", help="Texts: files to verify the export with; may be repeated"),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Store embeddings as 16-bit floats")] = False,
    component: options.Component = None,
    force: options.Force = False,
    code: options.Code = None,
) -> None:
    """Export a pipeline as one ONNX file, from text to entities.

    ONNX Runtime computes the same entities and probabilities with it, in a browser, in Node, or in Python without
    spaCy. The inputs are the code points of texts. The pipeline must process characters: TENER or GRN with embeddings
    of characters and bigrams, with or without LAC, or `lac` alone. Pipelines that process words or subword tokens
    cannot be exported; use such a pipeline as the teacher of one that can (overlay `distilled`). Words of
    `entity_lists` before a `tener_ner` are included.

    The Python reader of the file verifies it on --texts, or else on texts that are generated from the pipeline's
    vocabulary. Requires onnx and onnxruntime.

    --page writes a single HTML file that contains the model, a reader in JavaScript and ONNX Runtime. Open it from disk
    or host it anywhere; texts stay on the user's machine. Get ONNX Runtime with `npm install onnxruntime-web`.
    """
    if output is None and page is None:
        raise CommandLineError("There is no output", "Add --output or --page.")
    if page is None:
        refuse_options(ctx, ["wasm"], "no page is written", "Add --page.")
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
    msg.warn_list("Not exported: components that predict other entities", finders)
    # Named lists apply only to Docs that opt in to them, which isn't possible in the exported file.
    msg.warn_list("Not exported: named word lists", [name for found in lists.values() for name in found.names])
    graph = export_model(nlp, pipe.name, half=half).SerializeToString()
    read = list(stream_texts(texts)) if texts else sample_texts(nlp, pipe.name)
    _print(compare(nlp, pipe.name, graph, read), "generated texts" if not texts else ", ".join(texts))
    if output:
        _save(output, graph)
    if page and runtime:
        _save(page, make_model_page(graph, describe(nlp, pipe), runtime).encode())


def _save(path: Path, content: bytes) -> None:
    """Write a file and print its size."""
    write_bytes(path, content)
    msg.good(f"Saved to {path}: {len(content) / 1e6:.1f} MB")


def _print(comparison: Comparison, source: str) -> None:
    """Print the result of the verification, and warn about differences."""
    compared = f"{counted(comparison.n_texts, 'text')} of {counted(comparison.n_characters, 'character')} ({source})"
    same = counted(comparison.n_equal, "entity", "entities")
    if not comparison.different_texts and comparison.max_difference <= _MAX_DIFFERENCE:
        msg.info(f"Verified on {compared}: {same}, all with the same probabilities as in the pipeline")
        return
    msg.warn(
        f"Verified on {compared}: {same} as in the pipeline, with probabilities that differ by up to "
        f"{comparison.max_difference:.4f}"
    )
    msg.warn_list("Texts with different entities", comparison.different_texts)
