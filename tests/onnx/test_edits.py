"""Edits of ONNX graphs, and the rejection of damaged graphs and of graphs that refer to other files."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from small_encoders import FLOAT, WIDTH, constant, mean_encoder, recurrent_encoder, save, weights
from small_encoders import model as small_model

from spacy_tener.errors import MissingPackageError, UserError
from spacy_tener.onnx import edits
from spacy_tener.onnx.encoder import Characters, check_graph, open_session
from spacy_tener.onnx.sources import make_encoder, onnx_encoder


def with_external_weights(place: str) -> bytes:
    """Return a graph whose weights, possibly in a subgraph, are stored in another file."""
    plain, model = mean_encoder(), mean_encoder()
    [table] = (tensor for tensor in model.graph.initializer if tensor.name == "table")
    onnx.external_data_helper.set_external_data(table, location="/etc/passwd")
    table.data_location = onnx.TensorProto.EXTERNAL
    table.ClearField("raw_data")
    if place == "constant":
        plain.graph.node.append(helper.make_node("Constant", [], ["same"], value=table))
    elif place == "branch":
        branch = helper.make_graph([helper.make_node("Identity", ["table"], ["same"])], "branch", [], [], [table])
        plain.graph.node.append(helper.make_node("If", ["yes"], ["same"], then_branch=branch, else_branch=branch))
    elif place == "second graph":  # protobuf merges two messages in a file
        return plain.SerializeToString() + onnx.ModelProto(graph=model.graph).SerializeToString()
    elif place == "initializer":
        plain = model
    return plain.SerializeToString()


def with_node(operator: str) -> bytes:
    model = mean_encoder()
    model.graph.node.append(helper.make_node(operator, ["states"], ["more"], domain="com.microsoft"))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        *((with_external_weights(place), "in another file")
          for place in ("initializer", "constant", "branch", "second graph")),
        (with_external_weights("initializer").replace(b"\x08location", b"\x88\x80\x00location"), "in another file"),
        (with_node("EPContext"), "reads another file"),
        (b"\x18\0\0\0ORTM" + bytes(100), "ORT format of ONNX Runtime"),
    ],
)  # fmt: skip
def test_graph_with_external_files_raises_error(graph: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "encoder.onnx").write_bytes(graph)
    (tmp_path / "vocab.txt").write_text("[UNK]", encoding="utf8")
    with pytest.raises(UserError, match=rf"encoder\.onnx.*{reason}"):
        onnx_encoder(tmp_path / "encoder.onnx")()


def test_graph_names_may_contain_location() -> None:
    check_graph(mean_encoder().SerializeToString().replace(b"input_ids", b"location."), "encoder.onnx")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        "模型".encode() * 50,
        bytes(1000),
        b"PK\x03\x04" + bytes(range(256)),
        mean_encoder().SerializeToString()[:-100],
        onnx.ModelProto(ir_version=8).SerializeToString(),
        mean_encoder().SerializeToString().replace(b"token_type_ids", b"\xff" * 14),
    ],
)
def test_damaged_file_raises_error(data: bytes) -> None:
    with pytest.raises(UserError, match=r"encoder\.onnx cannot be loaded by onnxruntime"):
        open_session(data, "encoder.onnx")


def test_flipped_bit_raises_no_unexpected_error() -> None:
    data, rng = recurrent_encoder().SerializeToString(), np.random.default_rng(0)
    no_ids = np.zeros(0, dtype=np.int64)
    for position in rng.integers(0, len(data), 200).tolist():
        damaged = data[:position] + bytes([data[position] ^ 1 << int(rng.integers(8))]) + data[position + 1 :]
        with contextlib.suppress(UserError):
            make_encoder(damaged, Characters(no_ids, no_ids, 30), outputs=["rows"], source="encoder.onnx")


def test_edited_graph_is_valid() -> None:
    model = edits.read_graph(recurrent_encoder(9).SerializeToString())
    edits.select_rows(model, "table", np.array([2, 0]))
    edits.use_lengths(model, "length")
    edits.add_softmax(model, "states", "shares")
    edits.show_outputs(model, ["states", "shares"])
    model.graph.output[1].CopyFrom(helper.make_tensor_value_info("shares", FLOAT, ["batch", "length", WIDTH]))
    onnx.checker.check_model(model, full_check=True)
    nodes = {node.op_type: node for node in model.graph.node}
    assert list(nodes["GRU"].input) == ["steps", "W", "R", "", "length_int32"]
    table = onnx.numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_array_equal(table, onnx.numpy_helper.to_array(weights("table", 9, WIDTH))[[2, 0]])


def test_recurrent_nodes_keep_existing_lengths() -> None:
    nodes = [
        helper.make_node("Cast", ["length"], ["steps"], to=onnx.TensorProto.INT32),
        helper.make_node("GRU", ["rows", "W", "R", "", "steps", "before"], ["states"], hidden_size=3),
    ]
    model = small_model(nodes, [weights("W", 1, 9, 2), weights("R", 1, 9, 3), constant("unused", 1)], {"length": 1})
    expected = model.SerializeToString()
    edits.use_lengths(model, "length")
    assert model.SerializeToString() == expected


def test_onnx_package_is_required_for_edits_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, mean_encoder())
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert onnx_encoder(path)().width == WIDTH
    with pytest.raises(
        MissingPackageError, match=r"the package onnx, which is not installed. Install it with `pip install"
    ):
        onnx_encoder(path, outputs=["rows"])()
