"""Vectors from raw text by word2vec, in files that the embedders read: `chars.vec`, `bigrams.vec` and `words.vec`.

gensim does the training. Given a file of strings and their counts, it never sees a line in Python, which doubles its
speed, and nobody holds the corpus: memory goes with the number of distinct strings.
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

from spacy_tener.errors import InputError, RemedyError, install
from spacy_tener.files import check_folder
from spacy_tener.types import FloatArray

from ..raw_corpus import read_paragraphs
from .strings import BIGRAMS, CHARS, KINDS, WORDS, TextSettings, TextSplitter

MIN_COUNTS = {CHARS: 1, BIGRAMS: 2, WORDS: 2}
"""How often a string must occur to get a vector, by default."""
MAX_STRINGS = 5_000_000
"""Most distinct strings that are counted at once. Beyond it, the rarest are dropped."""

_BLOCK = 1 << 14


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of word2vec (CBOW with negative sampling).

    width: Length of a vector.
    epochs: Passes over the text.
    min_count: How often a string must occur to get a vector.
    seed: Start of the random numbers. The same seed gives the same vectors.
    """

    width: int = 50
    epochs: int = 3
    min_count: int = 1
    seed: int = 1


class StringFile:
    """Strings of text on disk, separated by spaces, a line for each paragraph, and how often each occurs."""

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
        """Write one paragraph."""
        if strings:
            self._stream.write(" ".join(strings) + "\n")
            self.counts.update(strings)
            self.lines += 1
            self.tokens += len(strings)
            if len(self.counts) > self._max_strings:
                self._forget_rarest()

    def _forget_rarest(self) -> None:
        min_count = 1
        while len(self.counts) > self._max_strings // 2:  # down to half, so that it is not needed again soon
            min_count += 1
            self.counts = Counter({string: count for string, count in self.counts.items() if count >= min_count})


def train_vectors(file: StringFile, settings: TrainingSettings, *, name: str) -> tuple[list[str], FloatArray]:
    """Return the strings of a file that occur often enough, the most frequent first, and their vectors.

    name: what the strings are, for messages.

    RETURNS: Strings, and their vectors. *Shape:* (strings, width)
    """
    if not any(count >= settings.min_count for count in file.counts.values()):
        reason = f"None of the {len(file.counts):,} distinct {name} occurs {settings.min_count} times"
        raise RemedyError(reason, "Give more text, or a smaller --min-count.")
    # With one thread, as with more no two runs are the same.
    model = word2vec()(vector_size=settings.width, min_count=settings.min_count, seed=settings.seed, workers=1)
    model.build_vocab_from_freq(file.counts, corpus_count=file.lines)
    path = os.fsencode(file.path)  # for a path that is not UTF-8, as a string, gensim waits forever
    model.train(corpus_file=path, total_examples=file.lines, total_words=file.tokens, epochs=settings.epochs)
    return list(model.wv.index_to_key), model.wv.vectors


def write_vectors(path: Path, strings: list[str], table: FloatArray) -> None:
    """Write word2vec's text format: a first line `rows width`, then a line for each string."""
    line = " ".join(["%s", *["%.5g"] * table.shape[1]]) + "\n"
    with path.open("w", encoding="utf8", newline="\n") as stream:
        stream.write(f"{len(strings)} {table.shape[1]}\n")
        for start in range(0, len(strings), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = zip(strings[block], table[block].tolist(), strict=True)
            stream.writelines(line % (string, *values) for string, values in rows)


def word2vec() -> Any:
    """Import gensim's class, or raise an error with the command that installs it."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise RemedyError("Training vectors needs gensim", install("gensim")) from error
    return Word2Vec


@dataclass
class KindReport:
    """The vectors of one kind of strings.

    file: its name. strings: with a vector; distinct: before `min_count`; tokens: their occurrences in the text.
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
    """Train vectors for the strings of some texts, and write them below `output`.

    The text is read once, and is on disk beside the output as long as this takes, split into strings. Files appear when
    everything is done, each at once: a run that fails leaves what was there.

    sources: Files, and `-` for standard input. See `find_texts`.
    training: How to train each kind of `KINDS` that is wanted.
    """
    output = Path(output)
    unknown = sorted(set(training) - set(KINDS))
    if unknown or not training:
        raise RemedyError(f"Unknown kinds of vectors: {unknown}", f"Use some of: {', '.join(KINDS)}.")
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
    """Write the strings of all texts, each kind to a file."""
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
