"""ONNX files: what is read of them, the edits, and files that are refused."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
from onnx import helper
from small_encoders import FLOAT, WIDTH, constant, mean_encoder, model, recurrent_encoder, weights

from spacy_tener.errors import RemedyError
from spacy_tener.onnx.graph import Graph


def external(place="initializer"):
    """A model with weights in another file: of the graph, or of a graph inside of a node."""
    made = mean_encoder()
    [table] = (tensor for tensor in made.graph.initializer if tensor.name == "table")
    onnx.external_data_helper.set_external_data(table, location="/etc/passwd")
    table.data_location = onnx.TensorProto.EXTERNAL
    table.ClearField("raw_data")
    if place == "initializer":
        return made
    inner = helper.make_graph([helper.make_node("Identity", ["table"], ["same"])], "inner", [], [], [table])
    constant_node = helper.make_node("Constant", [], ["same"], value=table)
    plain = mean_encoder()
    if place == "constant":
        plain.graph.node.append(constant_node)
    elif place == "branch":
        plain.graph.node.append(helper.make_node("If", ["yes"], ["same"], then_branch=inner, else_branch=inner))
    elif place == "function":
        plain.functions.append(
            helper.make_function("", "own", [], ["same"], [constant_node], [helper.make_opsetid("", 17)])
        )
    elif place == "default":
        given = helper.make_attribute("table", table)
        made = helper.make_function("own", "own", [], ["same"], [], [helper.make_opsetid("", 17)], [], [given])
        plain.functions.append(made)
    elif place == "sparse":
        values = onnx.SparseTensorProto(dims=[3])
        values.values.CopyFrom(table)
        plain.graph.sparse_initializer.append(values)
    elif place == "training":
        plain.training_info.append(onnx.TrainingInfoProto(algorithm=inner))
    return plain


def of_domain(domain, op="Own"):
    made = mean_encoder()
    made.graph.node.append(helper.make_node(op, ["states"], ["more"], domain=domain))
    made.opset_import.append(helper.make_opsetid(domain, 1))
    return made


def split_in_two():
    """Two graphs in one file, which protobuf joins: the second has the weights of another file."""
    return mean_encoder().SerializeToString() + onnx.ModelProto(graph=external().graph).SerializeToString()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        *((external(place).SerializeToString(), "'table' are in another file")
          for place in ("initializer", "constant", "branch", "function", "default", "sparse", "training")),
        (split_in_two(), "in another file"),
        (of_domain("my.library").SerializeToString(), "'my.library'"),
        (of_domain("com.microsoft", "EPContext").SerializeToString(), "EPContext"),
    ],
)  # fmt: skip
def test_a_file_that_needs_other_files_is_refused(data, reason):
    with pytest.raises(RemedyError, match=reason):
        Graph(data, "encoder.onnx")


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
    ],
)
def test_what_is_no_onnx_file_is_told(data):
    with pytest.raises(RemedyError, match=r"encoder\.onnx is no ONNX file, or a damaged one"):
        Graph(data, "encoder.onnx")


def test_a_damaged_file_is_read_or_refused():
    data, rng = recurrent_encoder().SerializeToString(), np.random.default_rng(0)
    for place in rng.integers(0, len(data), 500).tolist():
        damaged = data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :]
        with contextlib.suppress(RemedyError):
            Graph(damaged, "encoder.onnx")


def test_a_file_is_written_as_it_was_read():
    made = mean_encoder()
    graph = Graph(made.SerializeToString(), "encoder.onnx")
    assert onnx.load_from_string(bytes(graph)) == made
    assert [tensor.name for tensor in graph.inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [(tensor.name, tensor.shape) for tensor in graph.outputs] == [("states", (None, None, WIDTH))]
    assert graph.opsets == {"": 17}


def test_functions_of_the_file_itself_are_its_own():
    made = mean_encoder()
    body = helper.make_node("Identity", ["x"], ["y"])
    made.functions.append(helper.make_function("own", "Same", ["x"], ["y"], [body], [helper.make_opsetid("", 17)]))
    made.graph.node.append(helper.make_node("Same", ["states"], ["more"], domain="own"))
    made.opset_import.append(helper.make_opsetid("own", 1))
    assert "more" in Graph(made.SerializeToString(), "encoder.onnx").results


def test_edits_give_valid_files():
    graph = Graph(recurrent_encoder(9).SerializeToString(), "encoder.onnx")
    graph.take_rows("table", np.array([2, 0]))
    graph.use_lengths("length")
    graph.add_node("Softmax", ["states"], "shares", axis=-1)
    graph.show("shares")
    made = onnx.load_from_string(bytes(graph))
    made.graph.output[1].CopyFrom(helper.make_tensor_value_info("shares", FLOAT, ["batch", "length", WIDTH]))
    onnx.checker.check_model(made, full_check=True)
    nodes = {node.op_type: node for node in made.graph.node}
    assert list(nodes["GRU"].input) == ["steps", "W", "R", "", "length_int32"]
    assert helper.get_attribute_value(nodes["Softmax"].attribute[0]) == -1
    table = onnx.numpy_helper.to_array(made.graph.initializer[0])
    np.testing.assert_array_equal(table, onnx.numpy_helper.to_array(weights("table", 9, WIDTH))[[2, 0]])


def test_recurrent_nodes_that_know_the_lengths_keep_them():
    node = helper.make_node("GRU", ["steps", "W", "R", "", "own"], ["states"], hidden_size=3)
    cast = helper.make_node("Cast", ["length"], ["own"], to=onnx.TensorProto.INT32)
    made = model([cast, node], [weights("W", 1, 9, 2), weights("R", 1, 9, 3), constant("unused", 1)], {"length": 1})
    graph = Graph(made.SerializeToString(), "encoder.onnx")
    graph.use_lengths("length")
    assert onnx.load_from_string(bytes(graph)) == made
