"""A graph of ONNX, written as one writes NumPy: values have operators, and bodies of loops are functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
ML = "ai.onnx.ml"


def _operator(name: str) -> Callable[[Value, Any], Value]:
    return lambda value, operand: value.graph.add(name, value, operand)[0]


class Value:
    """A result in a graph, by its name. Numbers beside it become constants: integers int64, others float64."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    __add__ = _operator("Add")
    __sub__ = _operator("Sub")
    __mul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __matmul__ = _operator("MatMul")
    __lt__ = _operator("Less")
    __le__ = _operator("LessOrEqual")
    __gt__ = _operator("Greater")
    __and__ = _operator("And")
    __or__ = _operator("Or")

    def __invert__(self) -> Value:
        return self.graph.Not(self)

    def __getitem__(self, rows: Any) -> Value:
        """Return rows by their indices, or a slice along the first dimension."""
        if isinstance(rows, slice):
            return self.graph.slice(self, rows.start or 0, rows.stop)
        return self.graph.Gather(self, rows, axis=0)

    def to(self, dtype: Any) -> Value:
        """Return the value in another type of number."""
        return self.graph.Cast(self, to=_type_of(dtype))


class Graph:
    """A graph to which operators are added by their names, as `graph.Gather(table, rows, axis=0)`."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._scopes: list[list[Any]] = [[]]
        """The nodes of the graph, and of the bodies that are being written."""
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def __getattr__(self, operator: str) -> Callable[..., Value]:
        """Return a function that adds an operator of one result."""
        if not operator[0].isupper():
            raise AttributeError(operator)
        return lambda *inputs, **attributes: self.add(operator, *inputs, **attributes)[0]

    def add(self, operator: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> list[Value]:
        """Add an operator, and return its results.

        inputs (Any): Values, or arrays and numbers, which become constants; None for an input that is left out.
        outputs (int): The number of results.
        """
        from onnx.helper import make_node

        names = ["" if value is None else self.value(value).name for value in inputs]
        results = [self._name() for _ in range(outputs)]
        self._scopes[-1].append(make_node(operator, names, results, domain=domain, **attributes))
        return [Value(self, name) for name in results]

    def value(self, value: Any) -> Value:
        """Return a value as it is, or an array as a constant."""
        if isinstance(value, Value):
            return value
        from onnx import numpy_helper

        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            name = self._name()
            self._weights.append(numpy_helper.from_array(array, name))
            self._constants[key] = Value(self, name)
        return self._constants[key]

    def input(self, name: str, dtype: Any, *shape: str) -> Value:
        """Add an input of the graph, whose dimensions have these names."""
        from onnx.helper import make_tensor_value_info

        self._inputs.append(make_tensor_value_info(name, _type_of(dtype), shape))
        return Value(self, name)

    def model(self, outputs: dict[str, tuple[Value, Any, Sequence[Any]]]) -> ModelProto:
        """Return the finished model.

        outputs (dict[str, tuple[Value, Any, Sequence[Any]]]): Value, type and shape of each output, by name.
        """
        from onnx.helper import make_graph, make_model, make_opsetid, make_tensor_value_info

        infos = []
        for name, (value, dtype, shape) in outputs.items():
            self._scopes[0].append(_renamed(value, name))
            infos.append(make_tensor_value_info(name, _type_of(dtype), shape))
        graph = make_graph(self._scopes[0], "tener", self._inputs, infos, self._weights)
        opsets = [make_opsetid("", OPSET), make_opsetid(ML, ML_OPSET)]
        return make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="spacy_tener")

    def include(self, model: ModelProto, inputs: dict[str, Value], outputs: Sequence[str]) -> list[Value]:
        """Add the nodes of another graph, and return some of its results.

        inputs (dict[str, Value]): The values of its inputs, by name.
        outputs (Sequence[str]): The names of the results.
        """
        from onnx.compose import add_prefix_graph

        prefix = self._name()
        graph = add_prefix_graph(model.graph, prefix)
        for name, value in inputs.items():
            self._scopes[-1].append(_renamed(value, prefix + name))
        for node in graph.node:  # Exporters write paths of their machine there.
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
        self._scopes[-1] += graph.node
        self._weights += graph.initializer
        return [Value(self, prefix + name) for name in outputs]

    def loop(
        self,
        states: Sequence[Value],
        goes_on: Callable[..., Value],
        body: Callable[..., Sequence[Value]],
        n_rows: int = 0,
    ) -> list[Value]:
        """Run a body while a condition holds.

        states (Sequence[Value]): What the body gets and returns anew.
        goes_on (Callable): Returns the condition, of the states.
        body (Callable): Returns the new states and, behind them, rows that are collected.
        n_rows (int): The number of rows.
        RETURNS (list[Value]): The last states, and the collected rows. *Shape:* (iterations, ...) each
        """
        n_states = len(states)

        def write(step: Value, _: Value, *old: Value) -> list[Value]:
            results = list(body(*old))
            return [goes_on(*results[:n_states]), *results]

        graph = self._body(write, 2 + n_states, is_loop=True)
        return self.add("Loop", None, goes_on(*states), *states, outputs=n_states + n_rows, body=graph)

    def scan(
        self, states: Sequence[Value], rows: Sequence[Value], body: Callable[..., Sequence[Value]], *, axis: int = 0
    ) -> Value:
        """Run a body over rows of arrays, along an axis.

        body (Callable): Gets the states and a row of each array; returns the new states and a row.
        RETURNS (Value): The rows of all steps.
        """
        graph = self._body(body, len(states) + len(rows))
        results = self.add(
            "Scan",
            *states,
            *rows,
            outputs=len(states) + 1,
            body=graph,
            num_scan_inputs=len(rows),
            scan_input_axes=[axis] * len(rows),
            scan_output_axes=[axis],
        )
        return results[-1]

    def _body(self, write: Callable[..., Sequence[Value]], n_inputs: int, *, is_loop: bool = False) -> GraphProto:
        """Return the graph of a body, which may use all values outside of it."""
        from onnx import TensorProto, ValueInfoProto
        from onnx.helper import make_graph, make_tensor_value_info

        inputs = [Value(self, self._name()) for _ in range(n_inputs)]
        self._scopes.append([])
        results: list[Value] = []
        for value in write(*inputs):
            # An output is the body's own: not a value outside of it, nor an input, nor another output.
            is_new = any(value.name in node.output for node in self._scopes[-1])
            is_new = is_new and value.name not in [result.name for result in results]
            results.append(value if is_new else self.Identity(value))
        before, after = ([ValueInfoProto(name=value.name) for value in values] for values in (inputs, results))
        if is_loop:  # ONNX Runtime wants to know the shapes of the counter and of the condition.
            for i, kind in enumerate((TensorProto.INT64, TensorProto.BOOL)):
                before[i] = make_tensor_value_info(inputs[i].name, kind, [])
        return make_graph(self._scopes.pop(), self._name(), before, after)

    def _name(self) -> str:
        return f"v{next(self._numbers)}"

    # Shapes and indices

    def size(self, value: Value, axis: int = 0) -> Value:
        """Return the size of a dimension. *Shape:* ()"""
        return self.Gather(self.Shape(value), axis, axis=0)

    def shape(self, *sizes: Any) -> Value:
        """Return a shape of sizes, which are values or numbers. *Shape:* (sizes,)"""
        return self.Concat(*(self.Reshape(self.value(size), [1]) for size in sizes), axis=0)

    def slice(self, value: Value, start: Any, stop: Any = None, *, axis: int = 0) -> Value:
        """Return the part from `start` to `stop` along an axis."""
        ends = np.iinfo(np.int64).max if stop is None else stop
        bounds = (self.Reshape(self.value(bound), [1]) for bound in (start, ends))
        return self.Slice(value, *bounds, [axis])

    def full(self, number: Any, *sizes: Any) -> Value:
        """Return an array of one number."""
        return self.Expand(number, self.shape(*sizes))

    def starts(self, lengths: Value) -> Value:
        """Return the first index of each sequence among all joined. *Shape:* (sequences,)"""
        return self.CumSum(lengths, 0, exclusive=1)

    def reverse_sequences(self, value: Value, lengths: Value) -> Value:
        """Return sequences in the reverse order, each up to its length. *Shape:* (longest, sequences, ...)"""
        return self.ReverseSequence(value, lengths, time_axis=0, batch_axis=1)

    def count_indices(self, indices: Value, size: Value) -> Value:
        """Return how often each number below `size` is among the indices. *Shape:* (size,)"""
        # One more, for the start of empty sequences at the end.
        ones = self.full(1, self.size(indices))
        return self.ScatterElements(self.full(0, size + 1), indices, ones, axis=0, reduction="add")[:size]

    def sequence_index(self, starts: Value, size: Value) -> Value:
        """Return the sequence of each index among all joined. *Shape:* (size,)"""
        return self.CumSum(self.count_indices(starts, size), 0) - 1

    def where_true(self, mask: Value) -> Value:
        """Return the indices at which a mask is true. *Shape:* (indices,)"""
        return self.Squeeze(self.NonZero(mask), [0])

    def shift_right(self, value: Value, first: Any) -> Value:
        """Return the values one place later, behind a first one. *Shape:* (size,)"""
        return self.Concat(self.value(np.asarray([first])), self.slice(value, 0, -1), axis=0)

    def lookup(self, keys: Value, numbers: dict[int, int], default: int) -> Value:
        """Return the number of each key, or a default. *Shape:* any"""
        numbers = numbers or {0: default}  # The operator needs one.
        tables: dict[str, Any] = {"keys_int64s": list(numbers), "values_int64s": list(numbers.values())}
        return self.add("LabelEncoder", keys, domain=ML, default_int64=default, **tables)[0]


@dataclass(frozen=True)
class PaddedBatch:
    """Sequences that are computed together, padded to the longest of them.

    lengths (Value): *Shape:* (sequences,)
    longest (Value): *Shape:* ()
    is_real (Value): A mask of slots that are no padding. *Shape:* (sequences, longest)
    """

    lengths: Value
    longest: Value
    is_real: Value


def _renamed(value: Value, name: str) -> Any:
    from onnx.helper import make_node

    return make_node("Identity", [value.name], [name])


def _type_of(dtype: Any) -> int:
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    return TensorProto.STRING if dtype is str else np_dtype_to_tensor_dtype(np.dtype(dtype))
