"""`python -m spacy tener trim`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.api import Model

from ..errors import RemedyError
from ..models.embed.tables import table_nodes
from ..models.embed.trimming import Trimmed, count_rows, trim
from ..pipeline.confidence.pipe import ConfidentPipe
from ..pipeline.finding import find_recogniser
from ..pipeline.views.units import View, view_of
from ..workbench.pipelines import check_new, write_pipeline
from ..workbench.vectors.raw_text import find_texts, make_docs, read_all
from ._app import Code, load_pipeline, messages
from ._group import tener_cli

_AT_ONCE = 256
_MB = 1 << 20


@tener_cli.command("trim")
def trim_cli(
    model: Annotated[str, typer.Argument(help="Pipeline with a tener_ner: its directory or package")],
    texts: Annotated[list[str], typer.Argument(help="Text files, JSONL, .spacy, directories of them; - for stdin")],
    output: Annotated[Path, typer.Option("--output", "-o", help="New directory")],
    min_count: Annotated[int, typer.Option(help="How often a string must come to keep its row", min=1)] = 1,
    half: Annotated[bool, typer.Option("--half", help="Keep rows in numbers of 16 bits")] = False,
    name: Annotated[str, typer.Option("--name", help="Component with the rows: tok2vec, say, if shared")] = "tener_ner",
    code: Code = None,
) -> None:
    """
    Make a pipeline smaller: rows stay of the characters, bigrams and words that TEXTS have.

    A pipeline has a row for every string of its vectors and of its training, few of which a text will ever have. TEXTS
    are its training part, and raw text like that to come. All other strings are read as unknown ones. Small tables,
    as of a segmenter's tags, stay whole, and so does the lexicon. Check the result by `spacy tener evaluate`.
    """
    import_code(code)
    with messages() as msg:
        check_new(output)
        nlp = load_pipeline(model)
        layers = _with_rows(nlp, name)
        sources, _ = find_texts(texts)
        counts = count_rows(layers, minibatch(_inputs(nlp, name, sources), _AT_ONCE))
        made = trim(layers, counts, least=min_count, half=half)
        msg.table(
            [_row(each) for each in made],
            header=("Layer", "Table", "Rows", "Kept", "MB", "Kept"),
            aligns=("l", "l", *"rrrr"),
            divider=True,
        )
        write_pipeline(nlp, output)
        msg.good(f"Saved to {output}")


def _with_rows(nlp: Language, name: str) -> Model[Any, Any]:
    """The model of the component, which has rows."""
    models: dict[str, Model[Any, Any]] = {
        each: pipe.model for each, pipe in nlp.pipeline if isinstance(pipe, TrainablePipe)
    }
    if name not in models:
        find_recogniser(nlp, name)
    if table_nodes(models[name]):
        return models[name]
    others = [each for each, model in models.items() if table_nodes(model)]
    remedy = f"Name one that has, by --name: {', '.join(others)}." if others else "There is nothing to make smaller."
    raise RemedyError(f"'{name}' has no table of rows of its own", remedy)


def _inputs(nlp: Language, name: str, sources: Sequence[str]) -> Iterator[Doc]:
    """Texts as the component's model sees them: with what earlier components say."""
    pipe = nlp.get_pipe(name)
    view: View = pipe.settings.view if isinstance(pipe, ConfidentPipe) else "tokens"
    found = False
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        for doc in nlp.pipe(make_docs(nlp, read_all(sources))):
            whole, found = view_of(doc, view), True
            if len(whole):
                yield whole.piece(0, len(whole))
    if not found:
        raise RemedyError(f"{', '.join(sources)}: there is no text", "Give files with a text on each line.")


def _row(each: Trimmed) -> tuple[str, ...]:
    sizes = (f"{size / _MB:.1f}" for size in each.bytes)
    return each.layer, each.table, *(f"{rows:,}" for rows in each.rows), *sizes
