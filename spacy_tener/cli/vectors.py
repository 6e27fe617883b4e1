"""`python -m spacy tener vectors`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from wasabi.printer import Printer

from ..workbench.runs.processes import interrupted_by_signals
from ..workbench.vectors.coverage import Coverage
from ..workbench.vectors.from_text import MIN_COUNTS, UNCOVERED, VectorsReport, make_vectors
from ..workbench.vectors.raw_text import find_texts
from ..workbench.vectors.strings import KINDS, TextSettings
from ..workbench.vectors.word_vectors import TrainingSettings
from ._app import messages, names
from ._group import tener_cli

_EXAMPLES = 10
_MIN_COUNT_HELP = "Occurrences that a string needs; by default " + ", ".join(
    f"{count} for {kind}" for kind, count in MIN_COUNTS.items()
)


@tener_cli.command("vectors")
def vectors_cli(
    inputs: Annotated[list[str], typer.Argument(help="Files, directories, or - for standard input")],
    output: Annotated[Path, typer.Argument(help="Output directory")],
    kinds: Annotated[str, typer.Option("--kinds", "-k", help="What gets vectors, between commas")] = ",".join(KINDS),
    lang: Annotated[str, typer.Option("--lang", "-l", help="Language, which decides how words are found")] = "zh",
    width: Annotated[int, typer.Option("--width", "-w", help="Length of a vector")] = 50,
    epochs: Annotated[int, typer.Option("--epochs", "-e", help="Passes over the text")] = 3,
    window: Annotated[int, typer.Option(help="Neighbours on either side that are a string's context")] = 5,
    negative: Annotated[int, typer.Option(help="Random strings that each string is told from")] = 5,
    min_count: Annotated[int | None, typer.Option(help=_MIN_COUNT_HELP, show_default=False)] = None,
    digits: Annotated[bool, typer.Option("--digits/--keep-digits", help="Read every digit as 0, or as it is")] = True,
    lower: Annotated[bool, typer.Option("--lower/--keep-case", help="Read upper case as lower case, or not")] = False,
    lexicon: Annotated[
        list[str] | None, typer.Option(help="List of words that jieba is to know, or directory of such; repeatable")
    ] = None,
    all_matches: Annotated[
        bool, typer.Option("--all-matches", help="Take all words of the dictionary that occur, nested ones too")
    ] = False,
    cover: Annotated[
        list[str] | None, typer.Option(help="List of words, or .spacy or .jsonl corpus, to report on; repeatable")
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of the random numbers")] = 1,
    workers: Annotated[int, typer.Option(help="Threads; only one gives the same vectors each time")] = 1,
) -> None:
    """
    Train character, bigram and word vectors on raw text.

    Reads text with a paragraph on each line (.txt, or any other name), JSONL with a "text", and .spacy files; plain,
    .gz, .bz2 or .xz. A file that is named several times counts so many times. Writes chars.vec, bigrams.vec and
    words.vec (word2vec's text format) for a config's paths, vectors.json with all settings and counts, and
    words.uncovered with the words of jieba's dictionary and of the lists that got no vector.

    Words are jieba's reading of the text; with --all-matches every word of its dictionary wherever it occurs, as a
    lattice has them, so that more of them get a vector. Lists given with --lexicon add to the dictionary.

    Digits and case must be what the embedders of the config say: by default digits are read as 0, and case is kept.
    """
    with messages() as msg, interrupted_by_signals():
        settings = TrainingSettings(
            width=width, epochs=epochs, window=window, negative=negative, seed=seed, workers=workers
        )
        counts = {kind: MIN_COUNTS.get(kind, 1) if min_count is None else min_count for kind in names(kinds)}
        training = {kind: replace(settings, min_count=count) for kind, count in counts.items()}
        reading = TextSettings(
            lang=lang, digits=digits, lower=lower, lexicon=tuple(lexicon or ()), all_matches=all_matches
        )
        sources, left_out = find_texts(inputs)
        if left_out:
            msg.info(f"Files left out: {len(left_out)}", ", ".join(path.name for path in left_out[:_EXAMPLES]))
        if workers > 1:
            msg.info(f"With {workers} workers the vectors differ from run to run, whatever the seed")
        report = make_vectors(
            sources,
            output,
            training,
            reading=reading,
            cover=cover or (),
            progress=True,
            note=lambda part: msg.good(f"{part.kind}: {part.strings:,} vectors in {part.seconds:.1f} s"),
        )
        print_vectors_report(msg, report, output)


def print_vectors_report(msg: Printer, report: VectorsReport, output: Path) -> None:
    """Print what was made, and what it covers."""
    msg.info(f"{report.characters:,} characters of text, split in {report.seconds:.1f} s")
    rows = [
        (part.path, f"{part.strings:,}", f"{part.distinct:,}", f"{part.tokens:,}", f"{part.seconds:.1f}")
        for part in report.kinds
    ]
    header = ("File", "Vectors", "Distinct", "Occurrences", "Seconds")
    msg.table(rows, header=header, aligns=("l", "r", "r", "r", "r"), divider=True)
    if report.coverage:
        _print_coverage(msg, report.coverage)
    if any(part.occurrences is None for part in report.coverage):
        msg.text(f"All words without a vector: {output / UNCOVERED}")


def _print_coverage(msg: Printer, coverage: Sequence[Coverage]) -> None:
    header = ("Covered", "Kind", "With a vector", "Of", "%", "% of occurrences")
    rows = [_coverage_row(part) for part in coverage]
    msg.table(rows, header=header, aligns=("l", "l", "r", "r", "r", "r"), divider=True)
    for part in coverage:
        if part.missing:
            msg.text(f"{part.source}, {part.kind} without: {' '.join(part.missing[:_EXAMPLES])}")


def _coverage_row(part: Coverage) -> tuple[str, ...]:
    occurrences = _percent(part.occurrences[1], part.occurrences[0]) if part.occurrences else ""
    strings, covered = f"{part.strings:,}", f"{part.covered:,}"
    return Path(part.source).name, part.kind, covered, strings, _percent(part.covered, part.strings), occurrences


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
