"""A pretrained encoder: an ONNX graph and the vocabulary of its input, from texts to one row of features per token."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from packaging.version import Version
from spacy.tokens import Doc

from ..errors import MissingPackageError, RemedyError, check_package
from ..features.characters import code_points, lengths_of
from ..features.pieces import EncodedTexts, PieceReader, Pieces, WordPieces
from ..processes import cached_property, count_cores
from ..sequences import pad_rows, plan_buckets, starts
from ..types import FloatArray, IntArray

OLDEST = "1.19"
"""The first onnxruntime that knows NumPy 2."""
REQUIREMENT = f"onnxruntime>={OLDEST}"
IDS, MASK, TYPES, LENGTHS = ROLES = "ids", "mask", "types", "lengths"
"""What an input holds: ids of pieces, *Shape:* (windows, pieces); 1 for pieces and 0 for padding, (windows, pieces);
zeros, (windows, pieces); the number of pieces of each window, (windows,)."""
Batching = Literal["padded", "equal", "single"]
"""Which windows are computed together: all, with padding; those of equal length; none."""
Pooling = Literal["mean", "first"]

DTYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
_BUCKETS: dict[Batching, tuple[int, int]] = {"padded": (32, 2048), "equal": (0, 2048), "single": (0, 1)}
"""Cost of one more call, in pieces of padding, and maximum number of pieces that are computed at once."""
_PROCESS = os.getpid()
# A key "location", after its length, which may be written with more bytes than one, and operators that read files.
# Strings, since a pattern takes two seconds for a hundred megabytes.
_OTHER_FILES = {
    b"\x08location": "it needs weights that are in another file",
    b"\x00location": "it needs weights that are in another file",
    b"EPContext": "one of its operators reads another file",
    b"PythonOp": "one of its operators reads another file",
}
_ORT_FORMAT = b"ORTM"
_CODES = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (/onnxruntime_src/\S+ .*?\) )?")


@dataclass(frozen=True)
class Characters:
    """A vocabulary of characters.

    codes (IntArray): Their code points, ascending. *Shape:* (characters,)
    ids (IntArray): Their ids. *Shape:* (characters,)
    unknown (int): The id of any character that is not among them.
    """

    codes: IntArray
    ids: IntArray
    unknown: int

    @cached_property
    def _id_of_code(self) -> IntArray:
        table = np.full(int(self.codes.max(initial=0)) + 2, self.unknown, dtype=np.int64)
        table[self.codes] = self.ids
        return table

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return int(max(self.ids.max(initial=0), self.unknown)) + 1

    def encode(self, texts: list[str]) -> EncodedTexts:
        """Return the ids of each text, and the offsets of each character."""
        ids = self._id_of_code[np.minimum(code_points("".join(texts)), len(self._id_of_code) - 1)]
        lengths = lengths_of(texts)
        positions = np.arange(lengths.max(initial=0))
        spans = np.stack([positions, positions + 1], axis=1)
        return np.split(ids, np.cumsum(lengths)[:-1]), [spans[:length] for length in lengths.tolist()]

    def reader(self, window: int, overlap: int) -> PieceReader:
        """Make a reader with windows of at most `window` characters."""
        no_ids = np.zeros(0, dtype=np.int64)
        return PieceReader(self.encode, no_ids, no_ids, window, overlap)


class Encoder:
    """A graph and the vocabulary of its input. `make_encoder` makes one of a user's file.

    A text has the same features alone and in any batch. Threads and forked processes may share an encoder.

    graph (bytes): An ONNX file that holds all of its weights.
    vocabulary (Characters | WordPieces): From texts to ids.
    inputs (Mapping[str, str]): The name of each input, by what it holds: one of `ROLES`.
    outputs (Sequence[str]): The names of the features, which are joined. *Shape:* (windows, pieces, width) each
    batching (Batching): Which windows have the same features in a batch as alone.
    about (Mapping[str, str]): The encoder's `name`, `origin` and `licence`, for meta.json.
    window (int): Maximum number of pieces, with special ones, that are read at once.
    overlap (int): Pieces of context on each side of a window's core.
    pooling (Pooling): The features of a token: the mean of its pieces, or those of the first one.
    source (str): The file's name in messages.
    """

    def __init__(
        self,
        graph: bytes,
        vocabulary: Characters | WordPieces,
        *,
        inputs: Mapping[str, str],
        outputs: Sequence[str],
        batching: Batching = "padded",
        about: Mapping[str, str] | None = None,
        window: int = 512,
        overlap: int = 64,
        pooling: Pooling = "mean",
        source: str = "The encoder's file",
    ) -> None:
        check_graph(graph, source)
        self.graph, self.vocabulary, self.source = graph, vocabulary, source
        self.inputs, self.outputs, self.about = dict(inputs), list(outputs), dict(about or {})
        self.batching, self.window, self.overlap, self.pooling = batching, window, overlap, pooling
        self._sessions: dict[tuple[int, bool], Any] = {}

    @property
    def requirements(self) -> list[str]:
        """The packages that it needs, as requirements of pip."""
        return [REQUIREMENT, *(["tokenizers>=0.19"] if isinstance(self.vocabulary, WordPieces) else [])]

    @property
    def description(self) -> dict[str, str]:
        """The encoder's name, origin and licence, and the graph's digest."""
        return {**self.about, "digest": sha256(self.graph).hexdigest()}

    @cached_property
    def width(self) -> int:
        """Number of features. A vocabulary with more ids than the graph has rows is found here."""
        largest_id = self.vocabulary.size - 1
        try:
            return int(self.rows(np.array([largest_id] * 2), np.array([2])).shape[1])
        except RemedyError as error:
            reason = f"{error.reason}. It was given the largest id of its vocabulary, {largest_id}"
            raise RemedyError(reason, error.remedy) from error

    @cached_property
    def reader(self) -> PieceReader:
        return self.vocabulary.reader(self.window, self.overlap)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "reader"} | {"_sessions": {}}

    def __deepcopy__(self, memo: object) -> Encoder:
        return self

    def to_parts(self) -> dict[str, Any]:
        """Return the data to save."""
        vocabulary = self.vocabulary
        parts = {"tokenizer": vocabulary.json} if isinstance(vocabulary, WordPieces) else asdict(vocabulary)
        names = ("graph", "inputs", "outputs", "batching", "about", "window", "overlap", "pooling")
        return parts | {name: getattr(self, name) for name in names}

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> Encoder:
        """Make an encoder of the data that `to_parts` returned."""
        vocabulary: Characters | WordPieces
        if "tokenizer" in parts:
            vocabulary = WordPieces(parts.pop("tokenizer"))
        else:
            vocabulary = Characters(*(parts.pop(name) for name in ("codes", "ids", "unknown")))
        return cls(parts.pop("graph"), vocabulary, source="The saved encoder", **parts)

    def __call__(self, docs: Sequence[Doc], *, gpu: bool = False) -> FloatArray:
        """Return the features of all tokens of Docs, from their pieces' rows; 0 for a token without a piece.

        *Shape:* (tokens, width)
        """
        return self.features(self.reader(docs), gpu=gpu)

    def features(self, pieces: Pieces, *, gpu: bool = False) -> FloatArray:
        """Return the features of all tokens. *Shape:* (tokens, width)"""
        pairs = pieces.firsts() if self.pooling == "first" else pieces
        rows = self.rows(pieces.ids, pieces.lengths, gpu=gpu)[pairs.rows]
        if len(rows) == pairs.n_tokens and np.array_equal(pairs.tokens, np.arange(pairs.n_tokens)):
            return rows
        features = np.zeros((pairs.n_tokens, rows.shape[1]), dtype=np.float32)
        if len(rows):
            tokens, first, counts = np.unique(pairs.tokens, return_index=True, return_counts=True)
            features[tokens] = np.add.reduceat(rows, first, axis=0) / counts[:, None].astype(np.float32)
        return features

    def rows(self, ids: IntArray, lengths: IntArray, *, gpu: bool = False) -> FloatArray:
        """Return the features of windows, one row per piece.

        ids (IntArray): The windows' pieces, joined. *Shape:* (pieces,)
        lengths (IntArray): The windows' lengths. *Shape:* (windows,)
        RETURNS (FloatArray): *Shape:* (pieces, width)
        """
        session, rows = self._session(gpu), None
        if not len(ids):
            return np.zeros((0, self.width), dtype=np.float32)
        begins = starts(lengths)
        bucket_cost, max_cost = _BUCKETS[self.batching]
        for windows in plan_buckets(lengths, bucket_cost=bucket_cost, max_cost=max_cost):
            pieces, mask = pad_rows(begins[windows], lengths[windows])
            padded = np.where(mask, ids[pieces], 0)
            arrays = {IDS: padded, MASK: mask, TYPES: np.zeros_like(padded), LENGTHS: lengths[windows]}
            outputs = self._run(session, arrays)
            if rows is None:
                rows = np.empty((len(ids), sum(output.shape[2] for output in outputs)), dtype=np.float32)
            rows[pieces[mask]] = np.concatenate([output[mask] for output in outputs], axis=1)
        assert rows is not None
        return rows

    def _run(self, session: Any, arrays: Mapping[str, Any]) -> list[FloatArray]:
        dtypes = {tensor.name: DTYPES[tensor.type] for tensor in session.get_inputs()}
        feed = {name: arrays[role].astype(dtypes[name]) for role, name in self.inputs.items()}
        try:
            outputs: list[FloatArray] = session.run(self.outputs, feed)
        except Exception as error:  # onnxruntime has a class of errors for each cause.
            raise RemedyError(
                f"{self.source} cannot read a text: {_reason(error)}",
                "Check that the vocabulary is the encoder's own, and that its window is not longer than it can read.",
            ) from error
        shape = arrays[IDS].shape
        for name, output in zip(self.outputs, outputs, strict=True):
            if output.ndim != 3 or output.shape[:2] != shape:
                raise RemedyError(
                    f"{self.source}: the output '{name}' has the shape {output.shape} for an input of {shape}",
                    "Name an output with a row of features for each piece of each text.",
                )
        return outputs

    def _session(self, gpu: bool) -> Any:
        """Return this process's session. A forked process gets one of its own, with one thread."""
        key = (os.getpid(), gpu)
        if key not in self._sessions:
            # No lock: a process that is forked while a thread holds it would wait for ever. At worst two threads open
            # one each. A parent's session is kept: to end it would wait for threads of the parent.
            self._sessions.setdefault(key, open_session(self.graph, self.source, gpu=gpu))
        return self._sessions[key]


def check_graph(graph: bytes, source: str) -> None:
    """Raise for a file with which ONNX Runtime would read other files."""
    if graph[4:8] == _ORT_FORMAT:
        raise RemedyError(f"{source} has the format of ONNX Runtime, not ONNX", "Name a file that ends in .onnx.")
    for name, reason in _OTHER_FILES.items():
        if name in graph:
            raise RemedyError(
                f"{source} is refused: {reason}",
                "Put all weights into one file: onnx.save(onnx.load(path), new_path).",
            )


def open_session(graph: bytes, source: str, *, gpu: bool = False) -> Any:
    """Return an `InferenceSession` of ONNX Runtime; raise if it does not know the file."""
    library = _library()
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = count_threads(), 1
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    if gpu and "CUDAExecutionProvider" in library.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    try:
        session = library.InferenceSession(graph, options, providers=providers)
        for tensor in (*session.get_inputs(), *session.get_outputs()):
            tensor.name, tensor.shape  # noqa: B018 - raise if names are not UTF-8
    except Exception as error:  # as above
        raise RemedyError(
            f"{source} cannot be loaded by onnxruntime {library.__version__}: {_reason(error)}",
            "If it is a whole ONNX file, update onnxruntime, or export the encoder with opset_version=17.",
        ) from error
    return session


def count_threads() -> int:
    """Return the number of threads that a session may use: one in a forked process, as torch has there."""
    if os.getpid() != _PROCESS:
        return 1
    setting = os.environ.get("OMP_NUM_THREADS", "")
    # The number is set, since onnxruntime otherwise ties its threads to the machine's first cores.
    return int(setting) if setting.isdigit() and int(setting) else count_cores()


def _library() -> Any:
    install = f"Install it by `pip install '{REQUIREMENT}'`, or `onnxruntime-gpu`."
    check_package("onnxruntime", "The pretrained encoder needs", install)
    import onnxruntime

    if Version(onnxruntime.__version__) < Version(OLDEST):
        raise MissingPackageError(
            f"The pretrained encoder needs {REQUIREMENT}; this is {onnxruntime.__version__}", install
        )
    return onnxruntime


def _reason(error: Exception) -> str:
    """Return the first line of an error, without onnxruntime's codes and C++ signatures."""
    line = str(error).strip().splitlines()[0]
    return _CODES.sub("", line)[:300].rstrip(".")
