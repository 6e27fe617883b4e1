"""The command `explain`, which explains the entities that a pipeline predicts."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from spacy.language import Language
from spacy.training import Example

from ..annotate.answers import TEXT_COLUMN
from ..annotate.records import stream_records
from ..corpora.docs import read_examples
from ..errors import UserError, pluralize
from ..files import write_text
from ..inputs import STDIN
from . import options
from ._common import (
    CommandLineError,
    check_file,
    command,
    load_pipeline,
    msg,
    refuse_options,
    setup_gpu,
)

_FILE_NAME = re.compile(r"\S+\.(txt|json|jsonl|ndjson|spacy)(\.\w+)?")


@command("explain", prints_result=True)
def explain_cli(
    ctx: typer.Context,
    model: options.Model,
    text: Annotated[
        str,
        typer.Argument(
            help="A text; a file (one text per line, JSONL, .spacy); a directory of .spacy files; - for standard input"
        ),
    ],
    output: Annotated[Path | None, options.output("an .html or .json file (default: print JSON)")] = None,
    limit: Annotated[int, options.limit("if TEXT is a file")] = 100,
    component: options.Component = None,
    attribution: Annotated[
        bool,
        typer.Option(
            help="Compute attributions by occlusion, with an additional prediction for each token or character "
            "(--no-attribution is faster)"
        ),
    ] = True,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> tuple[str, int]:
    """Explain the entities that a pipeline predicts.

    Writes an HTML page. For each entity, the page shows the probability, alternative entities, the characters that
    increase the probability, and matching lexicon words. If TEXT is a .spacy file, the page also shows differences from
    the gold annotation. Without --output, the same data is printed as JSON.
    """
    from ..explain import explain  # Imported here, because the import is slow.

    if output is not None and output.suffix not in (".html", ".json"):
        raise CommandLineError(f"{output}: unknown format", "Use a path that ends in .html or .json.")
    if not (text == STDIN or _FILE_NAME.fullmatch(text) or os.path.exists(text)):
        refuse_options(ctx, ["limit"], "used only for a file with several texts", "Remove {options}, or pass a file.")
    check_file(output, force)
    setup_gpu(gpu_id, silent=output is None)
    nlp = load_pipeline(model)
    texts = _texts(nlp, text, limit + 1)
    if len(texts) > limit:
        msg.warn(f"Only the first {limit} texts are explained", "Increase --limit to explain more.")
    explained = explain(nlp, texts[:limit], name=component, attribution=attribution)
    if output is None:
        return explained.to_json(), 0
    write_text(output, explained.to_json() if output.suffix == ".json" else explained.to_html())
    count = pluralize(sum(len(text.entities) for text in explained.texts), "entity", "entities")
    msg.good(f"{output.resolve()}: {count} in {pluralize(len(explained.texts), 'text')}")
    return "", 0


def _texts(nlp: Language, text: str, limit: int) -> list[str] | list[Example]:
    """Return the texts to explain.

    text (str): A text, or a path to a file or directory.
    limit (int): Maximum number of texts.
    RETURNS (list[str] | list[Example]): Annotated examples for `.spacy` files, and strings for all other inputs.
    """
    if os.path.isdir(text) or (os.path.isfile(text) and Path(text).suffix == ".spacy"):
        own_tokens = nlp.config.get("corpora", {}).get("dev", {}).get("gold_preproc", False)
        return read_examples(nlp, Path(text), gold_preproc=own_tokens, limit=limit)
    if _FILE_NAME.fullmatch(text) and not os.path.isfile(text):
        raise UserError(f"{text}: there is no such file", "Check the path, or pass a text.")
    is_file = text == STDIN or os.path.isfile(text)
    records = stream_records([text]) if is_file else iter([{TEXT_COLUMN: text}] if text.strip() else [])
    texts = [record[TEXT_COLUMN] for record in islice(records, limit)]
    if not texts:
        raise UserError(f"{text.strip() or 'TEXT'}: contains no text", "Pass a text, or a file that contains texts.")
    return texts
