"""`spacy tener vectors`: vectors of words, by a pretrained encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..corpora.tokenizers import blank_pipeline
from ..errors import counted
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


@command("vectors", stopped="The same command continues.")
def vectors_cli(
    ctx: typer.Context,
    encoder: Annotated[str, typer.Argument(help="ONNX file, or a transformer: its directory, minilm or e5")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Raw texts, whose words are taken (default: GloVe's)")
    ] = None,
    *,
    output: Annotated[Path, options.output("a file, as static.vec")],
    words: Annotated[Path | None, typer.Option("--words", help="List of words, one on each line")] = None,
    max_words: Annotated[
        int, typer.Option("--max-words", help="Maximum number of words: the first ones", min=1)
    ] = 100_000,
    lang: Annotated[str, options.lang("its tokenizer finds their words")] = "en",
    layers: Annotated[str, typer.Option("--layers", help="Layers of a transformer that are averaged")] = "1,2,3,4",
    outputs: Annotated[str, typer.Option("--outputs", help="Outputs of an ONNX file that are averaged")] = "",
    width: Annotated[int, typer.Option("--width", help="Number of principal components", min=1)] = 100,
    force: options.Force = False,
) -> None:
    """
    Make vectors of words by a pretrained encoder.

    Each word is read alone, and gets the mean of its pieces in some layers, reduced to principal components. The
    overlay static reads the vectors; a trained pipeline needs no encoder.

    The words are GloVe's most frequent ones (extra glove), those of a list, or those of raw texts, the most frequent
    first. A command that was stopped continues when it is called again.
    """
    check_file(output, force)
    if words is not None and texts:
        raise CommandLineError("Both --words and raw texts give words", "Leave one of them out.")
    if not texts:
        refuse_options(ctx, ["lang"], "there are no raw texts", "Name some, or leave it out.")
    if encoder.endswith(".onnx"):
        refuse_options(ctx, ["layers"], "the layers of an ONNX file have names", "Name them by --outputs.")
    else:
        refuse_options(ctx, ["outputs"], "the layers of a transformer have numbers", "Name them by --layers.")
    if words is not None:
        found = words_of_list(words)
    elif texts:
        found = words_of_texts(blank_pipeline(lang), stream_texts(texts))
    else:
        found = read_glove_words()
    selected = select_words(found, max_words)
    reader = WordEncoder(encoder, _numbers(layers), names(outputs))
    count, share = write_static_vectors(reader, selected, width, output)
    msg.good(f"{output}: {counted(count, 'word')}, {width} of {reader.width} components, {share:.0%} of the variance")
    if count < len(selected):
        msg.warn(f"{counted(len(selected) - count, 'word')} left out, which the encoder cannot read")


def _numbers(text: str) -> list[int]:
    numbers = names(text)
    if not numbers or not all(map(str.isdecimal, numbers)):
        raise CommandLineError(f"--layers {text}: these are no numbers of layers", "Write them as in 1,2,3,4.")
    return list(map(int, numbers))
