"""A pretrained encoder: an ONNX graph with the vocabulary of its input, from texts to one row of features per token."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from spacy.tokens import Doc

from ..batching.sequences import cuts_by_cost, ranges, starts
from ..errors import MissingPackageError, RemedyError, check_package
from ..features.characters import code_points, lengths_of
from ..features.pieces import Encoded, PieceReader, Pieces, WordPieces
from ..types import FloatArray, IntArray
from .graph import INT64, Graph, Tensor

OLDEST = "1.19"
"""The first onnxruntime that knows NumPy 2."""
REQUIREMENT = f"onnxruntime>={OLDEST}"
IDS, MASK, TYPES, LENGTHS = ROLES = "ids", "mask", "types", "lengths"
"""What an input holds: pieces or characters, *shape* [B, L]; 1 for these and 0 for padding, [B, L]; zeros, [B, L]; the
number of pieces of each text, [B]."""

_PARTS_OF_NAMES = {MASK: ("mask",), TYPES: ("type", "segment"), LENGTHS: ("length", "lens")}
_AT_ONCE = 2048
"""Maximum number of pieces, with padding, that are computed at once."""
_PIECES_PER_CALL = 32
"""Cost of one more call, in pieces of padding."""
_PROCESS = os.getpid()
Pooling = Literal["mean", "first"]


@dataclass(frozen=True)
class Characters:
    """A vocabulary of characters.

    codes: The code points that are known, ascending. *Shape: [V]*
    ids: The id of each. *Shape: [V]*
    unknown: The id of all others.
    """

    codes: IntArray
    ids: IntArray
    unknown: int

    @cached_property
    def _table(self) -> IntArray:
        table = np.full(int(self.codes.max(initial=0)) + 2, self.unknown, dtype=np.int64)
        table[self.codes] = self.ids
        return table

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return int(max(self.ids.max(initial=0), self.unknown)) + 1

    def encode(self, texts: list[str]) -> Encoded:
        """Return each text's ids, and the place of each character."""
        ids = self._table[np.minimum(code_points("".join(texts)), len(self._table) - 1)]
        lengths = lengths_of(texts)
        places = np.arange(lengths.max(initial=0))
        spans = np.stack([places, places + 1], axis=1)
        return np.split(ids, np.cumsum(lengths)[:-1]), [spans[:length] for length in lengths.tolist()]

    def reader(self, window: int, overlap: int) -> PieceReader:
        nothing = np.zeros(0, dtype=np.int64)
        return PieceReader(self.encode, nothing, nothing, window, overlap)


Vocabulary = Characters | WordPieces


class Encoder:
    """A graph and the vocabulary of its input.

    A text has the same features alone and in any batch: texts of similar lengths are computed together, padding is
    masked, or counted out by their lengths, and a graph that scales numbers by those of the whole batch, as dynamic
    int8 does, gets one text at a time.

    graph: The ONNX file.
    vocabulary: From texts to ids.
    inputs: The name of each input, by what it holds; None to find them.
    outputs: Names of the features, *shape* [B, L, w], which are joined; None for the graph's first output.
    about: Whatever is known of the encoder: `name`, `origin`, `licence`.
    window: Maximum number of pieces, with special ones, that are read at once.
    overlap: Pieces of context on each side of a window's own part.
    pooling: The features of a token: the mean of its pieces, or those of the first one.
    source: The file's name in messages.
    """

    def __init__(
        self,
        graph: bytes,
        vocabulary: Vocabulary,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Sequence[str] | None = None,
        about: Mapping[str, str] | None = None,
        window: int = 512,
        overlap: int = 64,
        pooling: Pooling = "mean",
        source: str = "The encoder's file",
    ) -> None:
        parsed = Graph(graph, source)
        self.source, self.vocabulary, self.about = source, vocabulary, dict(about or {})
        self._inputs = _find_inputs(parsed, inputs)
        self.outputs = tuple(outputs or [parsed.outputs[0].name])
        for name in self.outputs:
            if name not in parsed.results:
                raise RemedyError(
                    f"{source} has no output '{name}'",
                    f"Its outputs are {', '.join(each.name for each in parsed.outputs)}; inside of it are "
                    f"{', '.join(sorted(parsed.results)[:20])}, ...",
                )
            parsed.show(name)
        if LENGTHS in self._inputs:
            parsed.use_lengths(self._inputs[LENGTHS].name)
        self.graph = bytes(parsed)
        self._at_once = 1 if parsed.by_batch else _AT_ONCE
        self.window, self.overlap, self.pooling = window, overlap, pooling
        self._opset = parsed.opsets.get("", 0)
        self._lock = threading.Lock()
        self._sessions: dict[tuple[int, bool], Any] = {}

    @property
    def requirements(self) -> list[str]:
        """The packages that it needs, as requirements of pip."""
        pieces = isinstance(self.vocabulary, WordPieces)
        return [REQUIREMENT, *(["tokenizers>=0.19"] if pieces else [])]

    @property
    def description(self) -> dict[str, str]:
        """What is known of the encoder, with its digest."""
        return {**self.about, "digest": sha256(self.graph).hexdigest()}

    @cached_property
    def width(self) -> int:
        """Number of features. A vocabulary with more ids than the graph has rows is found here."""
        last = np.array([self.vocabulary.size - 1] * 2)
        try:
            return int(self.rows(last, np.array([2])).shape[1])
        except RemedyError as error:
            raise RemedyError(
                f"{error.reason}. It was given the largest id of its vocabulary, {last[0]}", error.remedy
            ) from error

    @cached_property
    def reader(self) -> PieceReader:
        return self.vocabulary.reader(self.window, self.overlap)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in {"_lock", "reader"}}
        return {**state, "_sessions": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __deepcopy__(self, memo: object) -> Encoder:
        return self

    def to_parts(self) -> dict[str, Any]:
        """Return the data to save."""
        vocabulary = self.vocabulary
        known = {"tokenizer": vocabulary.json} if isinstance(vocabulary, WordPieces) else vars_of(vocabulary)
        own = {"window": self.window, "overlap": self.overlap, "pooling": self.pooling, "about": self.about}
        inputs = {role: each.name for role, each in self._inputs.items()}
        return {**own, **known, "inputs": inputs, "outputs": list(self.outputs), "graph": self.graph}

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> Encoder:
        """Make an encoder of the data that `to_parts` returned."""
        if "tokenizer" in parts:
            vocabulary: Vocabulary = WordPieces(parts.pop("tokenizer"))
        else:
            vocabulary = Characters(*(parts.pop(name) for name in ("codes", "ids", "unknown")))
        return cls(parts.pop("graph"), vocabulary, source="The saved encoder", **parts)

    def __call__(self, docs: Sequence[Doc], *, gpu: bool = False) -> FloatArray:
        """Return the features of all tokens of Docs, from their pieces' rows; 0 for a token without a piece.

        *Shape: [N, width]*
        """
        return self.features(self.reader(docs), gpu=gpu)

    def features(self, pieces: Pieces, *, gpu: bool = False) -> FloatArray:
        """Return the features of all tokens. *Shape: [N, width]*"""
        pairs = pieces.firsts() if self.pooling == "first" else pieces
        rows = self.rows(pieces.ids, pieces.lengths, gpu=gpu)[pairs.rows]
        if len(rows) == pairs.n_tokens and np.array_equal(pairs.tokens, np.arange(pairs.n_tokens)):
            return rows
        made = np.zeros((pairs.n_tokens, rows.shape[1]), dtype=np.float32)
        if len(rows):
            tokens, first, counts = np.unique(pairs.tokens, return_index=True, return_counts=True)
            made[tokens] = np.add.reduceat(rows, first, axis=0) / counts[:, None].astype(np.float32)
        return made

    def rows(self, ids: IntArray, lengths: IntArray, *, gpu: bool = False) -> FloatArray:
        """Return the features of windows, one row per piece. *Shape* [M], [W] to [M, width]"""
        session, rows = self._session(gpu), None
        if not len(ids):
            return np.zeros((0, self.width), dtype=np.float32)
        begins = starts(lengths)
        for chosen in _batches(lengths, self._at_once):
            own = lengths[chosen]
            mask = np.arange(own.max()) < own[:, None]
            places = ranges(begins[chosen], own)
            padded = np.zeros(mask.shape, dtype=np.int64)
            padded[mask] = ids[places]
            inputs = {IDS: padded, MASK: mask, TYPES: np.zeros_like(padded), LENGTHS: own}
            parts = self._run(session, {role: inputs[role] for role in self._inputs}, mask.shape)
            if rows is None:
                rows = np.empty((len(ids), sum(part.shape[2] for part in parts)), dtype=np.float32)
            real = np.flatnonzero(mask)
            rows[places] = np.concatenate([part.reshape(mask.size, -1)[real] for part in parts], axis=1)
        assert rows is not None
        return rows

    def _run(self, session: Any, inputs: Mapping[str, Any], shape: tuple[int, ...]) -> list[FloatArray]:
        feed = {
            each.name: inputs[role].astype(np.int64 if each.kind == INT64 else np.int32)
            for role, each in self._inputs.items()
        }
        try:
            parts: list[FloatArray] = session.run(self.outputs, feed)
        except Exception as error:  # onnxruntime has a class of errors for each cause.
            raise RemedyError(
                f"{self.source} cannot read a text: {_first_line(error)}",
                "Check that the vocabulary is the encoder's own, and that its window is not longer than it can read.",
            ) from error
        for name, part in zip(self.outputs, parts, strict=True):
            if part.ndim != 3 or part.shape[:2] != shape:
                raise RemedyError(
                    f"{self.source}: the output '{name}' has the shape {part.shape} for an input of {shape}",
                    "Name an output with a row of features for each piece of each text.",
                )
        return parts

    def _session(self, gpu: bool) -> Any:
        """Return this process's session. A forked process gets one of its own, with one thread."""
        key = (os.getpid(), gpu)
        with self._lock:
            if key not in self._sessions:
                # Those of the process that it was forked from are kept: to end them would wait for threads of that one.
                self._sessions[key] = self._open(gpu)
            return self._sessions[key]

    def _open(self, gpu: bool) -> Any:
        library = _library()
        options = library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = _threads(), 1
        options.log_severity_level = 4
        providers = ["CPUExecutionProvider"]
        if gpu and "CUDAExecutionProvider" in library.get_available_providers():
            providers.insert(0, "CUDAExecutionProvider")
        try:
            return library.InferenceSession(self.graph, options, providers=providers)
        except Exception as error:  # as above
            raise RemedyError(
                f"{self.source} cannot be loaded by onnxruntime {library.__version__}: {_first_line(error)}",
                f"Its operators are of ONNX's opset {self._opset}: if that is too new, update onnxruntime, or export "
                "the encoder with opset_version=17. Otherwise the file is damaged.",
            ) from error


def vars_of(vocabulary: Characters) -> dict[str, Any]:
    return {"codes": vocabulary.codes, "ids": vocabulary.ids, "unknown": vocabulary.unknown}


def _find_inputs(graph: Graph, named: Mapping[str, str] | None) -> dict[str, Tensor]:
    """Return the graph's inputs by what they hold, as they are named, or as their names and shapes tell."""
    known = {each.name: each for each in graph.inputs}
    names = dict(named or {})
    if named is None:
        for name, tensor in known.items():
            flat = tensor.shape is not None and len(tensor.shape) == 1
            roles = [role for role, parts in _PARTS_OF_NAMES.items() if any(part in name.lower() for part in parts)]
            names.setdefault(LENGTHS if flat else (roles or [IDS])[0], name)
    has = ", ".join(known) or "none"
    if unknown := sorted(set(names.values()) - set(known)):
        raise RemedyError(f"{graph.source} has no input '{unknown[0]}'", f"Its inputs are {has}.")
    if unknown := sorted(set(names) - set(ROLES)):
        raise RemedyError(f"Unknown kind of input '{unknown[0]}'", f"Use {', '.join(ROLES)}.")
    if IDS not in names or set(names.values()) != set(known):
        raise RemedyError(
            f"{graph.source}: it is unclear what its inputs hold: {has}",
            f"Say which of them are {', '.join(ROLES)}, by the setting `inputs`; there can be no others.",
        )
    return {role: known[name] for role, name in names.items()}


def _batches(lengths: IntArray, at_once: int) -> Iterator[IntArray]:
    """Yield the indices of windows of similar lengths that are computed together."""
    order = np.argsort(-lengths, kind="stable")
    cuts = cuts_by_cost(lengths[order], _PIECES_PER_CALL)
    for begin, end in pairwise(cuts):
        step = max(1, at_once // int(lengths[order[begin]]))
        for first in range(begin, end, step):
            yield order[first : min(first + step, end)]


def _threads() -> int:
    """Return the number of threads that a session may use: one in a forked process, as torch has there."""
    if os.getpid() != _PROCESS:
        return 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    # Named, since onnxruntime otherwise ties its threads to the machine's first cores.
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(asked) if asked.isdigit() and int(asked) else here


def _library() -> Any:
    install = f"Install it by `pip install '{REQUIREMENT}'`, or `onnxruntime-gpu`."
    check_package("onnxruntime", "The pretrained encoder needs", install)
    import onnxruntime

    found: str = onnxruntime.__version__
    if tuple(int(part) for part in found.split(".")[:2]) < tuple(map(int, OLDEST.split("."))):
        raise MissingPackageError(f"The pretrained encoder needs {REQUIREMENT}; this is {found}", install)
    return onnxruntime


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300].rstrip(".")
