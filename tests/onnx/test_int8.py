"""Quantization of ONNX graphs to int8: accuracy, size, and equal features in any batch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnxruntime import InferenceSession
from small_encoders import VOCABULARY, WIDTH, mean_encoder

from spacy_tener.onnx import edits
from spacy_tener.onnx.encoder import Characters, Encoder
from spacy_tener.onnx.published_weights import Blocks
from spacy_tener.onnx.sources import make_encoder

LENGTHS = np.array([7, 1, 30, 2, 30, 12])


def encoder(graph: bytes) -> Encoder:
    no_ids = np.zeros(0, dtype=np.int64)
    return make_encoder(graph, Characters(no_ids, no_ids, len(VOCABULARY) - 1), source="int8.onnx")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """An encoder in float32, whose embeddings have very different norms, and in int8."""
    monkeypatch.setattr(edits, "_MIN_ROWS", 10)
    model = mean_encoder()
    [table] = (tensor for tensor in model.graph.initializer if tensor.name == "table")
    rows = onnx.numpy_helper.to_array(table) * np.logspace(-2, 2, len(VOCABULARY))[:, None].astype("f")
    rows[3] = 0
    table.CopyFrom(onnx.numpy_helper.from_array(rows, "table"))
    data = model.SerializeToString()
    return data, edits.to_int8(data)


def test_quantized_features_are_close_to_float32(graphs: tuple[bytes, bytes]) -> None:
    exact, near = map(encoder, graphs)
    ids = np.random.default_rng(0).integers(0, len(VOCABULARY), LENGTHS.sum())
    ids[7] = 3
    expected, found = exact.rows(ids, LENGTHS), near.rows(ids, LENGTHS)
    # The tolerance is relative to the maximum of the row, even if it is small compared with other rows.
    assert (np.abs(found - expected) <= 0.03 * np.abs(expected).max(axis=1, keepdims=True) + 1e-6).all()
    assert np.abs(found - expected).max() > 1e-5
    ends = np.cumsum(LENGTHS)
    for end, length in zip(ends, LENGTHS, strict=True):
        alone = near.rows(ids[end - length : end], np.array([length]))
        np.testing.assert_allclose(alone, found[end - length : end], atol=1e-5)
    assert near.batching == "padded"


def test_quantized_weights_are_int8_and_cannot_overflow_int16(graphs: tuple[bytes, bytes]) -> None:
    tensors = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(graphs[1]).graph.initializer
    }
    assert not {"table", "matrix"} & set(tensors)
    assert tensors["table_int8"].dtype == tensors["matrix_int8"].dtype == np.int8
    assert 2 * 255 * np.abs(tensors["matrix_int8"].astype(int)).max() < 2**15
    assert tensors["matrix_step"].shape == (1, WIDTH)


def test_4_bit_block_embeddings_are_preserved_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "_MIN_ROWS", 1)
    rows = Blocks.of(np.random.default_rng(0).normal(size=(9, 64)).astype("f")).rows()
    look_up = make_node("Gather", ["table", "ids"], ["rows"])
    ids = make_tensor_value_info("ids", TensorProto.INT64, ["texts", "pieces"])
    out = make_tensor_value_info("rows", TensorProto.FLOAT, ["texts", "pieces", 64])
    graph = make_graph([look_up], "table", [ids], [out], [onnx.numpy_helper.from_array(rows, "table")])
    data = edits.to_int8(make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=9).SerializeToString())
    inputs = {"ids": np.array([[8, 0, 3]])}
    [found] = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, inputs)
    np.testing.assert_array_equal(found, rows[inputs["ids"]])
    size = sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in onnx.load_from_string(data).graph.initializer)
    assert size < rows.nbytes / 4
