"""Static vectors: what a pretrained encoder says of each word alone, as rows of a table, which need no encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ..errors import RemedyError, counted
from ..files import write_file
from ..models.embed.onnx import build_onnx_embed
from ..onnx.sources import onnx_encoder
from ..types import FloatArray

_WORDS_AT_ONCE = 512
_ROWS_AT_ONCE = 1 << 14
"""Rows that are reduced at once, so that a million words take little memory."""

States = NDArray[np.float16]
"""The encoder's features of words. *Shape:* (words, width)"""


class WordEncoder:
    """A pretrained encoder, which reads words alone.

    name (str): An ONNX file with its vocabulary beside it, a transformer's directory, or its name.
    layers (Sequence[int]): The layers of a transformer that are averaged.
    """

    def __init__(self, name: str, layers: Sequence[int]) -> None:
        if name.endswith(".onnx"):
            self._model = build_onnx_embed(onnx_encoder(name), width=None, cache=0)
        else:
            from ..models.transformer.embed import build_transformer_embed

            self._model = build_transformer_embed(name, layers=list(layers), frozen=True, cache=0)
        self._model.initialize()
        self.width = self._model.get_dim("nO")

    def __call__(self, words: Sequence[str]) -> FloatArray:
        """Return the mean of each word's pieces, without special ones; 0 for a word without pieces.

        *Shape:* (words, width)
        """
        vocab = Vocab()
        rows = self._model.predict([Doc(vocab, words=[word], spaces=[False]) for word in words])
        return np.asarray(rows, dtype=np.float32).reshape(len(words), self.width)


def words_of_texts(nlp: Language, texts: Iterable[str]) -> list[str]:
    """Return the tokens of texts, the most frequent first."""
    counts = Counter(token.text for text in texts for token in nlp.tokenizer(text))
    return [word for word, _ in counts.most_common()]


def select_words(words: Iterable[str], limit: int) -> list[str]:
    """Return the first distinct words. A word with white space is left out, as no token has any; so is one with a NUL,
    which text formats of vectors cannot hold."""
    distinct = dict.fromkeys(word for word in words if word and not any(c.isspace() or c == "\0" for c in word))
    return list(islice(distinct, limit))


def write_static_vectors(encoder: WordEncoder, words: Sequence[str], width: int, output: Path) -> tuple[int, float]:
    """Write the principal components of each word's features, in word2vec's text format.

    width (int): Number of principal components.
    RETURNS (Tuple[int, float]): Number of words with a vector, and the components' share of the variance.
    """
    if not words:
        raise RemedyError("There are no words", "Give raw texts with some.")
    if width > min(encoder.width, len(words)):
        reason = f"{counted(len(words), 'word')} with {encoder.width} features have no {width} principal components"
        raise RemedyError(reason, f"Use --width {min(encoder.width, len(words))} or less, or more words.")
    states: States = np.empty((len(words), encoder.width), dtype=np.float16)
    with tqdm(total=len(words), unit="word", disable=None) as bar:
        for first in range(0, len(words), _WORDS_AT_ONCE):
            batch = words[first : first + _WORDS_AT_ONCE]
            states[first : first + len(batch)] = encoder(batch)
            bar.update(len(batch))
    has_pieces = np.any(states, axis=1)
    count = int(has_pieces.sum())
    mean, directions, share = _principal_components(states, count, width)

    def write(file: IO[bytes]) -> None:
        file.write(f"{count} {width}\n".encode())
        for first, block in zip(range(0, len(words), _ROWS_AT_ONCE), _blocks(states), strict=True):
            rows = (block.astype(np.float32) - mean) @ directions
            for index in np.flatnonzero(has_pieces[first : first + _ROWS_AT_ONCE]).tolist():
                values = " ".join(f"{value:.4f}" for value in rows[index])
                file.write(f"{words[first + index]} {values}\n".encode())

    write_file(output, write)
    return count, share


def _blocks(states: States) -> Iterator[States]:
    for first in range(0, len(states), _ROWS_AT_ONCE):
        yield states[first : first + _ROWS_AT_ONCE]


def _principal_components(states: States, count: int, width: int) -> tuple[FloatArray, FloatArray, float]:
    """Return the mean, the directions of most variance, *Shape:* (features, width), and their share of the variance.

    count (int): Number of words with pieces. The others have rows of zeros.
    """
    n_features, count = states.shape[1], max(count, 1)
    total, squares = np.zeros(n_features), np.zeros((n_features, n_features))
    for block in _blocks(states):
        rows = block.astype(np.float64)
        total += rows.sum(axis=0)
        squares += rows.T @ rows
    mean = total / count
    variances, directions = np.linalg.eigh(squares / count - np.outer(mean, mean))
    share = float(variances[-width:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))
    return mean.astype(np.float32), directions[:, : -width - 1 : -1].astype(np.float32), share
