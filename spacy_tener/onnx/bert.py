"""Conversion of a BERT model to an ONNX graph in float32, int8 or int4.

The graph contains contrib operators of ONNX Runtime. `e5` calls `write_bert`.
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
# Domain of ONNX Runtime's contrib operators. For example, `BiasGelu` adds a bias and applies GELU.
_DOMAIN = "com.microsoft"
# Value for the attribute `accuracy_level` with which MatMulNBits quantizes its input to int8.
_ACCURACY = 4


def write_bert(weights: BertWeights, layers: Sequence[int], precision: BertPrecision) -> bytes:
    """Return an ONNX graph that computes the hidden states of selected BERT layers.

    The graph's input is `ids`, the subword token ids. The graph has an output for each selected layer, with the name
    that `layer_name` returns. Layers above the highest selected layer are left out. The graph has no attention mask, so
    all texts in a batch must have the same length.

    weights (BertWeights): The model's weights.
    layers (Sequence[int]): The selected layers. 0 is the embedding layer, 1 is the first transformer layer.
    precision (Literal["int4", "int8", "float32"]): Precision of the matrix products. An embedding table that is stored
        in 4 bits is not converted.
    RETURNS (bytes): The ONNX file.
    """
    check_package("onnx", "Writing the encoder's graph requires", f"Install it with `{install('onnx')}`.")
    graph = _Graph(weights, precision == "int4")
    rows = graph.embed()
    outputs = {0: rows}
    for layer in range(max(layers)):
        outputs[layer + 1] = rows = graph.add_layer(layer, rows)
    data = graph.to_bytes({layer_name(layer): outputs[layer] for layer in layers})
    return to_int8(data) if precision == "int8" else data


def layer_name(layer: int) -> str:
    """Return the name of the graph output with a layer's hidden states, such as `layer_6`."""
    return f"layer_{layer}"


class _Graph:
    """A builder for a BERT model's ONNX graph.

    Its methods append nodes to the graph. Their arguments and return values are tensor names.

    weights (BertWeights): The model's weights.
    in_blocks (bool): Whether to quantize weight matrices to `Blocks`, which have 4 bits per weight.
    """

    def __init__(self, weights: BertWeights, in_blocks: bool) -> None:
        self.weights, self.in_blocks = weights, in_blocks
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}

    def to_bytes(self, outputs: dict[str, str]) -> bytes:
        """Serialize the graph as an ONNX file.

        outputs (dict[str, str]): The graph outputs by name, each with the tensor that it returns.
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
        """Add the embedding layer: the sum of word, position and token type embeddings, with layer normalization.

        RETURNS (str): Name of the embedding tensor.
        """
        # All tokens have the token type 0. Its embedding is added to the position embeddings in advance.
        positions = self.weights.tensors["emb.pos"] + self.weights.tensors["emb.type"][:1]  # type: ignore[operator,index]
        length = self._add_node("Shape", [IDS], start=1, end=2)
        ends = [self._add_tensor("first", np.zeros(1, "i8")), length]
        rows = self._add_node("Slice", [self._add_tensor("positions", positions.astype("f")), *ends])
        return self._normalize(self._look_up("emb.word"), rows, "emb.ln")

    def add_layer(self, layer: int, rows: str) -> str:
        """Add a transformer layer with post-layer normalization.

        layer (int): Index of the transformer layer, starting at 0.
        rows (str): Name of the tensor with the layer's input.
        RETURNS (str): Name of the tensor with the layer's output.
        """
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
        """Add a node with a single output. Return the output's name."""
        from onnx.helper import make_node

        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(make_node(operator, inputs, [output], **attributes))
        return output

    def _add_tensor(self, name: str, array: Any) -> str:
        """Add a constant tensor to the graph. Return its name."""
        self.tensors[name] = array
        return name

    def _add_vector(self, name: str) -> str:
        """Add a vector of the model's weights to the graph, such as a bias. Return its name."""
        return self._add_tensor(name, self.weights.vector(name))

    def _normalize(self, rows: str, more: str, norm: str, bias: str = "") -> str:
        """Add a residual connection followed by layer normalization.

        rows, more (str): Names of the two tensors that are added.
        norm (str): Name prefix of the layer normalization's weights.
        bias (str): Name of a bias that is added to the sum. Empty for no bias.
        RETURNS (str): Name of the normalized tensor.
        """
        inputs = [
            rows,
            more,
            *(self._add_vector(f"{norm}.{part}") for part in "wb"),
            *([self._add_vector(bias)] if bias else []),
        ]
        return self._add_node("SkipLayerNormalization", inputs, domain=_DOMAIN, epsilon=self.weights.epsilon)

    def _multiply(self, rows: str, name: str) -> str:
        """Add a product with one weight matrix from the model.

        rows (str): Name of the tensor that is multiplied with the matrix.
        name (str): The matrix name. The matrix's shape is (outputs, inputs).
        RETURNS (str): Name of the product.
        """
        matrix = self.weights.tensors[name]
        if not self.in_blocks:
            return self._add_node("MatMul", [rows, self._add_tensor(name, np.ascontiguousarray(_floats(matrix).T))])
        blocks = matrix if isinstance(matrix, Blocks) else Blocks.of(matrix)
        # `Blocks` and MatMulNBits store two 4-bit weights in a byte. In `Blocks`, these are the weights j and j + 16 in
        # a block. MatMulNBits expects adjacent weights.
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
        """Add an embedding lookup for the graph's input ids.

        name (str): The embedding table's name.
        RETURNS (str): Name of the embedding tensor.
        """
        table = self.weights.tensors[name]
        if not isinstance(table, Blocks) and not self.in_blocks:
            return self._add_node("Gather", [self._add_tensor(name, table), IDS])
        blocks = table if isinstance(table, Blocks) else Blocks.of(table)
        tensors, nodes = blocks_look_up(name, blocks, IDS, f"{name}.rows")
        self.tensors |= tensors
        self.nodes += nodes
        return f"{name}.rows"


def _floats(matrix: Matrix) -> Any:
    """Return a weight matrix in float32. A matrix in `Blocks` is dequantized."""
    return matrix.rows() if isinstance(matrix, Blocks) else matrix
