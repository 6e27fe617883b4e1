"""`python -m spacy tener suggest`"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code
from spacy.tokens import DocBin

from ..errors import RemedyError, check_choice
from ..explain.recogniser import Recogniser
from ..files import write_file, write_text
from ..workbench.suggestions.tasks import TOOLS, tasks
from ..workbench.suggestions.uncertain import MEASURES, suggest
from ..workbench.teaching.silver import Sureness, count, silver
from ..workbench.vectors.raw_text import find_texts, read_all
from ._app import Code, GpuId, load_pipeline, messages, setup_gpu
from ._group import tener_cli
from .silver import said

INTERFACE, SURE = "-interface.xml", ".sure.spacy"


@tener_cli.command("suggest")
def suggest_cli(
    model: Annotated[str, typer.Argument(help="Pipeline with a tener_ner: its directory or package")],
    raw: Annotated[list[str], typer.Argument(help="Text files, JSONL, .spacy, directories of them; - for stdin")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write")],
    n: Annotated[int, typer.Option("--n", "-n", help="How many texts", min=1)] = 200,
    format: Annotated[
        str, typer.Option("--format", "-f", help=f"Tool to annotate with: {', '.join(TOOLS)}")
    ] = "doccano",
    by: Annotated[str, typer.Option(help=f"Measure of uncertainty: {', '.join(MEASURES)}")] = "entropy",
    known: Annotated[list[str] | None, typer.Option(help="Texts that are annotated already; may be repeated")] = None,
    agree: Annotated[
        float, typer.Option(help="Least probability of what is written as partial annotation too; 0 for none")
    ] = 0.0,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Choose the texts that are most worth annotating, filled in by the model.

    Those are texts that the model is most uncertain about, each unlike those chosen before it, none of them twice.
    Every line of the text is a text; there may be millions. The output is what doccano, Label Studio or Prodigy import,
    with the model's entities to correct and their probabilities; `spacy tener convert` reads what they export.

    With --agree 0.95, OUTPUT.sure.spacy has what the model is sure of in these texts, as training data: the tokens that
    it is less sure of are without annotation, and are learned as such.
    """
    import_code(code)
    with messages() as msg:
        check_choice("annotation tool", format, tuple(TOOLS))
        sure = Sureness(agree, agree) if agree else None
        setup_gpu(gpu_id, silent=False)
        nlp = load_pipeline(model)
        labels = Recogniser.of(nlp).ner.labels
        texts = _texts(raw)
        first = next(texts, None)
        if first is None:
            raise RemedyError(f"{', '.join(raw)}: there is no text", "Give files with a text on each line.")
        chosen = suggest(nlp, itertools.chain([first], texts), n, by=by, known=list(_texts(known or [])))
        tool = TOOLS[format]
        write_text(output, tool.write(tasks(nlp, chosen)))
        msg.good(f"{output}: {len(chosen):,} texts to annotate in {format}")
        if tool.interface:
            interface = output.with_name(f"{output.stem}{INTERFACE}")
            write_text(interface, tool.interface(labels))
            msg.info(f"{interface}: the labelling interface for them")
        if sure:
            path = output.with_name(f"{output.stem}{SURE}")
            docs = list(silver([nlp], [each.text for each in chosen], sure))
            write_file(path, lambda file: file.write(DocBin(docs=docs).to_bytes()))
            msg.good(f"{path}: {said(count(docs))}")


def _texts(sources: Sequence[str]) -> Iterator[str]:
    found, _ = find_texts(sources)
    return read_all(found)
