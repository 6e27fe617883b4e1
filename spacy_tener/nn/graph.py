"""`Graph`, a builder for ONNX graphs with a syntax similar to NumPy. It is used by the command `spacy tener export`.

Python operators, and methods that have the name of an ONNX operator, add nodes to the graph:

    graph = Graph()
    ids = graph.input("ids", np.int64, "tokens")
    embeddings = graph.Gather(table, ids, axis=0)               # a NumPy array becomes a constant
    model = graph.model({"output": (embeddings + 1.0, np.float32, ["tokens", 128])})

Layers that can be exported have a method `write`, which adds the layer's operations to a graph.
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
    """A tensor in an ONNX graph: an input, a constant, or the output of a node.

    Python operators such as `+` and `@` add nodes to the graph. Operands can be tensors, arrays or numbers. Python
    integers become int64 constants, and Python floats become float64 constants.

    graph (Graph): The graph that contains the tensor.
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
        """Select elements along the first dimension, by indices or by a slice."""
        if isinstance(rows, slice):
            return self.graph.slice(self, rows.start or 0, rows.stop)
        return self.graph.Gather(self, rows, axis=0)

    def to(self, dtype: Any) -> Value:
        """Cast the tensor to another dtype."""
        return self.graph.Cast(self, to=_type_of(dtype))


class Graph:
    """Builder for an ONNX graph.

    For example, `graph.Gather(table, rows, axis=0)` adds a node with the operator `Gather`.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        # A stack with the nodes in the main graph, followed by those in each nested loop body that is being built.
        self._scopes: list[list[Any]] = [[]]
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def __getattr__(self, operator: str) -> Callable[..., Value]:
        """Return a function that adds a node with this ONNX operator and returns its single output."""
        if not operator[0].isupper():
            raise AttributeError(operator)
        return lambda *inputs, **attributes: self.add(operator, *inputs, **attributes)[0]

    def add(self, operator: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> list[Value]:
        """Add a node to the graph.

        operator (str): ONNX operator name.
        inputs (Any): Tensors in the graph, arrays or numbers. Arrays and numbers are converted to constants. Use None
            to omit an optional input.
        outputs (int): Number of outputs.
        domain (str): The operator's ONNX domain. The empty string is the default domain.
        attributes (Any): Operator attributes.
        RETURNS (list[Value]): The node's outputs.
        """
        from onnx.helper import make_node

        names = ["" if value is None else self.value(value).name for value in inputs]
        results = [self._name() for _ in range(outputs)]
        self._scopes[-1].append(make_node(operator, names, results, domain=domain, **attributes))
        return [Value(self, name) for name in results]

    def value(self, value: Any) -> Value:
        """Convert an array or a number to a constant in the graph. Equal constants are stored only once.

        If the value is already a tensor in the graph, it is returned unchanged.
        """
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

        name (str): Input name.
        dtype (Any): NumPy dtype, or `str`.
        shape (str): Name of each dimension. All dimensions have dynamic sizes.
        RETURNS (Value): The input.
        """
        from onnx.helper import make_tensor_value_info

        self._inputs.append(make_tensor_value_info(name, _type_of(dtype), shape))
        return Value(self, name)

    def model(self, outputs: dict[str, tuple[Value, Any, Sequence[Any]]]) -> ModelProto:
        """Build the ONNX model from the nodes that were added to the graph.

        outputs (dict[str, tuple[Value, Any, Sequence[Any]]]): The model's outputs by name, each with its tensor, dtype
            and shape.
        RETURNS (ModelProto): The model.
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
        """Add all nodes from another ONNX model to the graph.

        model (ModelProto): The other model.
        inputs (dict[str, Value]): The tensor to use for each input of the other model, by name.
        outputs (Sequence[str]): Names of tensors in the other model.
        RETURNS (list[Value]): The tensors with these names.
        """
        from onnx.compose import add_prefix_graph

        prefix = self._name()
        graph = add_prefix_graph(model.graph, prefix)
        for name, value in inputs.items():
            self._scopes[-1].append(_renamed(value, prefix + name))
        # Remove debug information, since it can contain file names from the computer that exported the model.
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
        """Add a while loop, using the ONNX operator `Loop`.

        states (Sequence[Value]): Initial values of the loop variables.
        goes_on (Callable): Loop condition. It is called with the loop variables.
        body (Callable): Loop body. It is called with the loop variables, and returns their new values, followed by the
            iteration's outputs.
        n_rows (int): Number of outputs per iteration, in addition to the loop variables.
        RETURNS (list[Value]): The final values of the loop variables, followed by the stacked outputs. *Shape:*
            (iterations, ...) for each stacked output
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
        """Add a loop over an axis of one or several arrays, using the ONNX operator `Scan`.

        states (Sequence[Value]): Initial values of the loop variables.
        rows (Sequence[Value]): The arrays to iterate over. The loop axis must have the same size in all arrays.
        body (Callable): Loop body. It is called with the loop variables and a slice of each array, and returns the new
            values of the loop variables and an output.
        axis (int): The loop axis in the arrays and in the result.
        RETURNS (Value): The stacked outputs of all iterations.
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
        """Build the subgraph for a loop body. As in all ONNX subgraphs, the body can use tensors from the outer graph.

        write (Callable): Function that is called with the body's inputs, adds its nodes, and returns its outputs.
        n_inputs (int): Number of inputs.
        is_loop (bool): Whether the body belongs to the operator `Loop`. The first two inputs are then the iteration
            number and the condition.
        """
        from onnx import TensorProto, ValueInfoProto
        from onnx.helper import make_graph, make_tensor_value_info

        inputs = [Value(self, self._name()) for _ in range(n_inputs)]
        self._scopes.append([])
        results: list[Value] = []
        for value in write(*inputs):
            # In an ONNX subgraph, each output must be the output of a node in the subgraph, and must be listed only
            # once. Other outputs are copied with an `Identity` node.
            is_new = any(value.name in node.output for node in self._scopes[-1])
            is_new = is_new and value.name not in [result.name for result in results]
            results.append(value if is_new else self.Identity(value))
        before, after = ([ValueInfoProto(name=value.name) for value in values] for values in (inputs, results))
        # ONNX Runtime requires the shapes of the iteration number and the condition.
        if is_loop:
            for i, kind in enumerate((TensorProto.INT64, TensorProto.BOOL)):
                before[i] = make_tensor_value_info(inputs[i].name, kind, [])
        return make_graph(self._scopes.pop(), self._name(), before, after)

    def _name(self) -> str:
        return f"v{next(self._numbers)}"

    # The following methods combine several ONNX operators.

    def size(self, value: Value, axis: int = 0) -> Value:
        """Return a tensor's size along an axis. *Shape:* ()"""
        return self.Gather(self.Shape(value), axis, axis=0)

    def shape(self, *sizes: Any) -> Value:
        """Build a tensor's shape from its sizes, which can be numbers or tensors in the graph.

        *Shape:* (dimensions,)
        """
        return self.Concat(*(self.Reshape(self.value(size), [1]) for size in sizes), axis=0)

    def slice(self, value: Value, start: Any, stop: Any = None, *, axis: int = 0) -> Value:
        """Slice a tensor along an axis, from `start` to `stop` (exclusive)."""
        ends = np.iinfo(np.int64).max if stop is None else stop
        bounds = (self.Reshape(self.value(bound), [1]) for bound in (start, ends))
        return self.Slice(value, *bounds, [axis])

    def full(self, number: Any, *sizes: Any) -> Value:
        """Return a tensor with the given shape in which all elements have the same value.

        number (Any): The value of all elements.
        sizes (Any): The size of each dimension, as a number or a tensor in the graph.
        """
        return self.Expand(number, self.shape(*sizes))

    def starts(self, lengths: Value) -> Value:
        """Return each sequence's offset in a concatenated batch. *Shape:* (sequences,)"""
        return self.CumSum(lengths, 0, exclusive=1)

    def reverse_sequences(self, value: Value, lengths: Value) -> Value:
        """Reverse each sequence in a padded batch. Padding stays at the end. *Shape:* (longest, sequences, ...)"""
        return self.ReverseSequence(value, lengths, time_axis=0, batch_axis=1)

    def count_indices(self, indices: Value, size: Value) -> Value:
        """Count how often each index occurs, like `np.bincount`. *Shape:* (size,)

        indices (Value): Indices from 0 to `size`. The index `size` is not counted. It can occur because an empty
            sequence at the end of a batch starts after the last token.
        size (Value): Length of the result.
        """
        # Count the index `size` in an additional element, which is then removed.
        ones = self.full(1, self.size(indices))
        return self.ScatterElements(self.full(0, size + 1), indices, ones, axis=0, reduction="add")[:size]

    def sequence_index(self, starts: Value, size: Value) -> Value:
        """Return the index of the sequence that contains each element in a concatenated batch. *Shape:* (size,)

        starts (Value): Offset of each sequence. *Shape:* (sequences,)
        size (Value): Total length of all sequences.
        """
        # An element belongs to the last sequence that starts at or before the element.
        return self.CumSum(self.count_indices(starts, size), 0) - 1

    def where_true(self, mask: Value) -> Value:
        """Return the indices of the true elements in a mask. *Shape:* (indices,)"""
        return self.Squeeze(self.NonZero(mask), [0])

    def shift_right(self, value: Value, first: Any) -> Value:
        """Shift a vector by one position to the right, and insert `first` at the start. The last element is removed.

        *Shape:* (size,)
        """
        return self.Concat(self.value(np.asarray([first])), self.slice(value, 0, -1), axis=0)

    def lookup(self, keys: Value, numbers: dict[int, int], default: int) -> Value:
        """Map integer keys to integer values.

        keys (Value): The keys, with any shape.
        numbers (dict[int, int]): The value for each key.
        default (int): The value for all other keys.
        RETURNS (Value): The values. They have the same shape as `keys`.
        """
        # The operator `LabelEncoder` requires at least one key.
        numbers = numbers or {0: default}
        tables: dict[str, Any] = {"keys_int64s": list(numbers), "values_int64s": list(numbers.values())}
        return self.add("LabelEncoder", keys, domain=ML, default_int64=default, **tables)[0]


@dataclass(frozen=True)
class PaddedBatch:
    """The lengths and the padding mask of a padded batch in an ONNX graph.

    lengths (Value): Sequence lengths in tokens. *Shape:* (sequences,)
    longest (Value): Maximum sequence length. *Shape:* ()
    is_real (Value): Mask that is False for padded positions. *Shape:* (sequences, longest)
    """

    lengths: Value
    longest: Value
    is_real: Value


def _renamed(value: Value, name: str) -> Any:
    """Return an ONNX node that copies a tensor to a tensor with another name."""
    from onnx.helper import make_node

    return make_node("Identity", [value.name], [name])


def _type_of(dtype: Any) -> int:
    """Return the ONNX data type for a NumPy dtype or for `str`."""
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    return TensorProto.STRING if dtype is str else np_dtype_to_tensor_dtype(np.dtype(dtype))
