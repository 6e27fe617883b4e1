"""`python -m spacy tener trim`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from ..errors import RemedyError
from ..models.embed.tables import table_nodes
from ..models.embed.trimming import Trimmed, count_rows, trim
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
    name: Annotated[str, typer.Option("--name", help="Component of the pipeline")] = "tener_ner",
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
        pipe = find_recogniser(nlp, name)
        if not table_nodes(pipe.model):
            raise RemedyError(f"'{name}' has no table of rows of its own", "There is nothing to make smaller.")
        sources, _ = find_texts(texts)
        counts = count_rows(pipe.model, minibatch(_inputs(nlp, name, pipe.settings.view, sources), _AT_ONCE))
        made = trim(pipe.model, counts, least=min_count, half=half)
        msg.table(
            [_row(each) for each in made],
            header=("Layer", "Table", "Rows", "Kept", "MB", "Kept"),
            aligns=("l", "l", *"rrrr"),
            divider=True,
        )
        write_pipeline(nlp, output)
        msg.good(f"Saved to {output}")


def _inputs(nlp: Language, name: str, view: View, sources: Sequence[str]) -> Iterator[Doc]:
    """Texts as the component's model sees them: with what earlier components say."""
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
