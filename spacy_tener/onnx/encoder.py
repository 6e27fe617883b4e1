"""`Encoder`, a pretrained encoder that runs with ONNX Runtime.

An encoder consists of an ONNX graph and a tokenizer. It computes a feature vector for each token of a Doc.
`spacy_tener.OnnxEmbed.v1` uses encoders and saves them with the pipeline. The modules `sources`, `e5` and `lac_tagger`
create encoders.
"""

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

from ..errors import MissingPackageError, UserError, check_package
from ..features.characters import code_points, lengths_of
from ..features.subwords import SubwordBatch, SubwordsOfTexts, SubwordTokenizer, TokenizerJson
from ..processes import cached_property, count_cores
from ..sequences import pad_rows, plan_buckets, starts
from ..types import FloatArray, IntArray

# The first version of onnxruntime that supports NumPy 2.
OLDEST = "1.19"
REQUIREMENT = f"onnxruntime>={OLDEST}"
# Roles of a graph's inputs. The input names can be different.
# - ids: subword token ids. *Shape:* (windows, subwords)
# - mask: attention mask, 1 for subword tokens and 0 for padding. *Shape:* (windows, subwords)
# - types: token type ids, which are always 0. *Shape:* (windows, subwords)
# - lengths: number of subword tokens in each window. *Shape:* (windows,)
IDS, MASK, TYPES, LENGTHS = ROLES = "ids", "mask", "types", "lengths"
# How windows can be batched without changing their features:
# - padded: windows of any length, with padding
# - equal: only windows with the same length
# - single: no batching
Batching = Literal["padded", "equal", "single"]
Pooling = Literal["mean", "first"]

# Data types that a graph's inputs can have, and the corresponding NumPy dtypes.
DTYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
# Arguments of `plan_buckets` for each type of batching: the cost of an additional batch, and the maximum size of a
# batch, both in subword tokens.
_BUCKETS: dict[Batching, tuple[int, int]] = {"padded": (32, 2048), "equal": (0, 2048), "single": (0, 1)}
# Id of the process that imported this module. A forked process has another id.
_PROCESS = os.getpid()
# Byte strings that only occur in graphs with references to other files. Such graphs are rejected, because ONNX Runtime
# would read these files. The key `location` marks a tensor in another file, and is preceded by its length. The other
# strings are operator names. A regular expression for all of them takes two seconds for 100 MB.
_OTHER_FILES = {
    b"\x08location": "it needs weights that are in another file",
    b"\x00location": "it needs weights that are in another file",
    b"EPContext": "one of its operators reads another file",
    b"PythonOp": "one of its operators reads another file",
}
_ORT_FORMAT = b"ORTM"
# Prefix of onnxruntime's error messages: an error code and the name of a C++ function.
_CODES = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (/onnxruntime_src/\S+ .*?\) )?")


@dataclass(frozen=True)
class Characters:
    """A character vocabulary, which maps each character to an id.

    codes (IntArray): The characters' code points, in ascending order. *Shape:* (characters,)
    ids (IntArray): Each character's id. *Shape:* (characters,)
    unknown (int): Id of all characters that are not in the vocabulary.
    """

    codes: IntArray
    ids: IntArray
    unknown: int

    @cached_property
    def _id_of_code(self) -> IntArray:
        """Lookup table from code points to ids.

        The last element is used for code points beyond the table's end.
        """
        table = np.full(int(self.codes.max(initial=0)) + 2, self.unknown, dtype=np.int64)
        table[self.codes] = self.ids
        return table

    @property
    def size(self) -> int:
        """The largest id plus 1, which is the number of rows that an embedding table needs."""
        return int(max(self.ids.max(initial=0), self.unknown)) + 1

    def encode(self, texts: list[str]) -> SubwordsOfTexts:
        """Convert texts to character ids. Return each text's ids and character offsets."""
        ids = self._id_of_code[np.minimum(code_points("".join(texts)), len(self._id_of_code) - 1)]
        lengths = lengths_of(texts)
        positions = np.arange(lengths.max(initial=0))
        spans = np.stack([positions, positions + 1], axis=1)
        return np.split(ids, np.cumsum(lengths)[:-1]), [spans[:length] for length in lengths.tolist()]

    def subword_tokenizer(self, window: int, overlap: int) -> SubwordTokenizer:
        """Create a tokenizer that splits Docs into windows of characters.

        window (int): Maximum window length in characters.
        overlap (int): Number of characters at each end of a window that only provide context.
        """
        no_ids = np.zeros(0, dtype=np.int64)
        return SubwordTokenizer(self.encode, no_ids, no_ids, window, overlap)


class Encoder:
    """A pretrained encoder, which computes a feature vector for each token.

    Use `make_encoder` if you don't know the graph's inputs. A text's features don't depend on the other texts in a
    batch. Threads and forked processes can share an encoder.

    graph (bytes): An ONNX file that contains all weights.
    vocabulary (Characters | TokenizerJson): Converts texts to ids.
    inputs (Mapping[str, str]): The graph's input for each role in `ROLES`.
    outputs (Sequence[str]): Graph outputs that are concatenated to feature vectors. *Shape:* (windows, subwords, width)
        each
    batching (Batching): How windows can be batched without changing their features.
    about (Mapping[str, str] | None): The encoder's `name`, `origin` and `licence`, for meta.json.
    window (int): Maximum window length in subword tokens, including special tokens.
    overlap (int): Number of subword tokens at each end of a window that only provide context.
    pooling (Pooling): How to compute a token's features from its subword tokens. "mean" averages their features.
        "first" uses the first subword token.
    source (str): File name for error messages.
    """

    def __init__(
        self,
        graph: bytes,
        vocabulary: Characters | TokenizerJson,
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
        """The packages that the encoder requires, as version specifiers for pip."""
        return [REQUIREMENT, *(["tokenizers>=0.19"] if isinstance(self.vocabulary, TokenizerJson) else [])]

    @property
    def description(self) -> dict[str, str]:
        """The encoder's entry in meta.json: its name, origin and licence, and a hash of the graph."""
        return {**self.about, "digest": sha256(self.graph).hexdigest()}

    @cached_property
    def width(self) -> int:
        """Number of features per token.

        The first access runs the graph with the largest id in the vocabulary. An error is raised if the graph's
        embedding table has no row for this id.
        """
        largest_id = self.vocabulary.size - 1
        try:
            return int(self.rows(np.array([largest_id] * 2), np.array([2])).shape[1])
        except UserError as error:
            reason = f"{error.reason}. The error occurred for the largest token ID of the vocabulary, {largest_id}"
            raise UserError(reason, error.fix) from error

    @cached_property
    def subword_tokenizer(self) -> SubwordTokenizer:
        """The tokenizer that splits Docs into windows of subword tokens."""
        return self.vocabulary.subword_tokenizer(self.window, self.overlap)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "subword_tokenizer"} | {"_sessions": {}}

    def __deepcopy__(self, memo: object) -> Encoder:
        return self

    def to_parts(self) -> dict[str, Any]:
        """Return the encoder's data and settings by name, for serialization."""
        vocabulary = self.vocabulary
        parts = {"tokenizer": vocabulary.json} if isinstance(vocabulary, TokenizerJson) else asdict(vocabulary)
        names = ("graph", "inputs", "outputs", "batching", "about", "window", "overlap", "pooling")
        return parts | {name: getattr(self, name) for name in names}

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> Encoder:
        """Create an encoder from the data and settings that `to_parts` returned."""
        vocabulary: Characters | TokenizerJson
        if "tokenizer" in parts:
            vocabulary = TokenizerJson(parts.pop("tokenizer"))
        else:
            vocabulary = Characters(*(parts.pop(name) for name in ("codes", "ids", "unknown")))
        return cls(parts.pop("graph"), vocabulary, source="The saved encoder", **parts)

    def __call__(self, docs: Sequence[Doc], *, gpu: bool = False) -> FloatArray:
        """Compute the features of all tokens in a batch of Docs.

        Features are 0 for tokens without a subword token, such as white space.

        docs (Sequence[Doc]): The Docs.
        gpu (bool): Use a GPU if onnxruntime supports it.
        RETURNS (FloatArray): Features of all tokens, concatenated. *Shape:* (tokens, width)
        """
        return self.features(self.subword_tokenizer(docs), gpu=gpu)

    def features(self, pieces: SubwordBatch, *, gpu: bool = False) -> FloatArray:
        """Compute the features of all tokens by pooling those of their subword tokens.

        pieces (SubwordBatch): The subword tokens of all Docs, aligned with the tokens.
        gpu (bool): Use a GPU if onnxruntime supports it.
        RETURNS (FloatArray): *Shape:* (tokens, width)
        """
        pairs = pieces.first_subwords() if self.pooling == "first" else pieces
        rows = self.rows(pieces.ids, pieces.lengths, gpu=gpu)[pairs.indices]
        # No pooling is needed if each token has exactly one subword token, which is common in Chinese.
        if len(rows) == pairs.n_tokens and np.array_equal(pairs.tokens, np.arange(pairs.n_tokens)):
            return rows
        features = np.zeros((pairs.n_tokens, rows.shape[1]), dtype=np.float32)
        if len(rows):
            # Average the features over each token's subword tokens, which are adjacent in `rows`.
            tokens, first, counts = np.unique(pairs.tokens, return_index=True, return_counts=True)
            features[tokens] = np.add.reduceat(rows, first, axis=0) / counts[:, None].astype(np.float32)
        return features

    def rows(self, ids: IntArray, lengths: IntArray, *, gpu: bool = False) -> FloatArray:
        """Compute the features of subword tokens.

        ids (IntArray): Ids of the subword tokens in all windows, concatenated. *Shape:* (subwords,)
        lengths (IntArray): Number of subword tokens in each window. *Shape:* (windows,)
        gpu (bool): Use a GPU if onnxruntime supports it.
        RETURNS (FloatArray): *Shape:* (subwords, width)
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
        """Run the graph for a padded batch. Raise an error if an output has the wrong shape.

        session (InferenceSession): The onnxruntime session.
        arrays (Mapping[str, Any]): The input array for each role in `ROLES`.
        RETURNS (list[FloatArray]): The outputs. *Shape:* (windows, subwords, width) each
        """
        dtypes = {tensor.name: DTYPES[tensor.type] for tensor in session.get_inputs()}
        feed = {name: arrays[role].astype(dtypes[name]) for role, name in self.inputs.items()}
        try:
            outputs: list[FloatArray] = session.run(self.outputs, feed)
        except Exception as error:  # onnxruntime's exceptions have no common base class.
            raise UserError(
                f"{self.source} cannot encode a text: {_reason(error)}",
                "Check that the vocabulary matches the encoder, and that `window` is not larger than the encoder's "
                "maximum input length.",
            ) from error
        shape = arrays[IDS].shape
        for name, output in zip(self.outputs, outputs, strict=True):
            if output.ndim != 3 or output.shape[:2] != shape:
                raise UserError(
                    f"{self.source}: the output '{name}' has the shape {output.shape} for an input of {shape}",
                    "Use an output with the shape (texts, subword tokens, hidden size), such as last_hidden_state.",
                )
        return outputs

    def _session(self, gpu: bool) -> Any:
        """Return the current process's onnxruntime session. Each forked process opens its own session."""
        key = (os.getpid(), gpu)
        if key not in self._sessions:
            # There is no lock, because a process that is forked while a thread holds the lock would wait forever.
            # Without a lock, two threads can each open a session, which is harmless. A forked process does not close
            # its parent's session, which would wait for the parent's threads.
            self._sessions.setdefault(key, open_session(self.graph, self.source, gpu=gpu))
        return self._sessions[key]


def check_graph(graph: bytes, source: str) -> None:
    """Raise an error if loading the graph would make ONNX Runtime read other files.

    graph (bytes): The ONNX file.
    source (str): File name for error messages.
    """
    if graph[4:8] == _ORT_FORMAT:
        raise UserError(
            f"{source} has the ORT format of ONNX Runtime instead of the ONNX format", "Use the .onnx file."
        )
    for name, reason in _OTHER_FILES.items():
        if name in graph:
            raise UserError(
                f"{source} cannot be used: {reason}",
                "Put all weights into one file: onnx.save(onnx.load(path), new_path).",
            )


def open_session(graph: bytes, source: str, *, gpu: bool = False) -> Any:
    """Create an onnxruntime `InferenceSession` for a graph. Raise an error if the graph can't be loaded.

    graph (bytes): The ONNX file.
    source (str): File name for error messages.
    gpu (bool): Use a GPU if onnxruntime supports it.
    """
    library = _library()
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = count_threads(), 1
    # Only log fatal errors. Other errors raise exceptions.
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    if gpu and "CUDAExecutionProvider" in library.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    try:
        session = library.InferenceSession(graph, options, providers=providers)
        for tensor in (*session.get_inputs(), *session.get_outputs()):
            tensor.name, tensor.shape  # noqa: B018 - raise if names are not UTF-8
    except Exception as error:  # onnxruntime's exceptions have no common base class.
        raise UserError(
            f"{source} cannot be loaded by onnxruntime {library.__version__}: {_reason(error)}",
            "If the file is complete, update onnxruntime, or export the encoder with opset_version=17.",
        ) from error
    return session


def count_threads() -> int:
    """Return the number of threads for a session.

    The number is set by `OMP_NUM_THREADS`, and defaults to the number of cores. In a forked process, it is 1, as in
    torch.
    """
    if os.getpid() != _PROCESS:
        return 1
    setting = os.environ.get("OMP_NUM_THREADS", "")
    # If the number of threads is not set, onnxruntime pins its threads to the machine's first cores.
    return int(setting) if setting.isdigit() and int(setting) else count_cores()


def _library() -> Any:
    """Import onnxruntime. Raise an error if it is not installed or too old."""
    install = f"Install it with `pip install '{REQUIREMENT}'`, or `onnxruntime-gpu`."
    check_package("onnxruntime", "The pretrained encoder needs", install)
    import onnxruntime

    if Version(onnxruntime.__version__) < Version(OLDEST):
        raise MissingPackageError(
            f"The pretrained encoder needs {REQUIREMENT}, but {onnxruntime.__version__} is installed", install
        )
    return onnxruntime


def _reason(error: Exception) -> str:
    """Return the first line in an onnxruntime error message, without error codes and C++ functions."""
    line = str(error).strip().splitlines()[0]
    return _CODES.sub("", line)[:300].rstrip(".")
