"""Changes of ONNX graphs when a pipeline is created: outputs, lengths of sequences, smaller tables, and int8.

A trained pipeline contains the changed graph, and doesn't need the package onnx.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import check_package, install
from ..types import FloatArray, IntArray
from .published_weights import BLOCK, MIDDLE, Blocks

_RECURRENT = {"GRU", "LSTM", "RNN"}
# Index of the input of recurrent operators that has the sequence lengths.
_LENGTHS = 4


def read_graph(graph: bytes) -> Any:
    """Parse an ONNX file to an `onnx.ModelProto`."""
    check_package("onnx", "To edit the encoder's graph takes", f"Install it by `{install('onnx')}`.")
    import onnx

    return onnx.load_from_string(graph)


def results_of(model: Any) -> list[str]:
    """Return the names of the outputs of all nodes."""
    return [name for node in model.graph.node for name in node.output if name]


def show_outputs(model: Any, names: Sequence[str]) -> None:
    """Make tensors outputs of the graph."""
    present = {output.name for output in model.graph.output}
    for name in names:
        if name not in present:
            model.graph.output.add(name=name)


def add_softmax(model: Any, scores: str, output: str) -> None:
    """Add a softmax over the last axis.

    model (ModelProto): The model, which is modified.
    scores (str): Name of the input of the softmax.
    output (str): Name of its output.
    """
    from onnx.helper import make_node

    model.graph.node.append(make_node("Softmax", [scores], [output], axis=-1))


def use_lengths(model: Any, lengths: str) -> None:
    """Connect recurrent nodes with the sequence lengths, if they aren't connected. Otherwise they would process
    padding as text.

    model (ModelProto): The model, which is modified.
    lengths (str): Name of the graph's input with the lengths.
    """
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
    """Replace a table of weights by some of its rows, in the given order.

    model (ModelProto): The model, which is modified.
    table (str): Table name.
    rows (IntArray): Indices of the rows.
    """
    from onnx import numpy_helper

    [tensor] = (tensor for tensor in model.graph.initializer if tensor.name == table)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[rows], table))


# Only larger embedding tables are converted to int8. Smaller ones, such as position embeddings, stay in float32.
_MIN_ROWS = 1000
# The largest int8 numbers of activations and of weights. Weights have 7 bits only: processors without VNNI instructions
# add two products of a uint8 and an int8 number in 16 bits, which overflow with 2 * 255 * 127, but not with 2 * 255 *
# 63.
_INT8_STEPS, _STEPS_OF_WEIGHTS = 127, 63
_TINY = 1e-9


def to_int8(data: bytes) -> bytes:
    """Convert an ONNX file so that products with matrices of weights are computed in int8.

    A matrix of weights has a scale for each column, and its input a scale for each row, that is, for each token. So the
    features of a text don't depend on other texts in the batch, as they would with `quantize_dynamic` of onnxruntime,
    which has one scale for the batch. Large embedding tables are stored in int8 with a scale for each row. If their
    numbers can be stored in blocks of 4 bits without loss, as those of E5, they are.

    With int8, E5 is 1.4 times as fast as in float32, and the hidden states have a cosine of 0.998 or more with those in
    float32 (research/results/e5.md).

    data (bytes): The ONNX file.
    RETURNS (bytes): The converted ONNX file.
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
    """Return True for an embedding table that is large enough to be converted."""
    return weights.ndim == 2 and len(weights) > _MIN_ROWS and weights.dtype == np.float32 and not node.attribute


def _quantize(name: str, weights: FloatArray, *, axis: int, steps: int) -> dict[str, Any]:
    """Quantize weights with a scale for each column (axis 0) or row (axis 1).

    steps (int): The largest integer.
    RETURNS (dict[str, Any]): The integers and the scales, by their names in the graph.
    """
    step = np.maximum(np.abs(weights).max(axis=axis, keepdims=True), _TINY).astype("f") / np.float32(steps)
    return {f"{name}_int8": np.rint(weights / step).astype(np.int8), f"{name}_step": step}


def blocks_look_up(table: str, blocks: Blocks, ids: str, output: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the tensors and nodes that look up rows of a table in blocks of 4 bits.

    table (str): Table name.
    blocks (Blocks): The table.
    ids (str): Name of the tensor with the indices of the rows.
    output (str): Name of the output.
    """
    from onnx.helper import make_node

    tensors = {
        f"{table}_halves": np.ascontiguousarray(blocks.packed),
        f"{table}_scales": np.ascontiguousarray(blocks.scales)[..., None],
        f"{table}_bits": np.uint8(4),
        f"{table}_middle": np.float32(MIDDLE),
        f"{table}_shape": np.array([0, 0, blocks.scales.shape[1] * BLOCK]),
    }
    # A byte has two weights: shifting it to the right leaves one, shifting it to the left and back the other.
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
    """Yield the nodes that quantize each row of `rows`, with its largest absolute number as the scale."""
    from onnx.helper import make_node

    yield make_node("Abs", [rows], [f"{rows}_sizes"])
    yield make_node("ReduceMax", [f"{rows}_sizes"], [f"{rows}_size"], axes=[-1])
    yield make_node("Max", [f"{rows}_size", "int8_tiny"], [f"{rows}_most"])
    yield make_node("Div", [f"{rows}_most", "int8_steps"], [f"{rows}_step"])
    yield make_node("Div", ["int8_steps", f"{rows}_most"], [f"{rows}_factor"])
    yield make_node("Mul", [rows, f"{rows}_factor"], [f"{rows}_scaled"])
    yield make_node("QuantizeLinear", [f"{rows}_scaled", "int8_one", "int8_zero"], [f"{rows}_int8"])


def _multiply(rows: str, table: str, output: str) -> Iterator[Any]:
    """Yield the nodes that multiply quantized rows with a quantized matrix, and scale the result."""
    from onnx.helper import make_node

    yield make_node("MatMulInteger", [f"{rows}_int8", f"{table}_int8", "int8_zero"], [f"{output}_int32"])
    yield make_node("Cast", [f"{output}_int32"], [f"{output}_float"], to=1)
    yield make_node("Mul", [f"{output}_float", f"{rows}_step"], [f"{output}_rows"])
    yield make_node("Mul", [f"{output}_rows", f"{table}_step"], [output])


def _look_up(table: str, ids: str, output: str) -> Iterator[Any]:
    """Yield the nodes that look up rows of a quantized table."""
    from onnx.helper import make_node

    yield make_node("Gather", [f"{table}_int8", ids], [f"{output}_int8"])
    yield make_node("Gather", [f"{table}_step", ids], [f"{output}_step"])
    yield make_node("Cast", [f"{output}_int8"], [f"{output}_float"], to=1)
    yield make_node("Mul", [f"{output}_float", f"{output}_step"], [output])
