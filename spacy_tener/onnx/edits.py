"""Edits of ONNX graphs, when a pipeline is made. A saved pipeline holds the edited graph and does not need `onnx`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import check_package, install
from ..types import IntArray

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


def take_rows(model: Any, table: str, rows: IntArray) -> None:
    """Keep only some rows of a table of weights, in the given order."""
    from onnx import numpy_helper

    [tensor] = (tensor for tensor in model.graph.initializer if tensor.name == table)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[rows], table))
