"""The command `export`, which exports a pipeline as an ONNX file or as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import pluralize
from ..export.check import Comparison, compare, sample_texts
from ..export.onnx_model import check_libraries, describe, export_model, find_tagger
from ..export.page import RUNTIME, make_model_page, read_runtime
from ..files import write_bytes
from ..pipeline.finding import entity_finders, entity_lists
from . import options
from ._common import CommandLineError, check_file, command, load_pipeline, msg, refuse_options, stream_texts

_MAX_DIFFERENCE = 1e-4  # Tolerance for rounding differences between probabilities.


@command("export")
def export_cli(
    ctx: typer.Context,
    model: options.Model,
    output: Annotated[Path | None, options.output("an .onnx file")] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            help="Output path of an HTML page (an .html file, or a directory in which index.html is created). The page "
            "runs the model in a browser.",
        ),
    ] = None,
    wasm: Annotated[
        Path, typer.Option("--wasm", help="Directory of the npm package onnxruntime-web, for --page")
    ] = Path("node_modules", RUNTIME),
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--texts",
            help="Texts to use: a file of texts on which the exported model is verified (text, JSONL, CSV, Parquet, "
            ".spacy); may be repeated",
        ),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Store embeddings as 16-bit floats")] = False,
    component: Annotated[
        str | None, options.component("required if the pipeline has several components to export")
    ] = None,
    force: options.Force = False,
    code: options.Code = None,
) -> None:
    """Export a pipeline to a single ONNX file that processes raw text.

    ONNX Runtime computes the same entities and probabilities as the pipeline, in a browser, in Node, or in Python
    without spaCy. The ONNX graph takes the code points of texts as input.

    Only character-based pipelines can be exported. The exported component must be one of the following two. The first
    is `lac`, Baidu's model for Chinese texts. The second is `tener_ner` with a TENER or GRN encoder on character and
    bigram embeddings, optionally with LAC's features. An entity list that precedes the `tener_ner` is exported, too.

    Pipelines with words or subword tokens cannot be exported. First distill such a pipeline into a character-based
    pipeline: train the new pipeline with the config overlay `distilled`, as in `tener config weibo distilled`.

    The command compares the entities that the ONNX file and the pipeline predict. The comparison uses --texts, or texts
    generated from the pipeline's vocabulary. Requires onnx and onnxruntime.

    --page writes a single HTML file with the model and ONNX Runtime. Open the file from disk or host it anywhere. The
    page processes texts in the browser, and doesn't send them to a server. Install ONNX Runtime with `npm install
    onnxruntime-web`.
    """
    if output is None and page is None:
        raise CommandLineError("No output path was given", "Add --output or --page.")
    if page is None:
        refuse_options(ctx, ["wasm"], "used only with --page", "Add --page, or remove {options}.")
    if page and page.suffix != ".html":
        page /= "index.html"
    if page and page == output:
        raise CommandLineError("--output and --page have the same path", "Use different files.")
    for path in (output, page):
        check_file(path, force)
    check_libraries()
    nlp = load_pipeline(model)
    pipe = find_tagger(nlp, component)
    lists = entity_lists(nlp)
    finders = [name for name in entity_finders(nlp) if name != pipe.name and name not in lists]
    msg.warn_list("Components that also predict entities, but were not exported", finders)
    # An entity list with a name only applies to Docs that select this name. An exported model has no Docs, so lists
    # with names are not exported.
    msg.warn_list(
        "Entity lists that were not exported, because they apply only to Docs that select them by name",
        [name for found in lists.values() for name in found.names],
    )
    graph = export_model(nlp, pipe.name, half=half).SerializeToString()
    # Load ONNX Runtime only now, so that users don't install it for a pipeline that cannot be exported.
    runtime = page and read_runtime(wasm)
    read = list(stream_texts(texts)) if texts else sample_texts(nlp, pipe.name)
    _print(compare(nlp, pipe.name, graph, read), "generated texts" if not texts else ", ".join(texts))
    if output:
        _save(output, graph)
    if page and runtime:
        _save(page, make_model_page(graph, describe(nlp, pipe), runtime).encode())


def _save(path: Path, content: bytes) -> None:
    """Write an exported file, and print its path and size."""
    write_bytes(path, content)
    msg.good(f"Saved to {path} ({len(content) / 1e6:.1f} MB)")


def _print(comparison: Comparison, source: str) -> None:
    """Print whether the exported model and the pipeline predict the same entities and probabilities."""
    n_texts, n_characters = pluralize(comparison.n_texts, "text"), pluralize(comparison.n_characters, "character")
    compared = f"{n_texts} ({n_characters} in total, {source})"
    same = pluralize(comparison.n_equal, "entity", "entities")
    if not comparison.different_texts and comparison.max_difference <= _MAX_DIFFERENCE:
        msg.info(f"Verified on {compared}: the same {same} as in the pipeline, with the same probabilities")
        return
    msg.warn(
        f"Verified on {compared}: {same} in common with the pipeline, but the probabilities differ by up to "
        f"{comparison.max_difference:.4f}"
    )
    msg.warn_list(
        "Texts in which the ONNX model and the pipeline predict different entities", comparison.different_texts
    )
