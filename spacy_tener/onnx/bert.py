"""The graph of a BERT, written from its weights: the layers that are read, in float32, int8 or 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..errors import check_package, install
from .edits import blocks_look_up, to_int8
from .encoder import IDS
from .published_weights import BLOCK, BertWeights, Blocks, Matrix

BertPrecision = Literal["int4", "int8", "float32"]
_OPSET = 17
_DOMAIN = "com.microsoft"
_ACCURACY = 4
"""What MatMulNBits multiplies by: rows in int8, with a scale for each block."""


def write_bert(weights: BertWeights, layers: Sequence[int], precision: BertPrecision) -> bytes:
    """Return an ONNX file with an input `ids` and the outputs `layer_6` and so on. It reads no padding.

    layers (Sequence[int]): The layers whose rows are the outputs, from 1 on; 0 for the rows before the first one.
    precision (Literal["int4", "int8", "float32"]): Of products with matrices. Blocks of 4 bits are kept as they are by
        "int4", and their rows of pieces by all.
    """
    check_package("onnx", "To write the encoder's graph takes", f"Install it by `{install('onnx')}`.")
    graph = _Graph(weights, precision == "int4")
    rows = graph.embed()
    outputs = {0: rows}
    for layer in range(max(layers)):
        outputs[layer + 1] = rows = graph.add_layer(layer, rows)
    data = graph.to_bytes({layer_name(layer): outputs[layer] for layer in layers})
    return to_int8(data) if precision == "int8" else data


def layer_name(layer: int) -> str:
    return f"layer_{layer}"


class _Graph:
    """Nodes and tensors of a graph that is being written."""

    def __init__(self, weights: BertWeights, in_blocks: bool) -> None:
        self.weights, self.in_blocks = weights, in_blocks
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}

    def to_bytes(self, outputs: dict[str, str]) -> bytes:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        for name, rows in outputs.items():
            self.nodes.append(helper.make_node("Identity", [rows], [name]))
        shape = ["windows", "pieces"]
        output_infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [*shape, self.weights.width]) for name in outputs
        ]
        graph = helper.make_graph(
            self.nodes,
            "bert",
            [helper.make_tensor_value_info(IDS, TensorProto.INT64, shape)],
            output_infos,
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.tensors.items()],
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_DOMAIN, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data

    def embed(self) -> str:
        """Add the rows of pieces, positions and the only type, and return their normalized sum."""
        positions = self.weights.tensors["emb.pos"] + self.weights.tensors["emb.type"][:1]  # type: ignore[operator,index]
        length = self._add_node("Shape", [IDS], start=1, end=2)
        ends = [self._add_tensor("first", np.zeros(1, "i8")), length]
        rows = self._add_node("Slice", [self._add_tensor("positions", positions.astype("f")), *ends])
        return self._normalize(self._look_up("emb.word"), rows, "emb.ln")

    def add_layer(self, layer: int, rows: str) -> str:
        """Add a layer, and return its rows."""
        name = f"l{layer}"
        query, key, value = (self._multiply(rows, f"{name}.{part}.w") for part in "qkv")
        bias = np.concatenate([self.weights.vector(f"{name}.{part}.b") for part in "qkv"])
        heads = self._add_node(
            "MultiHeadAttention",
            [query, key, value, self._add_tensor(f"{name}.qkv.b", bias)],
            domain=_DOMAIN,
            num_heads=self.weights.heads,
        )
        attended = self._multiply(heads, f"{name}.ao.w")
        rows = self._normalize(rows, attended, f"{name}.aln", f"{name}.ao.b")
        inner = self._add_node(
            "BiasGelu", [self._multiply(rows, f"{name}.fi.w"), self._add_vector(f"{name}.fi.b")], domain=_DOMAIN
        )
        return self._normalize(rows, self._multiply(inner, f"{name}.fo.w"), f"{name}.oln", f"{name}.fo.b")

    def _add_node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        from onnx.helper import make_node

        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(make_node(operator, inputs, [output], **attributes))
        return output

    def _add_tensor(self, name: str, array: Any) -> str:
        self.tensors[name] = array
        return name

    def _add_vector(self, name: str) -> str:
        return self._add_tensor(name, self.weights.vector(name))

    def _normalize(self, rows: str, more: str, norm: str, bias: str = "") -> str:
        inputs = [
            rows,
            more,
            *(self._add_vector(f"{norm}.{part}") for part in "wb"),
            *([self._add_vector(bias)] if bias else []),
        ]
        return self._add_node("SkipLayerNormalization", inputs, domain=_DOMAIN, epsilon=self.weights.epsilon)

    def _multiply(self, rows: str, name: str) -> str:
        matrix = self.weights.tensors[name]
        if not self.in_blocks:
            return self._add_node("MatMul", [rows, self._add_tensor(name, np.ascontiguousarray(_floats(matrix).T))])
        blocks = matrix if isinstance(matrix, Blocks) else Blocks.of(matrix)
        # Each byte has two weights that follow each other.
        steps = np.concatenate([blocks.packed & 15, blocks.packed >> 4], axis=2)
        self._add_tensor(f"{name}.blocks", steps[..., ::2] | steps[..., 1::2] << 4)
        self._add_tensor(f"{name}.scales", blocks.scales.astype("f").reshape(-1))
        n_outputs, n_blocks = blocks.scales.shape
        return self._add_node(
            "MatMulNBits",
            [rows, f"{name}.blocks", f"{name}.scales"],
            domain=_DOMAIN,
            K=n_blocks * BLOCK,
            N=n_outputs,
            bits=4,
            block_size=BLOCK,
            accuracy_level=_ACCURACY,
        )

    def _look_up(self, name: str) -> str:
        """Add the rows of pieces. A table in blocks stays in them."""
        table = self.weights.tensors[name]
        if not isinstance(table, Blocks) and not self.in_blocks:
            return self._add_node("Gather", [self._add_tensor(name, table), IDS])
        blocks = table if isinstance(table, Blocks) else Blocks.of(table)
        tensors, nodes = blocks_look_up(name, blocks, IDS, f"{name}.rows")
        self.tensors |= tensors
        self.nodes += nodes
        return f"{name}.rows"


def _floats(matrix: Matrix) -> Any:
    return matrix.rows() if isinstance(matrix, Blocks) else matrix
