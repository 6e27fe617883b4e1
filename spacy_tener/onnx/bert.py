"""Conversion of a BERT's weights to an ONNX graph with operators of ONNX Runtime, in float32, int8 or 4 bits.

The graph ends with the highest layer that is used. `e5` calls `write_bert`.
"""

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
# ONNX Runtime's own operators, which compute attention, or GELU with its bias, in one step.
_DOMAIN = "com.microsoft"
# With accuracy level 4, MatMulNBits converts its input to int8, with a scale for each block.
_ACCURACY = 4


def write_bert(weights: BertWeights, layers: Sequence[int], precision: BertPrecision) -> bytes:
    """Return an ONNX graph with the input `ids` and an output for each layer, named `layer_6` and so on.

    The graph has no attention mask, so that all texts of a batch must have the same length.

    weights (BertWeights): The weights.
    layers (Sequence[int]): The layers whose hidden states are outputs, counted from 1. 0 is the embedding layer.
    precision (Literal["int4", "int8", "float32"]): Precision of the matrix products. An embedding table that is stored
        in blocks of 4 bits stays in this format.
    RETURNS (bytes): The ONNX file.
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
    """Return the name of a layer's output in the graph."""
    return f"layer_{layer}"


class _Graph:
    """The graph of a BERT, which is built node by node.

    Methods that add nodes take and return names of tensors in the graph.

    weights (BertWeights): The weights.
    in_blocks (bool): Whether to multiply with matrices in blocks of 4 bits.
    """

    def __init__(self, weights: BertWeights, in_blocks: bool) -> None:
        self.weights, self.in_blocks = weights, in_blocks
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}

    def to_bytes(self, outputs: dict[str, str]) -> bytes:
        """Return the ONNX file.

        outputs (dict[str, str]): The tensor of each output, by the output's name.
        """
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
        """Add the embedding layer: the normalized sum of word piece, position and token type embeddings. All tokens
        have type 0.
        """
        positions = self.weights.tensors["emb.pos"] + self.weights.tensors["emb.type"][:1]  # type: ignore[operator,index]
        length = self._add_node("Shape", [IDS], start=1, end=2)
        ends = [self._add_tensor("first", np.zeros(1, "i8")), length]
        rows = self._add_node("Slice", [self._add_tensor("positions", positions.astype("f")), *ends])
        return self._normalize(self._look_up("emb.word"), rows, "emb.ln")

    def add_layer(self, layer: int, rows: str) -> str:
        """Add a transformer layer over the hidden states `rows`."""
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
        """Add a node with one output."""
        from onnx.helper import make_node

        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(make_node(operator, inputs, [output], **attributes))
        return output

    def _add_tensor(self, name: str, array: Any) -> str:
        """Add a constant, and return its name."""
        self.tensors[name] = array
        return name

    def _add_vector(self, name: str) -> str:
        """Add a vector of the weights."""
        return self._add_tensor(name, self.weights.vector(name))

    def _normalize(self, rows: str, more: str, norm: str, bias: str = "") -> str:
        """Add the layer normalization of the sum of two tensors and an optional bias."""
        inputs = [
            rows,
            more,
            *(self._add_vector(f"{norm}.{part}") for part in "wb"),
            *([self._add_vector(bias)] if bias else []),
        ]
        return self._add_node("SkipLayerNormalization", inputs, domain=_DOMAIN, epsilon=self.weights.epsilon)

    def _multiply(self, rows: str, name: str) -> str:
        """Add a product with a matrix of the weights, which are stored as (outputs, inputs)."""
        matrix = self.weights.tensors[name]
        if not self.in_blocks:
            return self._add_node("MatMul", [rows, self._add_tensor(name, np.ascontiguousarray(_floats(matrix).T))])
        blocks = matrix if isinstance(matrix, Blocks) else Blocks.of(matrix)
        # MatMulNBits expects neighbouring weights in a byte. In `Blocks`, a byte has the weights j and j + 16.
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
        """Add a lookup in an embedding table."""
        table = self.weights.tensors[name]
        if not isinstance(table, Blocks) and not self.in_blocks:
            return self._add_node("Gather", [self._add_tensor(name, table), IDS])
        blocks = table if isinstance(table, Blocks) else Blocks.of(table)
        tensors, nodes = blocks_look_up(name, blocks, IDS, f"{name}.rows")
        self.tensors |= tensors
        self.nodes += nodes
        return f"{name}.rows"


def _floats(matrix: Matrix) -> Any:
    """Return a matrix in float32."""
    return matrix.rows() if isinstance(matrix, Blocks) else matrix
