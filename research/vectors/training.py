"""Train vectors on raw texts with gensim's word2vec, and write `chars.vec`, `bigrams.vec` and `words.vec`.

The texts are first split into strings and written to disk with their counts. gensim reads this file in C, which is
twice as fast as iterating over sentences in Python. Memory usage depends on the number of distinct strings, not on the
size of the corpus.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from spacy_tener.errors import InputError, UserError, install
from spacy_tener.files import check_folder
from spacy_tener.types import FloatArray

from ..raw_corpus import read_paragraphs
from .strings import BIGRAMS, CHARS, KINDS, WORDS, TextSettings, TextSplitter

# The default minimum frequency of a string.
MIN_COUNTS = {CHARS: 1, BIGRAMS: 2, WORDS: 2}
# Maximum number of distinct strings that are counted. Beyond it, the rarest strings are removed.
MAX_STRINGS = 5_000_000

_BLOCK = 1 << 14


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of word2vec (CBOW with negative sampling).

    width: Number of dimensions.
    epochs: Number of passes over the texts.
    min_count: Minimum frequency of a string.
    seed: Random seed. Vectors are reproducible.
    """

    width: int = 50
    epochs: int = 3
    min_count: int = 1
    seed: int = 1


class StringFile:
    """A text file of strings with their counts: one line per paragraph, strings separated by spaces."""

    def __init__(self, path: Path, *, max_strings: int = MAX_STRINGS) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self.lines = 0
        self.tokens = 0
        self._max_strings = max_strings
        self._stream = path.open("w", encoding="utf8", newline="\n")

    def __enter__(self) -> StringFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def add(self, strings: list[str]) -> None:
        """Write the strings of one paragraph."""
        if strings:
            self._stream.write(" ".join(strings) + "\n")
            self.counts.update(strings)
            self.lines += 1
            self.tokens += len(strings)
            if len(self.counts) > self._max_strings:
                self._forget_rarest()

    def _forget_rarest(self) -> None:
        min_count = 1
        while len(self.counts) > self._max_strings // 2:  # Reduce to half, so that it is not necessary again soon.
            min_count += 1
            self.counts = Counter({string: count for string, count in self.counts.items() if count >= min_count})


def train_vectors(file: StringFile, settings: TrainingSettings, *, name: str) -> tuple[list[str], FloatArray]:
    """Train vectors, and return the strings that are frequent enough, sorted by frequency, with their vectors.

    name: Kind of the strings, for error messages.
    RETURNS: Strings and vectors. *Shape:* (strings, width)
    """
    if not any(count >= settings.min_count for count in file.counts.values()):
        reason = f"None of the {len(file.counts):,} distinct {name} occurs {settings.min_count} times"
        raise UserError(reason, "Give more text, or a smaller --min-count.")
    # Use a single thread, since training with several threads is not reproducible.
    model = word2vec()(vector_size=settings.width, min_count=settings.min_count, seed=settings.seed, workers=1)
    model.build_vocab_from_freq(file.counts, corpus_count=file.lines)
    path = os.fsencode(file.path)  # gensim waits forever for a path given as a string that is not valid UTF-8
    model.train(corpus_file=path, total_examples=file.lines, total_words=file.tokens, epochs=settings.epochs)
    return list(model.wv.index_to_key), model.wv.vectors


def write_vectors(path: Path, strings: list[str], table: FloatArray) -> None:
    """Write vectors in word2vec's text format: a first line `rows width`, followed by one line per string."""
    line = " ".join(["%s", *["%.5g"] * table.shape[1]]) + "\n"
    with path.open("w", encoding="utf8", newline="\n") as stream:
        stream.write(f"{len(strings)} {table.shape[1]}\n")
        for start in range(0, len(strings), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = zip(strings[block], table[block].tolist(), strict=True)
            stream.writelines(line % (string, *values) for string, values in rows)


def word2vec() -> Any:
    """Import gensim's class. If gensim is missing, the error contains the command to install it."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise UserError("Training vectors needs gensim", install("gensim")) from error
    return Word2Vec


@dataclass
class KindReport:
    """The vectors of one kind of strings.

    kind: The kind, from `KINDS`.
    file: Name of the file.
    strings: Number of strings with vectors.
    distinct: Number of distinct strings in the texts.
    tokens: Number of their occurrences in the texts.
    """

    kind: str
    file: str
    strings: int
    distinct: int
    tokens: int


def make_vectors(
    sources: Sequence[str],
    output: str | Path,
    training: Mapping[str, TrainingSettings],
    *,
    reading: TextSettings | None = None,
) -> list[KindReport]:
    """Train vectors on texts, and write them to the directory `output`.

    The texts are read once. While the command runs, their strings are stored next to the output. The files are replaced
    only when all vectors are finished, so a failed run does not change existing files.

    sources: Files, or `-` for standard input. See `find_texts`.
    training: Settings for each kind of strings that should get vectors.
    reading: Settings for splitting texts into strings.
    """
    output = Path(output)
    unknown = sorted(set(training) - set(KINDS))
    if unknown or not training:
        raise UserError(f"Unknown kinds of vectors: {unknown}", f"Use some of: {', '.join(KINDS)}.")
    check_folder(output)
    word2vec()
    reports = []
    output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as name:
        work = Path(name)
        files = _split_texts(sources, TextSplitter(training, reading or TextSettings()), work)
        for kind, file in tqdm(files.items(), desc="Training", unit=" kinds", leave=False, disable=None):
            strings, table = train_vectors(file, training[kind], name=kind)
            write_vectors(file.path.with_suffix(".vec"), strings, table)
            file.path.unlink()
            reports.append(KindReport(kind, f"{kind}.vec", len(strings), len(file.counts), file.tokens))
            file.counts.clear()
        output.mkdir(exist_ok=True)
        for path in sorted(work.iterdir()):
            path.replace(output / path.name)
    return reports


def _split_texts(sources: Sequence[str], split: TextSplitter, work: Path) -> dict[str, StringFile]:
    """Write the strings of all texts to one file for each kind."""
    with ExitStack() as stack:
        files = {kind: stack.enter_context(StringFile(work / f"{kind}.txt")) for kind in split.kinds}
        for source in sources:
            shown = {"desc": f"Splitting {source}", "unit": " lines", "unit_scale": True}
            for text in tqdm(read_paragraphs([source]), leave=False, disable=None, **shown):
                for kind, strings in split(text).items():
                    files[kind].add(strings)
    if not all(file.tokens for file in files.values()):
        raise InputError(", ".join(sources), "there is no text", "Give files with a paragraph on each line.")
    return files
