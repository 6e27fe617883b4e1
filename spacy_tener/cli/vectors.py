"""The command `vectors`, which computes static word vectors with a pretrained encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..corpora.tokenizers import blank_pipeline
from ..errors import pluralize
from ..features.pretrained_vectors import read_glove_words
from ..training.static_vectors import (
    WordEncoder,
    select_words,
    words_of_list,
    words_of_texts,
    write_static_vectors,
)
from . import options
from ._common import CommandLineError, check_file, command, msg, names, refuse_options, stream_texts


@command("vectors", stopped="Run the same command to continue.")
def vectors_cli(
    ctx: typer.Context,
    encoder: Annotated[
        str, typer.Argument(help="Encoder: minilm, e5, an ONNX file, or the directory of a transformer")
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Raw texts from which the words are extracted (default: the words of GloVe)"),
    ] = None,
    *,
    output: Annotated[Path, options.output("a file such as static.vec")],
    words: Annotated[Path | None, typer.Option("--words", help="File with one word on each line")] = None,
    max_words: Annotated[
        int, typer.Option("--max-words", help="Maximum number of words (the first words are used)", min=1)
    ] = 100_000,
    lang: Annotated[str, options.lang("determines the tokenizer")] = "en",
    layers: Annotated[
        str, typer.Option("--layers", help="Transformer layers to average, separated by commas")
    ] = "1,2,3,4",
    outputs: Annotated[
        str, typer.Option("--outputs", help="Names of the ONNX outputs to average, separated by commas")
    ] = "",
    width: Annotated[int, typer.Option("--width", help="Number of principal components", min=1)] = 100,
    force: options.Force = False,
) -> None:
    """Compute static word vectors with a pretrained encoder.

    Each word is encoded without context. A word's vector is the mean hidden state of its subword tokens, averaged over
    the selected layers and reduced by principal component analysis. Use the vectors with the overlay `static`. A
    pipeline with these vectors doesn't need the encoder.

    The words come from --words, from raw texts (the most frequent words first), or by default from GloVe (extra
    `glove`). If the command is stopped, run it again to continue.
    """
    check_file(output, force)
    if words is not None and texts:
        raise CommandLineError("Both --words and raw texts are given", "Use only one of them.")
    if not texts:
        refuse_options(ctx, ["lang"], "used only to tokenize raw texts", "Add raw texts, or remove {options}.")
    if encoder.endswith(".onnx"):
        refuse_options(ctx, ["layers"], "the layers of an ONNX file have names, not numbers", "Use --outputs.")
    else:
        refuse_options(ctx, ["outputs"], "the layers of a transformer have numbers, not names", "Use --layers.")
    if words is not None:
        found = words_of_list(words)
    elif texts:
        found = words_of_texts(blank_pipeline(lang), stream_texts(texts))
    else:
        found = read_glove_words()
    selected = select_words(found, max_words)
    reader = WordEncoder(encoder, _numbers(layers), names(outputs))
    count, explained_variance = write_static_vectors(reader, selected, width, output)
    words_written = pluralize(count, "word")
    msg.good(
        f"{output}: {words_written}, reduced from {reader.width} to {width} dimensions by principal component analysis "
        f"({explained_variance:.0%} of the variance explained)"
    )
    if count < len(selected):
        msg.warn(
            f"Skipped {pluralize(len(selected) - count, 'word')}, because the encoder has no subword tokens for them"
        )


def _numbers(text: str) -> list[int]:
    """Parse comma-separated layer numbers."""
    numbers = names(text)
    if not numbers or not all(map(str.isdecimal, numbers)):
        raise CommandLineError(
            f"--layers {text}: not a list of numbers", "Use numbers separated by commas, as in 1,2,3,4."
        )
    return list(map(int, numbers))
