"""Sources of encoders: ONNX files of the user, with the vocabulary of their input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import InputError, RemedyError
from ..features.pieces import WordPieces
from ..inputs import read_lines
from ..settings import check_pieces, named
from .encoder import Characters, Encoder, Vocabulary

EncoderSource = Callable[[], Encoder]

_VOCABULARIES = ("tokenizer.json", "vocab.txt")
_UNKNOWN = {"[UNK]", "<unk>", "<UNK>", "UNK", "OOV"}


@named("spacy_tener.OnnxEncoder.v1")
def onnx_encoder(
    path: str | Path | None = None,
    vocabulary: str | Path | None = None,
    inputs: dict[str, str] | None = None,
    outputs: list[str] | None = None,
    window: int = 512,
    overlap: int = 64,
    pooling: Literal["mean", "first"] = "mean",
    origin: str = "",
    licence: str = "",
) -> EncoderSource:
    """Read an encoder from an ONNX file, float32 or quantised, and the vocabulary that belongs to it.

    Registered as `spacy_tener.OnnxEncoder.v1`. The text itself is split, independently of the tokens: a token gets the
    pieces that overlap it, and zeros if there is none.

    path (Optional[Union[str, Path]]): The file, with all of its weights.
    vocabulary (Optional[Union[str, Path]]): A `tokenizer.json` of the library tokenizers, for pieces of words; or a
        text file with a character on each line, in the order of their ids, one of them `[UNK]`. None for a
        `tokenizer.json` or `vocab.txt` beside the file.
    inputs (Optional[Dict[str, str]]): The name of the input that holds the `ids`, and of those that hold the `mask`,
        `types` (zeros) and `lengths`, as far as there are any. None to tell them by names and shapes.
    outputs (Optional[List[str]]): The names of outputs or of inner results that are joined to the features, such as
        several layers. None for the first output.
    window (int): Maximum number of pieces, with special ones, that are read at once. Longer texts are read in
        overlapping windows. `tener_ner` passes windows of 200 tokens.
    overlap (int): Pieces of context on each side of a window's own part.
    pooling (Literal["mean", "first"]): The features of a token: the "mean" of its pieces, or those of the "first" one.
    origin (str): Where the encoder is from, for meta.json.
    licence (str): Its licence, for meta.json.
    """
    check_pieces(window, overlap)
    about = {"origin": origin, "licence": licence}
    settings = {"inputs": inputs, "outputs": outputs, "window": window, "overlap": overlap, "pooling": pooling}
    return partial(_read, path, vocabulary, about, settings)


def _read(
    path: str | Path | None, vocabulary: str | Path | None, about: dict[str, str], settings: dict[str, Any]
) -> Encoder:
    if not path:
        raise RemedyError(
            "spacy_tener.OnnxEncoder.v1: path is not set", "Set it in this section of the config to an ONNX file."
        )
    file = Path(path)
    try:
        graph = file.read_bytes()
        known = _read_vocabulary(Path(vocabulary) if vocabulary else _beside(file))
    except OSError as error:
        raise InputError(str(error.filename or file), error.strerror or str(error), "Check the path.") from error
    return Encoder(graph, known, about={"name": file.stem, **about}, source=str(file), **settings)


def _beside(file: Path) -> Path:
    for name in _VOCABULARIES:
        if (file.parent / name).is_file():
            return file.parent / name
    raise RemedyError(f"{file} has no {' or '.join(_VOCABULARIES)} beside it", "Name its `vocabulary`.")


def _read_vocabulary(path: Path) -> Vocabulary:
    if path.suffix == ".json":
        return WordPieces(path.read_bytes())
    rows = {entry: number - 1 for number, entry in read_lines(path)}
    unknown = [row for entry, row in rows.items() if entry in _UNKNOWN]
    if not unknown:
        raise InputError(str(path), "no line stands for unknown characters", "Add the line [UNK] where its id is.")
    known = sorted((ord(entry), row) for entry, row in rows.items() if len(entry) == 1)
    codes, ids = np.array(known, dtype=np.int64).reshape(-1, 2).T
    return Characters(codes, ids, unknown[0])
