"""`Graph`, which builds ONNX graphs with the syntax of NumPy, for `spacy tener export`.

Operators of Python and methods with the names of ONNX operators add nodes to the graph:

    graph = Graph()
    ids = graph.input("ids", np.int64, "tokens")
    embeddings = graph.Gather(table, ids, axis=0)               # a NumPy array becomes a constant
    model = graph.model({"output": (embeddings + 1.0, np.float32, ["tokens", 128])})

The layers of `nn` and `architectures` have methods `write`, which add them to a graph.
"""

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
    """A tensor in a graph: the output of a node, an input, or a constant.

    Python's operators add nodes. Numbers and arrays in expressions become constants: integers are int64, and other
    numbers float64.

    graph (Graph): The graph.
    name (str): Name of the tensor in the graph.
    """

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
        """Select rows by their indices, or a slice along the first dimension."""
        if isinstance(rows, slice):
            return self.graph.slice(self, rows.start or 0, rows.stop)
        return self.graph.Gather(self, rows, axis=0)

    def to(self, dtype: Any) -> Value:
        """Convert the value to another dtype."""
        return self.graph.Cast(self, to=_type_of(dtype))


class Graph:
    """An ONNX graph that is being built. `graph.Gather(table, rows, axis=0)` adds the operator `Gather`."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        # The nodes of the graph, followed by the nodes of the nested loop bodies that are being written.
        self._scopes: list[list[Any]] = [[]]
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def __getattr__(self, operator: str) -> Callable[..., Value]:
        """Return a function that adds an operator with a single output."""
        if not operator[0].isupper():
            raise AttributeError(operator)
        return lambda *inputs, **attributes: self.add(operator, *inputs, **attributes)[0]

    def add(self, operator: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> list[Value]:
        """Add a node, and return its outputs.

        operator (str): Name of the ONNX operator.
        inputs (Any): Values, or arrays and numbers, which become constants. None for an optional input that is left
            out.
        outputs (int): Number of outputs.
        domain (str): Domain of the operator. Empty for ONNX's own operators.
        attributes (Any): Attributes of the operator.
        RETURNS (list[Value]): The outputs.
        """
        from onnx.helper import make_node

        names = ["" if value is None else self.value(value).name for value in inputs]
        results = [self._name() for _ in range(outputs)]
        self._scopes[-1].append(make_node(operator, names, results, domain=domain, **attributes))
        return [Value(self, name) for name in results]

    def value(self, value: Any) -> Value:
        """Return a value as it is, and an array or number as a constant. Equal constants are stored once."""
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
        """Add an input to the graph.

        name (str): Name of the input.
        dtype (Any): NumPy dtype, or `str`.
        shape (str): Names of the dimensions, all of which are dynamic.
        RETURNS (Value): The input.
        """
        from onnx.helper import make_tensor_value_info

        self._inputs.append(make_tensor_value_info(name, _type_of(dtype), shape))
        return Value(self, name)

    def model(self, outputs: dict[str, tuple[Value, Any, Sequence[Any]]]) -> ModelProto:
        """Return the finished ONNX model.

        outputs (dict[str, tuple[Value, Any, Sequence[Any]]]): Value, dtype and shape of each output, by name.
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
        """Add all nodes of another ONNX model.

        model (ModelProto): The model.
        inputs (dict[str, Value]): A value for each input of the model.
        outputs (Sequence[str]): Names of the tensors to return.
        RETURNS (list[Value]): These tensors.
        """
        from onnx.compose import add_prefix_graph

        prefix = self._name()
        graph = add_prefix_graph(model.graph, prefix)
        for name, value in inputs.items():
            self._scopes[-1].append(_renamed(value, prefix + name))
        # Exporters write file names of the machine on which they run to these fields.
        for node in graph.node:
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
        """Add a loop that runs while a condition holds.

        states (Sequence[Value]): Values that change in each iteration.
        goes_on (Callable): Function that gets the states and returns the condition.
        body (Callable): Function that gets the states and returns the new states, followed by the rows to collect.
        n_rows (int): Number of rows that the body returns.
        RETURNS (list[Value]): The final states, followed by the collected rows. *Shape:* (iterations, ...) each
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
        """Add a loop over the rows of arrays.

        states (Sequence[Value]): Values that change in each iteration.
        rows (Sequence[Value]): The arrays, which have the same size along the axis.
        body (Callable): Function that gets the states and a row of each array, and returns the new states and one row.
        axis (int): The axis of the arrays and of the result.
        RETURNS (Value): The rows that the body returned, stacked.
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
        """Build the graph of a loop body. In ONNX, it can use all values outside of it.

        write (Callable): Function that gets the inputs, adds nodes, and returns the outputs.
        n_inputs (int): Number of inputs.
        is_loop (bool): Whether the body is for ONNX's `Loop`, whose first inputs are the counter and the condition.
        """
        from onnx import TensorProto, ValueInfoProto
        from onnx.helper import make_graph, make_tensor_value_info

        inputs = [Value(self, self._name()) for _ in range(n_inputs)]
        self._scopes.append([])
        results: list[Value] = []
        for value in write(*inputs):
            # ONNX requires that each output is a node's output in the body, and that no output occurs twice.
            is_new = any(value.name in node.output for node in self._scopes[-1])
            is_new = is_new and value.name not in [result.name for result in results]
            results.append(value if is_new else self.Identity(value))
        before, after = ([ValueInfoProto(name=value.name) for value in values] for values in (inputs, results))
        if is_loop:  # ONNX Runtime requires the shapes of the counter and of the condition.
            for i, kind in enumerate((TensorProto.INT64, TensorProto.BOOL)):
                before[i] = make_tensor_value_info(inputs[i].name, kind, [])
        return make_graph(self._scopes.pop(), self._name(), before, after)

    def _name(self) -> str:
        return f"v{next(self._numbers)}"

    # The following methods combine several operators, mostly for shapes and indices.

    def size(self, value: Value, axis: int = 0) -> Value:
        """Return the size of a dimension. *Shape:* ()"""
        return self.Gather(self.Shape(value), axis, axis=0)

    def shape(self, *sizes: Any) -> Value:
        """Return a shape, from sizes that are values or numbers. *Shape:* (sizes,)"""
        return self.Concat(*(self.Reshape(self.value(size), [1]) for size in sizes), axis=0)

    def slice(self, value: Value, start: Any, stop: Any = None, *, axis: int = 0) -> Value:
        """Return the part from `start` to `stop`, exclusive, along an axis."""
        ends = np.iinfo(np.int64).max if stop is None else stop
        bounds = (self.Reshape(self.value(bound), [1]) for bound in (start, ends))
        return self.Slice(value, *bounds, [axis])

    def full(self, number: Any, *sizes: Any) -> Value:
        """Return an array that is filled with a number, from sizes that are values or numbers."""
        return self.Expand(number, self.shape(*sizes))

    def starts(self, lengths: Value) -> Value:
        """Return the index of the first element of each sequence, if all sequences are concatenated. *Shape:*
        (sequences,)
        """
        return self.CumSum(lengths, 0, exclusive=1)

    def reverse_sequences(self, value: Value, lengths: Value) -> Value:
        """Reverse each padded sequence up to its length. *Shape:* (longest, sequences, ...)"""
        return self.ReverseSequence(value, lengths, time_axis=0, batch_axis=1)

    def count_indices(self, indices: Value, size: Value) -> Value:
        """Count how often each index occurs. *Shape:* (size,)

        indices (Value): Indices from 0 to `size`. The index `size`, the start of an empty sequence at the end, is
            ignored.
        size (Value): Length of the result.
        """
        # The counts have an additional element, for the index `size`.
        ones = self.full(1, self.size(indices))
        return self.ScatterElements(self.full(0, size + 1), indices, ones, axis=0, reduction="add")[:size]

    def sequence_index(self, starts: Value, size: Value) -> Value:
        """Return the sequence of each element, if all sequences are concatenated. *Shape:* (size,)

        starts (Value): Index of the first element of each sequence. *Shape:* (sequences,)
        size (Value): Total length of the sequences.
        """
        return self.CumSum(self.count_indices(starts, size), 0) - 1

    def where_true(self, mask: Value) -> Value:
        """Return the indices at which a mask is true. *Shape:* (indices,)"""
        return self.Squeeze(self.NonZero(mask), [0])

    def shift_right(self, value: Value, first: Any) -> Value:
        """Shift the elements by one to the right, drop the last one, and insert `first` at the beginning. *Shape:*
        (size,)
        """
        return self.Concat(self.value(np.asarray([first])), self.slice(value, 0, -1), axis=0)

    def lookup(self, keys: Value, numbers: dict[int, int], default: int) -> Value:
        """Look up the number of each key, or the default. *Shape:* any"""
        numbers = numbers or {0: default}  # The operator requires at least one key.
        tables: dict[str, Any] = {"keys_int64s": list(numbers), "values_int64s": list(numbers.values())}
        return self.add("LabelEncoder", keys, domain=ML, default_int64=default, **tables)[0]


@dataclass(frozen=True)
class PaddedBatch:
    """Sequences of an ONNX graph that are computed together, padded to the length of the longest one.

    lengths (Value): Token count per sequence. *Shape:* (sequences,)
    longest (Value): Maximum sequence length. *Shape:* ()
    is_real (Value): Mask of the tokens that are not padding. *Shape:* (sequences, longest)
    """

    lengths: Value
    longest: Value
    is_real: Value


def _renamed(value: Value, name: str) -> Any:
    """Return a node that gives a value another name."""
    from onnx.helper import make_node

    return make_node("Identity", [value.name], [name])


def _type_of(dtype: Any) -> int:
    """Return the ONNX type of a NumPy dtype or of `str`."""
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    return TensorProto.STRING if dtype is str else np_dtype_to_tensor_dtype(np.dtype(dtype))
