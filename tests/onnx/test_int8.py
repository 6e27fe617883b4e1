"""Files in int8: what they compute, how small they are, and that a batch changes nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from small_encoders import VOCABULARY, WIDTH, mean_encoder

from spacy_tener.onnx import edits
from spacy_tener.onnx.encoder import Characters, Encoder
from spacy_tener.onnx.sources import make_encoder

LENGTHS = np.array([7, 1, 30, 2, 30, 12])


def encoder(graph: bytes) -> Encoder:
    no_ids = np.zeros(0, dtype=np.int64)
    return make_encoder(graph, Characters(no_ids, no_ids, len(VOCABULARY) - 1), source="int8.onnx")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """An encoder in float32, with rows of very different sizes, and in int8."""
    monkeypatch.setattr(edits, "_MIN_ROWS", 10)
    model = mean_encoder()
    [table] = (tensor for tensor in model.graph.initializer if tensor.name == "table")
    rows = onnx.numpy_helper.to_array(table) * np.logspace(-2, 2, len(VOCABULARY))[:, None].astype("f")
    rows[3] = 0
    table.CopyFrom(onnx.numpy_helper.from_array(rows, "table"))
    data = model.SerializeToString()
    return data, edits.to_int8(data)


def test_numbers_are_near_and_equal_alone_and_in_any_batch(graphs: tuple[bytes, bytes]) -> None:
    exact, near = map(encoder, graphs)
    ids = np.random.default_rng(0).integers(0, len(VOCABULARY), LENGTHS.sum())
    ids[7] = 3
    expected, found = exact.rows(ids, LENGTHS), near.rows(ids, LENGTHS)
    # By the largest number of its row, however small it is beside others.
    assert (np.abs(found - expected) <= 0.03 * np.abs(expected).max(axis=1, keepdims=True) + 1e-6).all()
    assert np.abs(found - expected).max() > 1e-5
    ends = np.cumsum(LENGTHS)
    for end, length in zip(ends, LENGTHS, strict=True):
        alone = near.rows(ids[end - length : end], np.array([length]))
        np.testing.assert_allclose(alone, found[end - length : end], atol=1e-5)
    assert near.batching == "padded"


def test_no_weights_are_left_in_float32_and_no_product_overflows_16_bits(graphs: tuple[bytes, bytes]) -> None:
    tensors = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(graphs[1]).graph.initializer
    }
    assert not {"table", "matrix"} & set(tensors)
    assert tensors["table_int8"].dtype == tensors["matrix_int8"].dtype == np.int8
    assert 2 * 255 * np.abs(tensors["matrix_int8"].astype(int)).max() < 2**15
    assert tensors["matrix_step"].shape == (1, WIDTH)
