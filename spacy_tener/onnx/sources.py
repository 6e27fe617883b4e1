"""The registered function `spacy_tener.OnnxEncoder.v1`, which loads a pretrained encoder from an ONNX file.

`make_encoder` detects the graph's inputs, and how texts can be batched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic import NonNegativeInt

from ..errors import InputError, UserError
from ..features.subwords import TokenizerJson
from ..inputs import read_lines
from ..validation import check_window, validated
from .edits import read_graph, results_of, show_outputs, use_lengths
from .encoder import (
    DTYPES,
    IDS,
    LENGTHS,
    MASK,
    ROLES,
    TYPES,
    Batching,
    Characters,
    Encoder,
    Pooling,
    check_graph,
    open_session,
)

EncoderSource = Callable[[], Encoder]

_VOCABULARIES = ("tokenizer.json", "vocab.txt")
_UNKNOWN_ENTRIES = {"[UNK]", "<unk>", "<UNK>", "UNK", "OOV"}
# If a graph input's name contains one of these strings, the input has this role.
_PARTS_OF_NAMES = {MASK: ("mask",), TYPES: ("type", "segment"), LENGTHS: ("length", "lens")}
# Lengths of the random texts with which `_find_batching` tests an encoder.
_SAMPLE_LENGTHS = np.array([16, 7, 1, 7, 16, 3])
# Tolerance for rounding errors when `_find_batching` compares features, relative to the largest feature.
_TOLERANCE = 1e-5


@validated("spacy_tener.OnnxEncoder.v1")
def onnx_encoder(
    path: str | Path | None = None,
    vocabulary: str | Path | None = None,
    window: int = 512,
    overlap: NonNegativeInt = 64,
    pooling: Pooling = "mean",
    origin: str = "",
    licence: str = "",
    inputs: dict[str, str] | None = None,
    outputs: list[str] | None = None,
) -> EncoderSource:
    """Create a function that loads a pretrained encoder from an ONNX file.

    Registered as `spacy_tener.OnnxEncoder.v1`. Use it as `encoder` in `spacy_tener.OnnxEmbed.v1`. The ONNX graph can be
    quantized. The encoder's own tokenizer splits the text into subword tokens, independently of spaCy's tokens. A
    token's features are computed from the subword tokens that overlap with the token. If no subword token overlaps with
    the token, its features are 0.

    path (Optional[Union[str, Path]]): The ONNX file, which must contain all weights.
    vocabulary (Optional[Union[str, Path]]): A `tokenizer.json` from the library tokenizers. For encoders whose input is
        characters, a text file with one character per line, where the first line has the id 0, and a line `[UNK]`. None
        to use `tokenizer.json` or `vocab.txt` in the ONNX file's directory.
    window (int): Maximum number of subword tokens in an input of the encoder, including special tokens. Longer texts
        are split into overlapping windows. `tener_ner` already splits texts into windows of at most 200 tokens.
    overlap (int): Number of subword tokens at each end of a window that only provide context. Their features are
        computed in the neighbouring window.
    pooling (Literal["mean", "first"]): How to compute a token's features from its subword tokens. "mean" averages their
        features. "first" uses the first subword token.
    origin (str): The encoder's origin, for meta.json.
    licence (str): The encoder's licence, for meta.json.
    inputs (Optional[Dict[str, str]]): Names of the graph's inputs. The keys are `ids` and, if the graph has these
        inputs, `mask` (attention mask), `types` (token type ids) and `lengths` (text lengths). None to detect the
        inputs by their names and shapes.
    outputs (Optional[List[str]]): Graph outputs that are concatenated to feature vectors. Other tensors in the graph
        are allowed as well, such as a lower layer's hidden states. None for the first output.
    RETURNS (Callable[[], Encoder]): The function that loads the encoder. `initialize` calls it.
    """
    check_window(window, overlap)
    return partial(
        _read,
        path,
        vocabulary,
        window=window,
        overlap=overlap,
        pooling=pooling,
        origin=origin,
        licence=licence,
        inputs=inputs,
        outputs=outputs,
    )


def make_encoder(
    graph: bytes,
    vocabulary: Characters | TokenizerJson,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Sequence[str] | None = None,
    source: str,
    **settings: Any,
) -> Encoder:
    """Create an encoder from an ONNX graph. Detect its inputs, and how texts can be batched.

    The graph is edited in two cases. If `outputs` contains other tensors in the graph, they are added to the graph's
    outputs. If the graph has an input for sequence lengths, its recurrent layers are connected with this input.

    graph (bytes): An ONNX file that contains all weights.
    vocabulary (Characters | TokenizerJson): Converts texts to ids.
    inputs (Optional[Mapping[str, str]]): The input names, as in `Encoder`. None to detect the inputs.
    outputs (Optional[Sequence[str]]): The output names, as in `Encoder`. None for the first output.
    source (str): File name for error messages.
    settings (Any): Other arguments for `Encoder`.
    RETURNS (Encoder): The encoder.
    """
    check_graph(graph, source)
    session = open_session(graph, source)
    shown = [tensor.name for tensor in session.get_outputs()]
    outputs, inputs = list(outputs or shown[:1]), _find_inputs(session, inputs, source)
    if LENGTHS in inputs or not set(outputs) <= set(shown):
        model = read_graph(graph)
        results = results_of(model)
        missing = sorted(set(outputs) - set(results))
        if missing:
            raise UserError(
                f"{source} has no output '{missing[0]}'",
                f"Use one of its outputs ({', '.join(shown)}), or one of its intermediate tensors "
                f"({', '.join(sorted(results)[:20])}, ...).",
            )
        show_outputs(model, outputs)
        if LENGTHS in inputs:
            use_lengths(model, inputs[LENGTHS])
        graph = model.SerializeToString()
    encoder = Encoder(graph, vocabulary, inputs=inputs, outputs=outputs, source=source, **settings)
    encoder.batching = _find_batching(encoder)
    return encoder


def _find_inputs(session: Any, names: Mapping[str, str] | None, source: str) -> dict[str, str]:
    """Return the graph input's name for each role.

    Raise an error if the input for `ids` is missing, or if an input has no role, an unsupported data type or a fixed
    shape.

    session (InferenceSession): The graph's onnxruntime session.
    names (Mapping[str, str] | None): The configured names. None to detect the roles by the inputs' names and shapes.
    source (str): File name for error messages.
    """
    shapes = {tensor.name: tensor.shape for tensor in session.get_inputs()}
    names = {_role_of(name, shape): name for name, shape in reversed(shapes.items())} if names is None else dict(names)
    listed = ", ".join(shapes) or "none"
    unknown_inputs = sorted(set(names.values()) - set(shapes))
    if unknown_inputs:
        raise UserError(f"{source} has no input '{unknown_inputs[0]}'", f"Its inputs are {listed}.")
    unknown_roles = sorted(set(names) - set(ROLES))
    if unknown_roles:
        raise UserError(f"Unknown key '{unknown_roles[0]}' in the setting `inputs`", f"Use one of: {', '.join(ROLES)}.")
    if IDS not in names or set(names.values()) != set(shapes):
        raise UserError(
            f"{source}: the role of an input is unknown. The inputs are: {listed}",
            f"In the setting `inputs`, assign the name of each input to one of the keys {', '.join(ROLES)}. The key "
            f"{IDS} is required. Encoders with other inputs are not supported.",
        )
    for tensor in session.get_inputs():
        if tensor.type not in DTYPES:
            raise UserError(
                f"{source}: the input '{tensor.name}' has the unsupported data type {tensor.type}",
                f"Export the encoder with one of these data types: {', '.join(DTYPES)}.",
            )
        if any(isinstance(size, int) for size in tensor.shape):
            raise UserError(
                f"{source}: the input '{tensor.name}' has the fixed shape {tuple(tensor.shape)}",
                "Export the encoder with dynamic axes for the numbers of texts and tokens.",
            )
    return names


def _role_of(name: str, shape: Sequence[Any]) -> str:
    """Guess a graph input's role from its name and shape.

    An input with a single dimension contains sequence lengths. An input without a typical name contains ids.
    """
    if len(shape) == 1:
        return LENGTHS
    roles = [role for role, parts in _PARTS_OF_NAMES.items() if any(part in name.lower() for part in parts)]
    return (roles or [IDS])[0]


def _find_batching(encoder: Encoder) -> Batching:
    """Return the most efficient type of batching that does not change the features.

    The encoder is run on random texts, alone and in batches. Padding can change the features if the graph has recurrent
    layers or no attention mask. Other texts in a batch change the features if the graph was quantized dynamically, with
    one scale for the whole batch.
    """
    lengths = _SAMPLE_LENGTHS
    ids = np.random.default_rng(0).integers(0, encoder.vocabulary.size, lengths.sum())
    encoder.width  # noqa: B018 - raises if the vocabulary is too large
    encoder.batching = "single"
    alone = encoder.rows(ids, lengths)
    for batching in get_args(Batching):
        encoder.batching = batching
        try:
            rows = encoder.rows(ids, lengths)
        except UserError:  # Fixed shapes inside the graph can prevent batching.
            continue
        if np.allclose(rows, alone, rtol=0, atol=_TOLERANCE * np.abs(alone).max()):
            break
    return encoder.batching


def _read(
    path: str | Path | None,
    vocabulary: str | Path | None,
    *,
    window: int,
    overlap: int,
    pooling: Pooling,
    origin: str,
    licence: str,
    inputs: dict[str, str] | None,
    outputs: list[str] | None,
) -> Encoder:
    """Load an ONNX file and its vocabulary, and create an encoder."""
    if not path:
        fix = (
            "Set path to an ONNX file. To train a pipeline that was converted with `tener trim --onnx`, train the "
            "original pipeline, and convert it again."
        )
        raise UserError("spacy_tener.OnnxEncoder.v1: path is not set", fix)
    file = Path(path)
    try:
        graph = file.read_bytes()
        read = _read_vocabulary(Path(vocabulary) if vocabulary else _find_vocabulary(file))
    except OSError as error:
        raise InputError(str(error.filename or file), error.strerror or str(error), "Check the path.") from error
    return make_encoder(
        graph,
        read,
        inputs=inputs,
        outputs=outputs,
        source=str(file),
        window=window,
        overlap=overlap,
        pooling=pooling,
        about={"name": file.stem, "origin": origin, "licence": licence},
    )


def _find_vocabulary(file: Path) -> Path:
    """Return the path of the vocabulary next to an ONNX file. Raise an error if there is none."""
    for name in _VOCABULARIES:
        if (file.parent / name).is_file():
            return file.parent / name
    raise UserError(
        f"{file}: there is no {' or '.join(_VOCABULARIES)} in its directory", "Set `vocabulary` to the file's path."
    )


def _read_vocabulary(path: Path) -> Characters | TokenizerJson:
    """Load a `tokenizer.json`, or a text file with one character per line."""
    if path.suffix == ".json":
        return TokenizerJson(path.read_bytes())
    id_of = {entry: number - 1 for number, entry in read_lines(path)}
    pieces = [entry for entry in id_of if len(entry) > 2 and entry.startswith("##")]
    if pieces:
        raise InputError(
            str(path),
            f"the vocabulary contains subword tokens, such as {pieces[0]}, but text files are only supported for "
            "vocabularies of single characters",
            "Use the encoder's tokenizer.json. To create this file with the library transformers, run "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
        )
    unknown = [number for entry, number in id_of.items() if entry in _UNKNOWN_ENTRIES]
    if not unknown:
        raise InputError(
            str(path),
            "the vocabulary has no unknown token",
            "Add a line [UNK]. Its zero-based line number must be equal to the token ID of [UNK] in the encoder.",
        )
    pairs = sorted((ord(entry), number) for entry, number in id_of.items() if len(entry) == 1)
    codes, ids = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Characters(codes, ids, unknown[0])
