"""Edits of ONNX graphs, when a pipeline is made, and graphs in int8: a quarter of the size, and multiplied faster.

A saved pipeline holds the edited graph and does not need `onnx`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import check_package, install
from ..types import FloatArray, IntArray
from .published_weights import BLOCK, MIDDLE, Blocks

_RECURRENT = {"GRU", "LSTM", "RNN"}
_LENGTHS = 4
"""The input of these operators that has the lengths of the sequences."""


def read_graph(graph: bytes) -> Any:
    """Return an `onnx.ModelProto`."""
    check_package("onnx", "To edit the encoder's graph takes", f"Install it by `{install('onnx')}`.")
    import onnx

    return onnx.load_from_string(graph)


def results_of(model: Any) -> list[str]:
    """Return the names of all nodes' outputs."""
    return [name for node in model.graph.node for name in node.output if name]


def show_outputs(model: Any, names: Sequence[str]) -> None:
    """Make outputs of nodes outputs of the graph."""
    present = {output.name for output in model.graph.output}
    for name in names:
        if name not in present:
            model.graph.output.add(name=name)


def add_softmax(model: Any, scores: str, output: str) -> None:
    """Add a node that turns scores into probabilities, along the last axis."""
    from onnx.helper import make_node

    model.graph.node.append(make_node("Softmax", [scores], [output], axis=-1))


def use_lengths(model: Any, lengths: str) -> None:
    """Give the lengths of sequences, an input of the graph, to recurrent nodes that lack them: otherwise they read
    padding as text."""
    from onnx import TensorProto
    from onnx.helper import make_node

    nodes = model.graph.node
    lacking = [node for node in nodes if node.op_type in _RECURRENT and not "".join(node.input[_LENGTHS:][:1])]
    for node in lacking:
        names = [*node.input, *[""] * (_LENGTHS + 1 - len(node.input))]
        names[_LENGTHS] = f"{lengths}_int32"
        node.input[:] = names
    if lacking:
        nodes.insert(0, make_node("Cast", [lengths], [f"{lengths}_int32"], to=TensorProto.INT32))


def select_rows(model: Any, table: str, rows: IntArray) -> None:
    """Keep only some rows of a table of weights, in the given order."""
    from onnx import numpy_helper

    [tensor] = (tensor for tensor in model.graph.initializer if tensor.name == table)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[rows], table))


_MIN_ROWS = 1000
"""Smaller tables of rows stay as they are, such as those of positions."""
_INT8_STEPS, _STEPS_OF_WEIGHTS = 127, 63
"""Steps from 0 to the largest number. A processor without instructions for int8 adds two products in 16 bits, which
cannot hold two products of 255 and 127."""
_TINY = 1e-9


def to_int8(data: bytes) -> bytes:
    """Return an ONNX file whose products with a matrix of weights are computed in int8.

    A matrix has a scale for each column, and what it is multiplied with one for each row, which is that of a piece: so
    the result of a text does not depend on others in its batch. (`quantize_dynamic` of onnxruntime has one scale for
    the batch.) Large tables, those of pieces, are stored in int8 with a scale for each row; those that blocks of 4 bits
    hold as they are, such as E5's, in these.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(data)
    graph = model.graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    new_weights: dict[str, Any] = {
        "int8_steps": np.float32(_INT8_STEPS),
        "int8_tiny": np.float32(_TINY),
        "int8_one": np.float32(1),
        "int8_zero": np.uint8(128),
    }
    scaled: set[str] = set()
    nodes: list[Any] = []
    for node in graph.node:
        table = next((name for name in node.input if name in weights), "")
        if node.op_type == "MatMul" and node.input[1] == table and weights[table].ndim == 2:
            new_weights |= _quantize(table, weights[table], axis=0, steps=_STEPS_OF_WEIGHTS)
            nodes += [] if node.input[0] in scaled else _quantize_rows(node.input[0])
            scaled.add(node.input[0])
            nodes += _multiply(node.input[0], table, node.output[0])
        elif node.op_type == "Gather" and node.input[0] == table and _is_table(node, weights[table]):
            blocks = Blocks.holding(weights[table])
            if blocks is not None:
                tensors, look_up = blocks_look_up(table, blocks, node.input[1], node.output[0])
                new_weights |= tensors
                nodes += look_up
            else:
                new_weights |= _quantize(table, weights[table], axis=1, steps=_INT8_STEPS)
                nodes += _look_up(table, node.input[1], node.output[0])
        else:
            nodes.append(node)
    inputs = {name for node in nodes for name in node.input}
    old_tensors = [tensor for tensor in graph.initializer if tensor.name in inputs]
    new_tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in new_weights.items()]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(old_tensors + new_tensors)
    onnx.checker.check_model(model)
    result: bytes = model.SerializeToString()
    return result


def _is_table(node: Any, weights: FloatArray) -> bool:
    return weights.ndim == 2 and len(weights) > _MIN_ROWS and weights.dtype == np.float32 and not node.attribute


def _quantize(name: str, weights: FloatArray, *, axis: int, steps: int) -> dict[str, Any]:
    """Return weights in int8, and the steps of their columns (axis 0) or rows (axis 1)."""
    step = np.maximum(np.abs(weights).max(axis=axis, keepdims=True), _TINY).astype("f") / np.float32(steps)
    return {f"{name}_int8": np.rint(weights / step).astype(np.int8), f"{name}_step": step}


def blocks_look_up(table: str, blocks: Blocks, ids: str, output: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the tensors and the nodes that look up the rows of a table in blocks of 4 bits."""
    from onnx.helper import make_node

    tensors = {
        f"{table}_halves": np.ascontiguousarray(blocks.packed),
        f"{table}_scales": np.ascontiguousarray(blocks.scales)[..., None],
        f"{table}_bits": np.uint8(4),
        f"{table}_middle": np.float32(MIDDLE),
        f"{table}_shape": np.array([0, 0, blocks.scales.shape[1] * BLOCK]),
    }
    bits = f"{table}_bits"
    nodes = [
        make_node("Gather", [f"{table}_halves", ids], [f"{output}_halves"]),
        make_node("BitShift", [f"{output}_halves", bits], [f"{output}_high"], direction="RIGHT"),
        make_node("BitShift", [f"{output}_halves", bits], [f"{output}_shifted"], direction="LEFT"),
        make_node("BitShift", [f"{output}_shifted", bits], [f"{output}_low"], direction="RIGHT"),
        make_node("Concat", [f"{output}_low", f"{output}_high"], [f"{output}_joined"], axis=-1),
        make_node("Cast", [f"{output}_joined"], [f"{output}_float"], to=1),
        make_node("Sub", [f"{output}_float", f"{table}_middle"], [f"{output}_steps"]),
        make_node("Gather", [f"{table}_scales", ids], [f"{output}_half"]),
        make_node("Cast", [f"{output}_half"], [f"{output}_scales"], to=1),
        make_node("Mul", [f"{output}_steps", f"{output}_scales"], [f"{output}_blocks"]),
        make_node("Reshape", [f"{output}_blocks", f"{table}_shape"], [output]),
    ]
    return tensors, nodes


def _quantize_rows(rows: str) -> Iterator[Any]:
    """Yield the nodes that convert rows to int8, each by its largest number."""
    from onnx.helper import make_node

    yield make_node("Abs", [rows], [f"{rows}_sizes"])
    yield make_node("ReduceMax", [f"{rows}_sizes"], [f"{rows}_size"], axes=[-1])
    yield make_node("Max", [f"{rows}_size", "int8_tiny"], [f"{rows}_most"])
    yield make_node("Div", [f"{rows}_most", "int8_steps"], [f"{rows}_step"])
    yield make_node("Div", ["int8_steps", f"{rows}_most"], [f"{rows}_factor"])
    yield make_node("Mul", [rows, f"{rows}_factor"], [f"{rows}_scaled"])
    yield make_node("QuantizeLinear", [f"{rows}_scaled", "int8_one", "int8_zero"], [f"{rows}_int8"])


def _multiply(rows: str, table: str, output: str) -> Iterator[Any]:
    from onnx.helper import make_node

    yield make_node("MatMulInteger", [f"{rows}_int8", f"{table}_int8", "int8_zero"], [f"{output}_int32"])
    yield make_node("Cast", [f"{output}_int32"], [f"{output}_float"], to=1)
    yield make_node("Mul", [f"{output}_float", f"{rows}_step"], [f"{output}_rows"])
    yield make_node("Mul", [f"{output}_rows", f"{table}_step"], [output])


def _look_up(table: str, ids: str, output: str) -> Iterator[Any]:
    from onnx.helper import make_node

    yield make_node("Gather", [f"{table}_int8", ids], [f"{output}_int8"])
    yield make_node("Gather", [f"{table}_step", ids], [f"{output}_step"])
    yield make_node("Cast", [f"{output}_int8"], [f"{output}_float"], to=1)
    yield make_node("Mul", [f"{output}_float", f"{output}_step"], [output])
