"""ONNX graphs as protobuf messages: checks of untrusted files, and the few edits that encoders need.

The format is a list of fields, each a number and a value; a nested message is a value of bytes. So the package `onnx`
is not needed: what is not named here is copied as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import RemedyError
from ..types import IntArray

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}

# Numbers of fields, in the messages of onnx.proto.
_MODEL_OPSET, _MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTION = 8, 7, 20, 25
_GRAPH_NODE, _GRAPH_TENSOR, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 11, 12, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_TYPE = 1, 3, 20
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_FUNCTION_NODE, _FUNCTION_DOMAIN, _FUNCTION_DEFAULT = 7, 10, 11
_TRAINING_GRAPHS, _SPARSE_TENSORS = (1, 2), (1, 2)
_TENSOR_DIMS, _TENSOR_NAME, _TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_PLACE = 1, 8, 9, 13, 14
_INT = 2
_INT32, INT64 = 6, 7
"""Types of elements."""

_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}
"""Sets of operators that ONNX Runtime has itself; others would need a library."""
_READS_FILES = {"EPContext", "PythonOp"}
_RECURRENT = {"GRU", "LSTM", "RNN"}
_LENGTHS = 4
"""The input of these operators that has the lengths of the sequences."""
_BY_BATCH = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM"}
"""Operators that scale their input by its largest number in the whole batch."""


class Message:
    """A message of a protobuf file as a list of its fields, each a number, a kind and a value."""

    def __init__(self, data: bytes | memoryview = b"") -> None:
        self.fields: list[tuple[int, int, int | bytes | memoryview]] = []
        view, place = memoryview(data), 0
        while place < len(view):
            key, place = _varint(view, place)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value, place = _varint(view, place)
                self.fields.append((number, kind, value))
                continue
            size = _SIZES.get(kind)
            if kind == _BYTES:
                size, place = _varint(view, place)
            if size is None or not number or place + size > len(view):
                raise ValueError
            self.fields.append((number, kind, view[place : place + size]))
            place += size

    def __bytes__(self) -> bytes:
        parts: list[bytes | memoryview] = []
        for number, kind, value in self.fields:
            parts.append(_as_varint(number << 3 | kind))
            if isinstance(value, int):
                parts.append(_as_varint(value))
                continue
            if kind == _BYTES:
                parts.append(_as_varint(len(value)))
            parts.append(value)
        return b"".join(parts)

    def add(self, number: int, value: int | bytes | str | Message) -> Message:
        """Append a field."""
        if isinstance(value, int):
            self.fields.append((number, _VARINT, value))
        else:
            self.fields.append((number, _BYTES, value.encode() if isinstance(value, str) else bytes(value)))
        return self

    def messages(self, *numbers: int) -> Iterator[Message]:
        """Yield the values of a field as messages."""
        for own, kind, value in self.fields:
            if own in numbers:
                if isinstance(value, int) or kind != _BYTES:
                    raise ValueError
                yield Message(value)

    def strings(self, number: int) -> list[str]:
        """Return the values of a field as strings."""
        return [str(value, "utf8") for own, _, value in self.fields if own == number and not isinstance(value, int)]

    def numbers(self, number: int) -> list[int]:
        """Return the values of a field as numbers, which may be packed."""
        found: list[int] = []
        for own, _, value in self.fields:
            if own == number and isinstance(value, int):
                found.append(value)
            elif own == number and not isinstance(value, int):
                place = 0
                while place < len(value):
                    one, place = _varint(memoryview(value), place)
                    found.append(one)
        return found

    def text(self, number: int) -> str:
        """Return the last value of a field as a string."""
        return (self.strings(number) or [""])[-1]

    def replace(self, number: int, values: Iterable[bytes | Message]) -> None:
        """Put values in place of all of a field."""
        self.fields = [field for field in self.fields if field[0] != number]
        for value in values:
            self.add(number, value)


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph. shape: None for a dimension of any size; None as a whole if the file has none."""

    name: str
    kind: int
    shape: tuple[int | None, ...] | None

    @classmethod
    def of(cls, message: Message) -> Tensor:
        kind, shape = 0, None
        for tensor in (tensor for whole in message.messages(2) for tensor in whole.messages(1)):
            kind = (tensor.numbers(1) or [0])[-1]
            for dims in tensor.messages(2):
                shape = tuple(next(reversed(dim.numbers(1)), None) for dim in dims.messages(1))
        return cls(message.text(1), kind, shape)


class Graph:
    """The graph of an ONNX file. Raises for a file that is not one, or that would make ONNX Runtime read other files.

    data: The file.
    source: Its name in messages.
    """

    def __init__(self, data: bytes, source: str) -> None:
        try:
            self.model = Message(data)
            # Protobuf joins a message's repeated occurrences.
            self.graph = Message(b"".join(bytes(part) for part in self.model.messages(_MODEL_GRAPH)))
            self.inputs, outputs = (
                [Tensor.of(tensor) for tensor in self.graph.messages(field)] for field in (_GRAPH_INPUT, _GRAPH_OUTPUT)
            )
            weights = {tensor.text(_TENSOR_NAME) for tensor in self.graph.messages(_GRAPH_TENSOR)}
            nodes, tensors = _parts(self.model)
            operators = {node.text(_NODE_OP) for node in nodes}
            own = {function.text(_FUNCTION_DOMAIN) for function in self.model.messages(_MODEL_FUNCTION)}
            domains = {node.text(_NODE_DOMAIN) for node in nodes} | set(self.opsets)
            reason = _outside(domains - own, operators, tensors)
        except (ValueError, RecursionError, UnicodeDecodeError):
            outputs = []
        if not outputs:
            raise RemedyError(
                f"{source} is no ONNX file, or a damaged one", "Name a file that ends in .onnx, or copy it again."
            )
        self.outputs, self.source = outputs, source
        # Files of an early version list weights among the inputs.
        self.inputs = [each for each in self.inputs if each.name not in weights]
        # A text's numbers would depend on the others in its batch.
        self.by_batch = bool(operators & _BY_BATCH)
        if reason:
            raise RemedyError(
                f"{source} is refused: {reason}",
                "Use a file that is whole in itself, with ONNX's own operators only: onnx.save(onnx.load(path), "
                "new_path) puts weights of other files into one.",
            )

    def __bytes__(self) -> bytes:
        self.model.replace(_MODEL_GRAPH, [self.graph])
        return bytes(self.model)

    @property
    def opsets(self) -> dict[str, int]:
        """The version of each set of operators."""
        return {each.text(1): (each.numbers(2) or [0])[-1] for each in self.model.messages(_MODEL_OPSET)}

    @property
    def results(self) -> set[str]:
        """The names of all nodes' outputs."""
        return {name for node in self.graph.messages(_GRAPH_NODE) for name in node.strings(_NODE_OUTPUT)}

    def add_node(self, op: str, inputs: Sequence[str], output: str, **ints: int) -> None:
        """Add a node."""
        node = Message()
        for name in inputs:
            node.add(_NODE_INPUT, name)
        node.add(_NODE_OUTPUT, output).add(_NODE_OP, op)
        for name, value in ints.items():
            attribute = Message().add(_ATTRIBUTE_NAME, name).add(_ATTRIBUTE_INT, value).add(_ATTRIBUTE_TYPE, _INT)
            node.add(_NODE_ATTRIBUTE, attribute)
        self.graph.add(_GRAPH_NODE, node)

    def show(self, name: str) -> None:
        """Make a node's output an output of the graph."""
        if all(output.name != name for output in self.outputs):
            self.graph.add(_GRAPH_OUTPUT, Message().add(1, name))
            self.outputs.append(Tensor(name, 0, None))

    def use_lengths(self, name: str) -> None:
        """Give the lengths of sequences, an input of the graph, to recurrent nodes that lack them: otherwise they read
        padding as text."""
        nodes = list(self.graph.messages(_GRAPH_NODE))
        changed = False
        for node in nodes:
            given = node.strings(_NODE_INPUT)
            if node.text(_NODE_OP) in _RECURRENT and not "".join(given[_LENGTHS : _LENGTHS + 1]):
                given += [""] * (_LENGTHS + 1 - len(given))
                given[_LENGTHS] = f"{name}_int32"
                node.replace(_NODE_INPUT, [each.encode() for each in given])
                changed = True
        if changed:
            self.graph.replace(_GRAPH_NODE, [])
            self.add_node("Cast", [name], f"{name}_int32", to=_INT32)
            for node in nodes:
                self.graph.add(_GRAPH_NODE, node)

    def take_rows(self, name: str, rows: IntArray) -> None:
        """Keep only some rows of a table of float32, in the given order."""
        kept = []
        for tensor in self.graph.messages(_GRAPH_TENSOR):
            if tensor.text(_TENSOR_NAME) == name:
                height, width = tensor.numbers(_TENSOR_DIMS)
                [raw] = (value for number, _, value in tensor.fields if number == _TENSOR_RAW)
                table = np.frombuffer(raw, dtype="<f4").reshape(height, width)  # type: ignore[arg-type]
                tensor.replace(_TENSOR_RAW, [table[rows].tobytes()])
                tensor.replace(_TENSOR_DIMS, [])
                tensor.add(_TENSOR_DIMS, len(rows)).add(_TENSOR_DIMS, width)
            kept.append(tensor)
        self.graph.replace(_GRAPH_TENSOR, kept)


def _parts(model: Message) -> tuple[list[Message], list[Message]]:
    """Return all nodes and tensors of a model, those of inner graphs and functions too."""
    nodes: list[Message] = []
    tensors: list[Message] = []
    for function in model.messages(_MODEL_FUNCTION):
        _add_nodes(function.messages(_FUNCTION_NODE), nodes, tensors)
        _add_attributes(function.messages(_FUNCTION_DEFAULT), nodes, tensors)
    for training in model.messages(_MODEL_TRAINING):
        _add_graphs(training.messages(*_TRAINING_GRAPHS), nodes, tensors)
    _add_graphs(model.messages(_MODEL_GRAPH), nodes, tensors)
    return nodes, tensors


def _add_graphs(graphs: Iterable[Message], nodes: list[Message], tensors: list[Message]) -> None:
    for graph in graphs:
        tensors += graph.messages(_GRAPH_TENSOR)
        tensors += (part for each in graph.messages(_GRAPH_SPARSE) for part in each.messages(*_SPARSE_TENSORS))
        _add_nodes(graph.messages(_GRAPH_NODE), nodes, tensors)


def _add_nodes(found: Iterable[Message], nodes: list[Message], tensors: list[Message]) -> None:
    for node in found:
        nodes.append(node)
        _add_attributes(node.messages(_NODE_ATTRIBUTE), nodes, tensors)


def _add_attributes(found: Iterable[Message], nodes: list[Message], tensors: list[Message]) -> None:
    for attribute in found:
        tensors += attribute.messages(*_ATTRIBUTE_TENSORS)
        sparse = attribute.messages(*_ATTRIBUTE_SPARSE)
        tensors += (part for each in sparse for part in each.messages(*_SPARSE_TENSORS))
        _add_graphs(attribute.messages(*_ATTRIBUTE_GRAPHS), nodes, tensors)


def _outside(domains: set[str], operators: set[str], tensors: Iterable[Message]) -> str:
    """Return why a graph would need other files, or nothing."""
    if unknown := domains - _DOMAINS:
        return f"it has operators of '{min(unknown)}', which another library would have to compute"
    if unknown := operators & _READS_FILES:
        return f"its operator {min(unknown)} reads another file"
    for tensor in tensors:
        if any(number == _TENSOR_EXTERNAL for number, _, _ in tensor.fields) or any(tensor.numbers(_TENSOR_PLACE)):
            return f"its weights '{tensor.text(_TENSOR_NAME)}' are in another file"
    return ""


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """Return a number of variable length, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    value &= (1 << 64) - 1  # negative numbers are two's complements
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
