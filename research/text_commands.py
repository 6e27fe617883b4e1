"""Command that trains word vectors on raw texts: vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spacy_tener.annotate.records import find_texts
from spacy_tener.cli import options
from spacy_tener.cli._common import msg, names, refuse_options
from spacy_tener.processes import interrupted_by_signals

from .app import command
from .vectors.strings import KINDS, WORDS, TextSettings
from .vectors.training import MIN_COUNTS, TrainingSettings, make_vectors

_MIN_COUNTS = ", ".join(f"{count} for {kind}" for kind, count in MIN_COUNTS.items())


@command("vectors")
def vectors_cli(
    ctx: typer.Context,
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a directory")],
    kinds: Annotated[
        str, options.choice(("--kinds",), "Kinds of strings that get vectors", KINDS, several=True)
    ] = ",".join(KINDS),
    lang: Annotated[str, options.lang("words are split by it")] = "zh",
    width: Annotated[int, typer.Option(help="Length of a vector", min=1)] = 50,
    epochs: Annotated[int, typer.Option(help="Passes over the text", min=1)] = 3,
    min_count: Annotated[
        int | None, typer.Option(help=f"Fewest occurrences of a string (default: {_MIN_COUNTS})", min=1)
    ] = None,
    digits: Annotated[
        bool, typer.Option("--digits/--keep-digits", help="Read every digit as 0, or keep digits")
    ] = True,
    lower: Annotated[
        bool, typer.Option("--lower/--keep-case", help="Read upper case as lower case, or keep it")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed", min=0, max=2**32 - 1)] = 1,
) -> None:
    """
    Train character, bigram and word vectors on raw texts with word2vec.

    Supported formats are text with one paragraph per line (.txt or any other suffix), JSONL with a "text", and .spacy
    files, uncompressed or as .gz, .bz2 or .xz. A file that is listed several times is used several times. Writes
    chars.vec, bigrams.vec and words.vec in word2vec's text format, for the paths of a config. Chinese text is segmented
    into words with jieba.

    Digits and case must be normalized in the same way as by the embedders in the config: by default, digits are
    replaced by 0, and case is kept.
    """
    if WORDS not in names(kinds):
        why = "only for words, which get no vectors here"
        refuse_options(ctx, ["lang"], why, "Leave it out, or add words to --kinds.")
    counts = {kind: MIN_COUNTS.get(kind, 1) if min_count is None else min_count for kind in names(kinds)}
    training = {
        kind: TrainingSettings(width=width, epochs=epochs, min_count=count, seed=seed) for kind, count in counts.items()
    }
    sources, left_out = find_texts(texts)
    msg.warn_list("Files left out, as they hold no text", left_out, most=5)
    with interrupted_by_signals():
        reports = make_vectors(sources, output, training, reading=TextSettings(lang=lang, digits=digits, lower=lower))
    msg.table(
        [(output / part.file, f"{part.strings:,}", f"{part.distinct:,}", f"{part.tokens:,}") for part in reports],
        header=("File", "Vectors", "Distinct", "Occurrences"),
        aligns=("l", *"rrr"),
        divider=True,
    )
