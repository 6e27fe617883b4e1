"""`spacy tener trim`: a smaller pipeline, or one without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.api import Model as ThincModel

from ..embedders.tables import table_embedders
from ..errors import RemedyError, counted
from ..nn.shim import require_torch
from ..pipeline.finding import find_crf_pipe
from ..pipeline.tener_ner import TenerNER
from ..pipeline.units import View, view_of
from ..workbench.pipelines import check_new, count_rows, size_mb, trim_tables, write_pipeline
from . import options
from ._common import command, load_pipeline, msg, refuse_options, stream_texts

_TEXTS_AT_ONCE = 256
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
    if onnx is None:
        _trim_rows(nlp, texts, min_count, half, component)
        write_pipeline(nlp, output)
    else:
        refuse_options(ctx, ["min_count", "half", "component"], "--onnx keeps all rows", "Trim rows by another call.")
        _leave_out_torch(nlp, model, texts, onnx, output)
    msg.good(f"Saved to {output}: {size_mb(output):.1f} MB, before {size_mb(nlp.path):.1f} MB")


def _trim_rows(nlp: Language, texts: list[str], min_count: int, half: bool, component: str | None) -> None:
    name = component or find_crf_pipe(nlp).name
    layers = _with_rows(nlp, name)
    counts = count_rows(layers, minibatch(_inputs(nlp, name, texts), _TEXTS_AT_ONCE))
    trim_tables(layers, counts, min_count=min_count, half=half)


def _leave_out_torch(nlp: Language, model: str, texts: list[str], precision: str, output: Path) -> None:
    require_torch()
    from ..workbench.to_onnx_torch import Precision, changed_entities, to_onnx

    read = list(stream_texts(texts))
    to_onnx(nlp, cast(Precision, precision))
    write_pipeline(nlp, output)
    same, changed = changed_entities(load_pipeline(model), load_pipeline(str(output)), read)
    msg.info(f"{counted(len(read), 'text')}: {counted(same, 'entity', 'entities')} in both, {len(changed)} in one only")
    if changed:
        msg.table(changed[:_SHOWN_ENTITIES], header=("Found by", "Label", "Text"), divider=True)


def _with_rows(nlp: Language, name: str) -> ThincModel[Any, Any]:
    """Return the model of a component, which must have embedding tables."""
    models: dict[str, ThincModel[Any, Any]] = {
        name: pipe.model for name, pipe in nlp.pipeline if isinstance(pipe, TrainablePipe)
    }
    if name not in models:
        find_crf_pipe(nlp, name)
    if table_embedders(models[name]):
        return models[name]
    with_tables = [name for name, model in models.items() if table_embedders(model)]
    remedy = "There is nothing to trim."
    if with_tables:
        remedy = f"Choose one that has, by --component: {', '.join(with_tables)}."
    if any(node.name == "transformer_embed" for node in models[name].walk()):
        remedy = "It has a transformer: convert that by --onnx int8."
    raise RemedyError(f"'{name}' has no embedding tables of its own", remedy)


def _inputs(nlp: Language, name: str, texts: Sequence[str]) -> Iterator[Doc]:
    """Yield the inputs of the component's model: texts, annotated by the earlier components."""
    pipe = nlp.get_pipe(name)
    view: View = pipe.settings.view if isinstance(pipe, TenerNER) else "tokens"
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        for doc in nlp.pipe(map(nlp.tokenizer, stream_texts(texts))):
            text = view_of(doc, view)
            if len(text):
                yield text.piece(0, len(text))
