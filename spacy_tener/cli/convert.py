"""`python -m spacy tener convert`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from wasabi.printer import Printer

from ..workbench.corpus.convert import ConversionReport, DocOptions, convert_jobs
from ..workbench.corpus.inputs import plan_jobs
from ..workbench.corpus.offsets import OVERLAPS, UNITS
from ..workbench.corpus.reader import FORMATS, ReadOptions
from ..workbench.corpus.schemes import SCHEMES
from ._app import messages
from ._group import tener_cli

_FORMAT_HELP = f"Format of the inputs: auto, {', '.join(FORMATS)}"
_LANG_HELP = "Language, whose tokenizer splits texts; auto tells Chinese and English by their letters"
_COLUMN_HELP = "Column of the {}, counted from 1, or from -1 for the last"
_NAMES_HELP = "Names of numbered tags: O,B-PER,... or a JSON file; by default the dataset_info.json beside the corpus"
_SCHEME_HELP = f"Tag scheme of the inputs: auto, {', '.join(SCHEMES)}"


@tener_cli.command("convert")
def convert_cli(
    inputs: Annotated[list[str], typer.Argument(help="Files, directories, or - for standard input")],
    output: Annotated[Path, typer.Argument(help="Output directory, or a .spacy file where there is one input")],
    lang: Annotated[str, typer.Option("--lang", "-l", help=_LANG_HELP)] = "auto",
    format: Annotated[str, typer.Option("--format", "-f", help=_FORMAT_HELP)] = "auto",
    scheme: Annotated[str, typer.Option("--scheme", "-s", help=_SCHEME_HELP)] = "auto",
    n_sents: Annotated[int, typer.Option("--n-sents", "-n", help="Sentences per Doc, 0 for whole documents")] = 1,
    spaces: Annotated[
        str, typer.Option(help="Spaces between the tokens of columns: auto (by language), yes, no")
    ] = "auto",
    offsets: Annotated[str, typer.Option(help=f"What JSON offsets count: {', '.join(UNITS)}")] = "codepoint",
    overlap: Annotated[str, typer.Option(help=f"What to do where JSON spans overlap: {', '.join(OVERLAPS)}")] = "error",
    glob: Annotated[str, typer.Option("--glob", "-g", help="Files to take from directories, as in '*.bmes'")] = "",
    encoding: Annotated[str, typer.Option(help="Encoding of the inputs, as gb18030")] = "utf-8",
    token_column: Annotated[int | None, typer.Option(help=_COLUMN_HELP.format("tokens"), show_default="first")] = None,
    tag_column: Annotated[int | None, typer.Option(help=_COLUMN_HELP.format("tags"), show_default="last")] = None,
    tag_names: Annotated[str, typer.Option(help=_NAMES_HELP)] = "",
    join: Annotated[bool, typer.Option("--join", "-j", help="Write all inputs into one .spacy file")] = False,
    include_nt: Annotated[
        bool, typer.Option("--include-nt", help="Keep OntoNotes' New Testament, which has no names annotated")
    ] = False,
) -> None:
    """
    Convert NER corpora to .spacy files, one for each input.

    Reads `token ... TAG` columns (CoNLL-2003 with -DOCSTART-, one character a line, Weibo NER) with tags in BMES,
    BIOES, BILOU, IOB1 or IOB2; OntoNotes 5 in the columns of CoNLL-2012 (*_gold_conll; without the New Testament);
    JSON or JSONL with character offsets (doccano, Prodigy, Label Studio, CLUENER, spaCy 2's training data) or with
    tokens and tags (Hugging Face); brat's .ann beside .txt. Any of it plain, .gz, .bz2 or .xz. An output is named after
    its input without the endings that name a format (train.char.bmes makes train.spacy, x.train makes x.train.spacy).

    Tags that cannot stand where they do are read as conlleval reads them (an I-X after O or after another type begins
    an entity), counted and reported; so is everything else that is not taken as written.
    """
    with messages() as msg:
        reading = ReadOptions(
            format=format,
            scheme=scheme,
            offsets=offsets,
            overlap=overlap,
            new_testament=include_nt,
            encoding=encoding,
            token_column=token_column,
            tag_column=tag_column,
            tag_names=tag_names,
        )
        making = DocOptions(lang=None if lang == "auto" else lang, n_sents=n_sents, spaces=spaces)
        jobs, left_out = plan_jobs(inputs, output, glob=glob or None, join=join)
        if left_out:
            msg.info(f"Files left out: {len(left_out)}", ", ".join(path.name for path in left_out[:10]))
        for report in convert_jobs(jobs, reading=reading, making=making, progress=True):
            print_conversion(msg, report, detected=lang == "auto")


def print_conversion(msg: Printer, report: ConversionReport, *, detected: bool) -> None:
    """Print what was read, and everything that was not taken as written."""
    if report.docs:
        msg.good(f"{report.source} -> {report.output}")
    else:
        msg.info(f"{report.source}: nothing to write")
    if report.docs and detected:
        msg.info(f"Language: {report.lang}, by its letters (name another with --lang)")
    if report.docs:
        msg.table(_counts(report), aligns=("l", "r"))
    for event, count in report.notes.counts.items():
        examples = report.notes.examples[event]
        more = f" ... {count - len(examples)} more" if count > len(examples) else ""
        msg.warn(f"{event.value}: {count:,}", "; ".join(examples) + more)


def _counts(report: ConversionReport) -> Sequence[tuple[str, str]]:
    numbers = {
        "Documents": report.documents,
        "Sentences": report.sentences,
        "Docs written": report.docs,
        "Tokens": report.tokens,
        "Tokens without annotation": report.missing,
        "Entities": report.entities,
        **{f"  {label}": count for label, count in sorted(report.labels.items())},
    }
    described = [("Format", report.format)]
    if report.scheme:
        described.append(("Tag scheme", report.scheme))
    return [*described, *((name, f"{number:,}") for name, number in numbers.items())]
