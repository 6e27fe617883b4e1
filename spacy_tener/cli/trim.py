"""`spacy tener trim`: a smaller pipeline, or one without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer
from spacy.language import Language

from ..errors import counted
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
    output: Annotated[Path, options.output("a new directory")],
    min_count: Annotated[
        int, typer.Option("--min-count", help="Keep the rows of strings that occur this often", min=1)
    ] = 1,
    half: Annotated[bool, typer.Option("--half", help="Store rows as 16-bit floats")] = False,
    onnx: Annotated[
        str | None, options.choice(("--onnx",), "Convert transformers to ONNX, instead", ("float32", "int8"))
    ] = None,
    component: options.Component = None,
    force: options.Force = False,
    code: options.Code = None,
) -> None:
    """
    Make a pipeline smaller, or let it run without torch.

    A pipeline has a row for every character, bigram and word of its vectors and of its training data, and most texts
    use few of them. TEXTS are its training data, and raw text like that it will be used on. All strings that are not in
    TEXTS become unknown ones. Small tables, as of a segmenter's tags, and the lexicon stay whole. --component names
    another component with embedding tables, as a shared tok2vec.

    With --onnx, all rows stay. The transformer becomes a graph that ONNX Runtime computes, without torch and
    transformers: several times as fast on a CPU, in int8 most of all. Entities of TEXTS that only one of the two
    pipelines finds are counted and shown. Needs onnx and onnxruntime.
    """
    check_new(output, force)
    nlp = load_pipeline(model)
    before = size_mb(nlp.path)  # of MODEL, which --output may name too
    if onnx is None:
        trim_rows(nlp, stream_texts(texts), min_count=min_count, half=half, component=component)
        write_pipeline(nlp, output)
    else:
        refuse_options(ctx, ["min_count", "half", "component"], "--onnx keeps all rows", "Trim rows by another call.")
        _leave_out_torch(nlp, model, texts, onnx, output)
    msg.good(f"Saved to {output}: {size_mb(output):.1f} MB, before {before:.1f} MB")


def _leave_out_torch(nlp: Language, model: str, texts: list[str], precision: str, output: Path) -> None:
    require_torch()
    from ..export.transformer_to_onnx_torch import Precision, changed_entities, to_onnx

    read, old = list(stream_texts(texts)), load_pipeline(model)
    to_onnx(nlp, cast(Precision, precision))
    write_pipeline(nlp, output)
    same, changed = changed_entities(old, load_pipeline(str(output)), read)
    msg.info(f"{counted(len(read), 'text')}: {counted(same, 'entity', 'entities')} in both, {len(changed)} in one only")
    if changed:
        msg.table(changed[:_SHOWN_ENTITIES], header=("Found by", "Label", "Text"), divider=True)
