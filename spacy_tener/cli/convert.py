"""The command `convert`, which converts annotated corpora to `.spacy` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..corpora.annotation import COLUMN_FORMATS, CORPUS_FORMATS, LABEL_STUDIO, OVERLAPS, TEXT_FORMATS, TOKENS, Event
from ..corpora.columns import ALIASES, SCHEMES
from ..corpora.convert import ConversionReport, convert_jobs, plan_jobs
from ..corpora.docs import INCORRECT
from ..corpora.reader import CorpusOptions
from ..corpora.tokenizers import TOKEN_TYPES, WORDS
from ..errors import pluralize
from . import options
from ._common import (
    check_file,
    command,
    command_line_errors,
    msg,
    names,
    options_in_use,
)

_COLUMN_HELP = "Number of the {} column (1 = first, -1 = last)"
_SENTENCE_FORMATS = (*COLUMN_FORMATS, TOKENS)
# The formats that support each option. Options that are not listed apply to all formats.
_USED_BY = {
    "overlap": TEXT_FORMATS,
    "tokens": TEXT_FORMATS,
    "scheme": _SENTENCE_FORMATS,
    "texts": (LABEL_STUDIO,),
    "token_column": COLUMN_FORMATS,
    "tag_column": COLUMN_FORMATS,
    "tag_names": (TOKENS,),
}

# How to keep entities whose boundaries are inside tokens. It is printed after the examples of these events.
_KEEP_BY_CHARACTERS = (
    'To learn and find these entities, use `--tokens characters`, and train with `view = "characters"` of tener_ner.'
)
_INSIDE_TOKENS = (Event.MISALIGNED, Event.SPLIT)


@command("convert")
def convert_cli(
    ctx: typer.Context,
    inputs: Annotated[list[str], typer.Argument(help="Files, directories, or - for standard input")],
    output: Annotated[Path, options.output("a directory, or a .spacy file for a single input")],
    format: Annotated[str, options.choice(("--from",), "Format of the inputs", ("auto", *CORPUS_FORMATS))] = "auto",
    lang: Annotated[
        str,
        options.lang(
            "a code such as de, or auto, which detects Chinese and English, and uses xx for other languages in Latin "
            "script (for all other scripts, a code is required)",
            auto=True,
        ),
    ] = "auto",
    tokens: Annotated[
        str,
        options.choice(("--tokens",), "Tokenization of JSON texts with character offsets", TOKEN_TYPES),
    ] = WORDS,
    scheme: Annotated[
        str, typer.Option(help=f"Tag scheme of the inputs: auto, {', '.join(map(_with_aliases, SCHEMES))}")
    ] = "auto",
    overlap: Annotated[
        str, options.choice(("--overlap",), "How to handle overlapping spans in JSON", OVERLAPS)
    ] = "error",
    texts: Annotated[
        str,
        typer.Option(
            help="Texts to use: keys in the `data` of Label Studio tasks, separated by commas, such as title,body. The "
            "texts with these keys are converted even if they contain no entities (default: only texts with entities)"
        ),
    ] = "",
    encoding: options.Encoding = "utf-8",
    token_column: Annotated[int | None, typer.Option(help=_COLUMN_HELP.format("token"), show_default="first")] = None,
    tag_column: Annotated[int | None, typer.Option(help=_COLUMN_HELP.format("tag"), show_default="last")] = None,
    tag_names: Annotated[
        str,
        typer.Option(
            help="Tag names in the order of their integer IDs, separated by commas, such as O,B-PER,I-PER (for files "
            "that contain tag IDs instead of tag names)"
        ),
    ] = "",
    force: options.Force = False,
) -> None:
    """Convert annotated corpora to .spacy files.

    Two families of formats are supported. In column formats, each line contains a token and its tag: CoNLL-2003,
    CoNLL-U, Weibo NER, or one character per line. The tags may be BMES, BIOES, BILOU, IOB1 or IOB2. A line `# text = `
    restores the whitespace between the tokens. JSON or JSONL contains character offsets (doccano, Prodigy, Label
    Studio, CLUENER, spaCy 2) or tokens with tags (Hugging Face). All files may be compressed (.gz, .bz2, .xz).

    Each input file is converted to one output file. Known format suffixes are replaced with .spacy: train.char.bmes
    becomes train.spacy, but x.train becomes x.train.spacy.

    Prodigy's binary annotation accepts or rejects single spans. Accepted spans become entities. Rejected spans become
    negative examples in `doc.spans["incorrect_spans"]`. All other tokens get missing annotation. If a Label Studio task
    has several annotations, the ground truth is used, or the first annotation if none is marked as ground truth.

    Invalid tag sequences are interpreted as in the script conlleval: for example, I-X begins an entity after O or after
    another type. The command prints the number of all corrections.

    An entity can only begin and end at token boundaries. --tokens characters makes each character a token, to keep
    entities inside words, such as "Excel" in "Excelkenntnisse". To train on the result, set `view = "characters"` in
    the config of `tener_ner`, or use the tokenizer `spacy_tener.CharTokenizer.v1`. Without one of these settings,
    `spacy train` treats entities inside words as missing annotation.

    --overlap specifies what to do with overlapping entities. `longest` keeps only the longest entity. `spans` stores
    all entities in `doc.spans["sc"]`, for the overlay `nested`, and the longest in `doc.ents`.
    """
    with command_line_errors():
        corpus_options = CorpusOptions(
            format=format,
            scheme=scheme,
            overlap=overlap,
            texts=tuple(names(texts)),
            encoding=encoding,
            token_column=token_column,
            tag_column=tag_column,
            tag_names=tuple(names(tag_names)),
        )
    jobs, left_out = plan_jobs(inputs, output)
    for job in jobs:
        check_file(job.output, force)
    if left_out:
        msg.info(f"Skipped files: {len(left_out)}", ", ".join(Path(path).name for path in left_out[:10]))
    incorrect = 0
    formats: set[str] = set()
    for report in convert_jobs(jobs, options=corpus_options, lang=None if lang == "auto" else lang, tokens=tokens):
        formats.update({report.format} - {""})
        _print_conversion(report, detected=lang == "auto")
        if overlap == "spans" and report.missing:
            msg.warn(
                f"A spancat treats {pluralize(report.missing, 'token')} with missing annotation as outside of entities",
                "To train a `tener_ner` instead, which supports missing annotation, add the overlay `nested` to your "
                "`tener config` command. Otherwise, annotate these texts completely.",
            )
        incorrect += report.incorrect
    _warn_of_unused(ctx, formats, overlap)
    if incorrect:
        msg.info(
            "To use the rejected spans in training, add this option to `spacy train`:",
            f"--components.tener_ner.incorrect_spans_key {INCORRECT}",
        )


def _with_aliases(scheme: str) -> str:
    """Return a tag scheme's name, with its alternative name in parentheses, such as "IOB2 (BIO)"."""
    aliases = [alias for alias, name in ALIASES.items() if name == scheme]
    return f"{scheme} ({', '.join(aliases)})" if aliases else scheme


def _warn_of_unused(ctx: typer.Context, formats: set[str], overlap: str) -> None:
    """Warn about options that don't apply to any converted format."""
    for name, readers in _USED_BY.items():
        if formats and formats.isdisjoint(readers) and (name, overlap) != ("overlap", "spans"):
            for option in options_in_use(ctx, [name]):
                fix = f"It applies only to the formats {', '.join(readers)}, not to {', '.join(sorted(formats))}."
                msg.warn(f"{option} had no effect", fix)


def _print_conversion(report: ConversionReport, *, detected: bool) -> None:
    """Print the report for one converted file: a table with counts, and the corrections."""
    if report.docs:
        msg.good(f"{report.source} -> {report.output}")
        if detected and report.lang == "xx":
            fix = "Set the language, for example with --lang de. To keep xx without this warning, add --lang xx."
            msg.warn(
                "Language: unknown, but not English. The texts were tokenized with language-independent rules (xx)", fix
            )
        elif detected:
            msg.info(f"Language: {report.lang}, detected from the characters in the texts (use --lang to change it)")
        msg.table(_counts(report), aligns=("l", "r"))
    else:
        msg.info(f"{report.source}: contains no texts, so no file was written")
    for event, count in report.notes.counts.items():
        examples = report.notes.examples[event]
        ending = f" ... {count - len(examples)} more" if count > len(examples) else ""
        fix = f"\n{_KEEP_BY_CHARACTERS}" if event in _INSIDE_TOKENS else ""
        msg.warn(f"{event.value}: {count:,}", "; ".join(examples) + ending + fix)


def _counts(report: ConversionReport) -> Sequence[tuple[str, str]]:
    """Return the table rows with a report's counts."""
    counts = {
        "Docs written": report.docs,
        "Tokens": report.tokens,
        "Tokens with missing annotation": report.missing,
        **({"Rejected spans": report.incorrect} if report.incorrect else {}),
        "Entities": report.entities,
        **({"Entities that overlap a longer one": report.overlapping} if report.overlapping else {}),
        **{f"  {label}": count for label, count in sorted(report.labels.items())},
    }
    scheme = [("Tag scheme", report.scheme)] if report.scheme else []
    return [("Format", report.format), *scheme, *((name, f"{count:,}") for name, count in counts.items())]
