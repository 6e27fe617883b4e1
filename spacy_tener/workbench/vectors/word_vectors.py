"""Vectors for strings by word2vec, from a file of strings that has been counted while it was written.

gensim does the training. Given a file and the counts, it never sees a line in Python, which doubles its speed, and
nobody holds the corpus: memory goes with the number of distinct strings.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ...errors import RemedyError, install
from ...types import FloatArray

MAX_STRINGS = 5_000_000
"""Most distinct strings that are counted at once. Beyond it, the rarest are dropped."""

_BLOCK = 1 << 14


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of word2vec (CBOW with negative sampling).

    width: Length of a vector.
    epochs: Passes over the text.
    window: How many strings before and after one are its context, at most.
    negative: Strings drawn at random that each string is told from.
    min_count: How often a string must occur to get a vector.
    seed: Start of the random numbers. The same seed gives the same vectors, with one worker.
    workers: Threads. With more than one, no two runs are the same.
    """

    width: int = 50
    epochs: int = 3
    window: int = 5
    negative: int = 5
    min_count: int = 1
    seed: int = 1
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "epochs", "window", "negative", "min_count", "workers"):
            if getattr(self, name) < 1:
                raise RemedyError(f"{name} must be at least 1, but is {getattr(self, name)}", "Give a larger number.")
        if not 0 <= self.seed < 2**32:
            raise RemedyError(f"seed must be from 0 to {2**32 - 1}, but is {self.seed}", "Give another number.")


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
        least = 1
        while len(self.counts) > self._max_strings // 2:  # down to half, so that it is not needed again soon
            least += 1
            self.counts = Counter({string: count for string, count in self.counts.items() if count >= least})


def train_vectors(
    file: StringFile, settings: TrainingSettings, *, name: str, progress: bool = False
) -> tuple[list[str], FloatArray]:
    """Return the strings of a file that occur often enough, the most frequent first, and their vectors.

    name: what the strings are, for messages.

    *Shape* of the table: [strings, width]
    """
    if not any(count >= settings.min_count for count in file.counts.values()):
        reason = f"None of the {len(file.counts):,} distinct {name} occurs {settings.min_count} times"
        raise RemedyError(reason, "Give more text, or a smaller --min-count.")
    model = word2vec()(
        vector_size=settings.width,
        window=settings.window,
        negative=settings.negative,
        min_count=settings.min_count,
        seed=settings.seed,
        workers=settings.workers,
    )
    model.build_vocab_from_freq(file.counts, corpus_count=file.lines)
    hidden = None if progress else True  # None: on a terminal only
    with tqdm(total=settings.epochs, desc=f"Training {name}", unit=" epochs", leave=False, disable=hidden) as bar:
        model.train(
            corpus_file=str(file.path),
            total_examples=file.lines,
            total_words=file.tokens,
            epochs=settings.epochs,
            callbacks=[_epoch_counter(bar)],
        )
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


def _epoch_counter(bar: Any) -> Any:
    """Return a callback that advances a progress bar after each epoch."""
    from gensim.models.callbacks import CallbackAny2Vec

    class EpochCounter(CallbackAny2Vec):  # type: ignore[misc,unused-ignore]
        def on_epoch_end(self, model: Any) -> None:
            bar.update()

    return EpochCounter()
