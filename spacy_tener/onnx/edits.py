"""Functions that edit ONNX graphs and quantize their weights.

Graphs are edited when a pipeline is created. This requires the package onnx. A trained pipeline contains the edited
graphs, so it doesn't require the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import check_package, install
from ..types import FloatArray, IntArray
from .published_weights import BLOCK, MIDDLE, Blocks

_RECURRENT = {"GRU", "LSTM", "RNN"}
# Index of the input `sequence_lens` of ONNX's recurrent operators.
_LENGTHS = 4


def read_graph(graph: bytes) -> Any:
    """Parse an ONNX file. Return an `onnx.ModelProto`."""
    check_package("onnx", "Editing the encoder's graph requires", f"Install it with `{install('onnx')}`.")
    import onnx

    return onnx.load_from_string(graph)


def results_of(model: Any) -> list[str]:
    """Return the names of all tensors that the graph's nodes compute."""
    return [name for node in model.graph.node for name in node.output if name]


def show_outputs(model: Any, names: Sequence[str]) -> None:
    """Add tensors to a graph's outputs.

    model (ModelProto): The model, which is modified in place.
    names (Sequence[str]): The tensor names.
    """
    present = {output.name for output in model.graph.output}
    for name in names:
        if name not in present:
            model.graph.output.add(name=name)


def add_softmax(model: Any, scores: str, output: str) -> None:
    """Add a softmax over a tensor's last axis.

    model (ModelProto): The model, which is modified in place.
    scores (str): The input tensor's name.
    output (str): The new tensor's name.
    """
    from onnx.helper import make_node

    model.graph.node.append(make_node("Softmax", [scores], [output], axis=-1))


def use_lengths(model: Any, lengths: str) -> None:
    """Connect a graph's recurrent layers with an input that contains the sequence lengths.

    Without sequence lengths, a recurrent layer processes padding as if it were text. Layers that already have lengths
    are not changed.

    model (ModelProto): The model, which is modified in place.
    lengths (str): Name of the graph input with the sequence lengths.
    """
    from onnx import TensorProto
    from onnx.helper import make_node

    nodes = model.graph.node
    # In ONNX, an empty name means that an optional input is missing.
    lacking = [node for node in nodes if node.op_type in _RECURRENT and not "".join(node.input[_LENGTHS:][:1])]
    for node in lacking:
        names = [*node.input, *[""] * (_LENGTHS + 1 - len(node.input))]
        names[_LENGTHS] = f"{lengths}_int32"
        node.input[:] = names
    if lacking:
        nodes.insert(0, make_node("Cast", [lengths], [f"{lengths}_int32"], to=TensorProto.INT32))


def select_rows(model: Any, table: str, rows: IntArray) -> None:
    """Replace an embedding table by a selection of its rows.

    model (ModelProto): The model, which is modified in place.
    table (str): The embedding table's name.
    rows (IntArray): Indices of the selected rows, in their new order.
    """
    from onnx import numpy_helper

    [tensor] = (tensor for tensor in model.graph.initializer if tensor.name == table)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[rows], table))


# Embedding tables are quantized if they have more rows than this. Smaller tables, such as position embeddings, stay in
# float32.
_MIN_ROWS = 1000
# Maximum absolute values of quantized activations and weights. Weights use only 7 bits: CPUs without VNNI instructions
# add two products of a uint8 and an int8 value in 16 bits. With 8 bits, the sum could overflow: 2 * 255 * 127 > 32767,
# but 2 * 255 * 63 = 32130.
_INT8_STEPS, _STEPS_OF_WEIGHTS = 127, 63
_TINY = 1e-9


def to_int8(data: bytes) -> bytes:
    """Quantize the weight matrices and embedding tables in an ONNX file to int8.

    Weight matrices have one scale per column. Their inputs are quantized dynamically, with one scale per row. Since
    each row is a token, a text's features don't depend on the other texts in the batch. In contrast, onnxruntime's
    `quantize_dynamic` uses one scale for the whole batch.

    Embedding tables have one scale per row. A table whose weights already have 4-bit precision, such as E5's, is stored
    in 4-bit `Blocks` without loss.

    For E5, int8 is 1.4 times as fast as float32. The cosine similarity between the hidden states in int8 and those in
    float32 is at least 0.998 (research/results/e5.md).

    data (bytes): The ONNX file.
    RETURNS (bytes): The quantized ONNX file.
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
        # Zero point of the quantized activations, which are stored as uint8.
        "int8_zero": np.uint8(128),
    }
    scaled: set[str] = set()
    nodes: list[Any] = []
    for node in graph.node:
        table = next((name for name in node.input if name in weights), "")
        if node.op_type == "MatMul" and node.input[1] == table and weights[table].ndim == 2:
            new_weights |= _quantize(table, weights[table], axis=0, steps=_STEPS_OF_WEIGHTS)
            # Several products can have the same input, such as those for queries, keys and values. Quantize this input
            # once.
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
    """Return True if the weights are an embedding table that is large enough to be quantized."""
    # A Gather node selects rows if it has no attributes. Other Gather nodes are not quantized.
    return weights.ndim == 2 and len(weights) > _MIN_ROWS and weights.dtype == np.float32 and not node.attribute


def _quantize(name: str, weights: FloatArray, *, axis: int, steps: int) -> dict[str, Any]:
    """Quantize weights symmetrically to int8, with one scale per column (axis 0) or row (axis 1).

    name (str): The weights' name.
    weights (FloatArray): The weights.
    axis (int): Axis over which the maximum is computed.
    steps (int): Maximum absolute value of the quantized weights.
    RETURNS (dict[str, Any]): The quantized weights and the scales, by their tensor names.
    """
    step = np.maximum(np.abs(weights).max(axis=axis, keepdims=True), _TINY).astype("f") / np.float32(steps)
    return {f"{name}_int8": np.rint(weights / step).astype(np.int8), f"{name}_step": step}


def blocks_look_up(table: str, blocks: Blocks, ids: str, output: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the constants and nodes for a lookup in an embedding table with 4 bits per weight.

    table (str): The embedding table's name.
    blocks (Blocks): The embedding table.
    ids (str): Name of the tensor with the row indices.
    output (str): Name of the embedding tensor.
    RETURNS (tuple[dict[str, Any], list[Any]]): The constants by name, and the nodes.
    """
    from onnx.helper import make_node

    tensors = {
        f"{table}_halves": np.ascontiguousarray(blocks.packed),
        f"{table}_scales": np.ascontiguousarray(blocks.scales)[..., None],
        f"{table}_bits": np.uint8(4),
        f"{table}_middle": np.float32(MIDDLE),
        f"{table}_shape": np.array([0, 0, blocks.scales.shape[1] * BLOCK]),
    }
    # Each byte contains two weights. A right shift extracts the upper 4 bits. A left shift and a right shift extract
    # the lower 4 bits.
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
    """Yield the nodes that dynamically quantize a tensor. The absolute maximum in each row determines the row's scale.

    rows (str): The tensor name.
    """
    from onnx.helper import make_node

    yield make_node("Abs", [rows], [f"{rows}_sizes"])
    yield make_node("ReduceMax", [f"{rows}_sizes"], [f"{rows}_size"], axes=[-1])
    # `int8_tiny` prevents a division by zero if all values in a row are zero.
    yield make_node("Max", [f"{rows}_size", "int8_tiny"], [f"{rows}_most"])
    yield make_node("Div", [f"{rows}_most", "int8_steps"], [f"{rows}_step"])
    yield make_node("Div", ["int8_steps", f"{rows}_most"], [f"{rows}_factor"])
    yield make_node("Mul", [rows, f"{rows}_factor"], [f"{rows}_scaled"])
    yield make_node("QuantizeLinear", [f"{rows}_scaled", "int8_one", "int8_zero"], [f"{rows}_int8"])


def _multiply(rows: str, table: str, output: str) -> Iterator[Any]:
    """Yield the nodes that multiply quantized rows by a quantized matrix, and dequantize the result."""
    from onnx.helper import make_node

    yield make_node("MatMulInteger", [f"{rows}_int8", f"{table}_int8", "int8_zero"], [f"{output}_int32"])
    yield make_node("Cast", [f"{output}_int32"], [f"{output}_float"], to=1)
    yield make_node("Mul", [f"{output}_float", f"{rows}_step"], [f"{output}_rows"])
    yield make_node("Mul", [f"{output}_rows", f"{table}_step"], [output])


def _look_up(table: str, ids: str, output: str) -> Iterator[Any]:
    """Yield the nodes that look up embeddings in a quantized table, and dequantize them."""
    from onnx.helper import make_node

    yield make_node("Gather", [f"{table}_int8", ids], [f"{output}_int8"])
    yield make_node("Gather", [f"{table}_step", ids], [f"{output}_step"])
    yield make_node("Cast", [f"{output}_int8"], [f"{output}_float"], to=1)
    yield make_node("Mul", [f"{output}_float", f"{output}_step"], [output])
