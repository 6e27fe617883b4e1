"""The command `trim`, which makes a pipeline smaller, or converts its transformer to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer
from spacy.language import Language

from ..errors import pluralize
from ..export.trimming import trim_rows
from ..files import size_mb
from ..nn.shim import require_torch
from . import options
from ._common import check_new, command, load_pipeline, msg, refuse_options, stream_texts, write_pipeline

_SHOWN_ENTITIES = 20


@command("trim")
def trim_cli(
    ctx: typer.Context,
    model: options.Model,
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a new directory, or a pipeline to overwrite with --force, such as MODEL")],
    min_count: Annotated[
        int,
        typer.Option(
            "--min-count",
            help="Minimum frequency in TEXTS of a character, bigram or word, for keeping its embedding",
            min=1,
        ),
    ] = 1,
    half: Annotated[bool, typer.Option("--half", help="Store embeddings as 16-bit floats")] = False,
    onnx: Annotated[
        str | None,
        options.choice(
            ("--onnx",),
            "Instead of trimming embeddings, convert the transformer to ONNX with this precision",
            ("float32", "int8"),
        ),
    ] = None,
    component: options.Component = None,
    force: options.Force = False,
    code: options.Code = None,
) -> None:
    """Make a pipeline smaller, or convert its transformer to ONNX.

    A pipeline contains embeddings for all characters, bigrams and words in its training data and vectors. Most texts
    need only a few embeddings. This command removes the embeddings for all strings that don't occur in TEXTS.
    Afterwards, the pipeline treats these strings as unknown. As TEXTS, use the training data and raw texts similar to
    those that the pipeline will process. The lexicon and small tables, such as tag embeddings, are not trimmed. Use
    --component to trim another component, such as a shared tok2vec.

    With --onnx, the transformer is converted to ONNX, and embeddings are not trimmed. ONNX Runtime runs the transformer
    without torch and transformers, several times as fast on a CPU. int8 is the fastest. The command also lists the
    entities in TEXTS that only one of the two pipelines predicts. Requires onnx and onnxruntime.
    """
    check_new(output, force)
    nlp = load_pipeline(model)
    before = size_mb(nlp.path)  # Measured before the output is written, since --output may overwrite MODEL.
    if onnx is None:
        trim_rows(nlp, stream_texts(texts), min_count=min_count, half=half, component=component)
        write_pipeline(nlp, output)
    else:
        refuse_options(
            ctx, ["min_count", "half", "component"], "has no effect with --onnx", "Trim with a separate command."
        )
        _convert_to_onnx(nlp, model, texts, onnx, output)
    msg.good(f"Saved to {output}: {size_mb(output):.1f} MB instead of {before:.1f} MB")


def _convert_to_onnx(nlp: Language, model: str, texts: list[str], precision: str, output: Path) -> None:
    """Convert a pipeline's transformer to ONNX, write the pipeline, and print which predicted entities changed."""
    require_torch()
    from ..export.transformer_to_onnx_torch import Precision, changed_entities, to_onnx

    read, old = list(stream_texts(texts)), load_pipeline(model)
    to_onnx(nlp, cast(Precision, precision))
    write_pipeline(nlp, output)
    same, changed = changed_entities(old, load_pipeline(str(output)), read)
    msg.info(
        f"Compared on {pluralize(len(read), 'text')}: both pipelines predict "
        f"{pluralize(same, 'entity', 'entities')}, and {len(changed)} are predicted by only one pipeline"
    )
    if changed:
        msg.table(changed[:_SHOWN_ENTITIES], header=("Predicted by", "Label", "Text"), divider=True)
