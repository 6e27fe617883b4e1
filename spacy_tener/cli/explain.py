"""`python -m spacy tener explain`"""

from __future__ import annotations

import os
import re
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.training import Example

from ..errors import RemedyError
from ..files import write_text
from ..inputs import STDIN
from ..workbench.report.canvas import ENDINGS, draw
from ..workbench.vectors.raw_text import read_texts
from ._app import Code, GpuId, Messages, load_pipeline, messages, setup_gpu
from ._group import tener_cli
from .evaluate import NamingCorpus

if TYPE_CHECKING:
    from ..explain import Explanation


_FILE = re.compile(r"\S+\.(txt|json|jsonl|ndjson|spacy)(\.\w+)?")


@tener_cli.command("explain")
def explain_cli(
    model: Annotated[str, typer.Argument(help="Name or path of a pipeline with tener_ner")],
    text: Annotated[
        str | None, typer.Argument(help="A text, or a file: a text a line, JSONL, .spacy; - for standard input")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write: .html, .json, .png or .svg")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="A .spacy file with entities, or a directory of them")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Data in place of a page; without -o to be printed")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most texts of a file or a corpus", min=1)] = 100,
    component: Annotated[str | None, typer.Option(help="Name of the tener_ner (default: the first)")] = None,
    evidence: Annotated[bool, typer.Option(help="Mask characters to see what entities rest on")] = True,
    maps: Annotated[bool, typer.Option(help="Show what the encoder looked at")] = True,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Say why a pipeline found its entities: how sure it is of each, what else it may be, which characters it rests on,
    which words of the lexicon it read, and what the encoder looked at. One page that needs no network.

    With --corpus, the page says where entities are unlike the annotation. Figures are of one text, and need matplotlib:
    pip install 'spacy_tener[plot]'
    """
    from ..explain import explain  # it needs torch, which spaCy's other commands do without

    import_code(code)
    kind = _kind(output, as_json)
    with messages(on_stderr=as_json and output is None) as msg:
        setup_gpu(gpu_id, silent=as_json)
        nlp = load_pipeline(model)
        texts = _texts(nlp, text, corpus, limit + 1)
        if len(texts) > limit:
            msg.warn(f"The first {limit} texts are explained", "Take more by --limit.")
        found = explain(nlp, texts[:limit], name=component, evidence=evidence, maps=maps)
        if output is None:
            print(found.to_json(), end="", file=sys.__stdout__)
            return
        _write(msg, found, output, kind)
        count = sum(len(one.entities) for one in found.texts)
        msg.good(f"{output.resolve()}: {count} entities of {len(found.texts)} texts")


def _kind(output: Path | None, as_json: bool) -> str:
    """The ending of what is written."""
    if as_json:
        return ".json"
    kind = "" if output is None else output.suffix
    if kind not in (".html", ".json", *ENDINGS):
        with messages():
            raise RemedyError("Where to?", "Name a file by -o that ends in .html, .json, .png or .svg; or give --json.")
    return kind


def _texts(nlp: Language, text: str | None, corpus: Path | None, limit: int) -> list[str] | list[Example]:
    if text is not None and corpus is None:
        if os.path.isdir(text) or (_FILE.fullmatch(text) and not os.path.isfile(text)):
            raise RemedyError(f"{text}: there is no such file", "Give a text, a file of texts, or a --corpus.")
        lines = read_texts(text) if text == STDIN or os.path.isfile(text) else iter([text])
        texts = list(islice((line for line in lines if line.strip()), limit))
        if not texts:
            raise RemedyError(f"{text or 'The text'}: there is nothing in it", "Give a text with some characters.")
        return texts
    if text is not None or corpus is None:
        raise RemedyError("There must be a text, a file or a corpus", "Give one of them.")
    own_tokens = nlp.config.get("corpora", {}).get("dev", {}).get("gold_preproc", False)
    examples = list(islice(NamingCorpus(corpus, gold_preproc=own_tokens)(nlp), limit))
    if not examples:
        raise RemedyError(f"{corpus}: there are no Docs in .spacy files", "Make them with `spacy tener convert`.")
    return examples


def _write(msg: Messages, found: Explanation, output: Path, kind: str) -> None:
    if kind in ENDINGS:
        from ..explain.figures import paint, panel_height, panels

        if len(found.texts) > 1:
            raise RemedyError("A figure is of one text", "Give one text, --limit 1, or -o with a page's name.")
        with warnings.catch_warnings(record=True) as missing:
            warnings.filterwarnings("always", "Glyph .* missing")
            shown = panels(found.texts[0])
            if not shown:
                raise RemedyError("There is nothing to draw: no entity is found", "Leave out --no-maps.")
            draw(output, shown, paint, height=panel_height(shown.values()))
        if missing:
            msg.warn("Characters are missing in the figure", "Install a font that has them, such as Noto Sans CJK SC.")
    else:
        write_text(output, found.to_json() if kind == ".json" else found.to_html())
