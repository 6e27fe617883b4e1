"""A variety of ONNX graphs, which have the same features for single texts and batches, or raise an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from small_encoders import FLOAT, INT64, VOCABULARY, WIDTH, constant, weights

from spacy_tener.errors import UserError
from spacy_tener.onnx.encoder import Batching, Characters, Encoder
from spacy_tener.onnx.sources import make_encoder

IDS = np.random.default_rng(0).integers(1, len(VOCABULARY), 200)
LENGTHS = np.array([1, 30, 7, 7, 30, 2, 60, 7, 16, 40])
NO_IDS = np.zeros(0, dtype=np.int64)
CHARACTERS = Characters(NO_IDS, NO_IDS, len(VOCABULARY) - 1)
HALF = WIDTH // 2
OPSETS = 11, 13, 17, 18, 21
MASKS = (
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.BOOL,
)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": ["Tanh", "Tanh"]}


def build(
    layers: list[Any],
    mask: int | None = None,
    *,
    lengths: bool = False,
    shape: tuple[Any, Any] = ("n", "l"),
    opset: int = 17,
) -> ModelProto:
    """Build a graph that computes `states` from the embeddings (`rows`) of the ids and the mask (`shown`)."""
    inputs = [helper.make_tensor_value_info("ids", INT64, shape)]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"])]
    if mask:
        inputs.append(helper.make_tensor_value_info("mask", mask, shape))
        nodes.append(helper.make_node("Cast", ["mask"], ["shown"], to=FLOAT))
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", INT64, shape[:1]))
    tensors = [
        weights("table", len(VOCABULARY), WIDTH),
        weights("filter", WIDTH, WIDTH, 3),
        weights("square", WIDTH, WIDTH),
        constant("as_columns", 0, 1, -1),
        constant("as_rows", 0, -1, 1),
        constant("as_one_text", 1, -1, WIDTH),
        constant("as_states", 0, 0, WIDTH),
        helper.make_tensor("large", FLOAT, [1], [10_000.0]),
        *(weights(f"W{gates}", 2, gates * HALF, WIDTH) for gates in GATES.values()),
        *(weights(f"R{gates}", 2, gates * HALF, HALF) for gates in GATES.values()),
    ]
    output = helper.make_tensor_value_info("states", FLOAT, ["n", "l", WIDTH])
    graph = helper.make_graph([*nodes, *layers], "zoo", inputs, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def lookup() -> list[Any]:
    return [helper.make_node("Identity", ["rows"], ["states"])]


def attention(*, masked: bool) -> list[Any]:
    hidden = [
        helper.make_node("Reshape", ["shown", "as_columns"], ["columns"]),
        helper.make_node("Mul", ["columns", "large"], ["bias"]),
        helper.make_node("Add", ["products", "bias"], ["scores"]),
    ]
    return [
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["rows", "turned"], ["products" if masked else "scores"]),
        *(hidden if masked else []),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=2),
        helper.make_node("MatMul", ["shares", "rows"], ["states"]),
    ]


def convolution(*, masked: bool) -> list[Any]:
    hidden = [
        helper.make_node("Reshape", ["shown", "as_rows"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["read"]),
    ]
    return [
        *(hidden if masked else [helper.make_node("Identity", ["rows"], ["read"])]),
        helper.make_node("Transpose", ["read"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["turned", "filter"], ["convolved"], pads=[1, 1]),
        helper.make_node("Transpose", ["convolved"], ["states"], perm=[0, 2, 1]),
    ]


def recurrent(operator: str) -> list[Any]:
    gates = GATES[operator]
    settings = {"direction": "bidirectional", "hidden_size": HALF, "activations": ACTIVATIONS.get(operator)}
    return [
        helper.make_node("Transpose", ["rows"], ["steps"], perm=[1, 0, 2]),
        helper.make_node(operator, ["steps", f"W{gates}", f"R{gates}"], ["both"], **settings),
        helper.make_node("Transpose", ["both"], ["ordered"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["ordered", "as_states"], ["states"]),
    ]


def product() -> list[Any]:
    return [
        *attention(masked=False)[:-1],
        helper.make_node("MatMul", ["shares", "rows"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "square"], ["states"]),
    ]


def one_text() -> list[Any]:
    return [helper.make_node("Reshape", ["rows", "as_one_text"], ["states"])]


def as_bytes(model: ModelProto, folder: Path) -> bytes:
    return model.SerializeToString()


def optimized(model: ModelProto, folder: Path) -> bytes:
    """Return the file that ONNX Runtime's optimizer saves."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return (folder / "optimized.onnx").read_bytes()


def in_dynamic_int8(model: ModelProto, folder: Path) -> bytes:
    (folder / "float.onnx").write_bytes(model.SerializeToString())
    quantize_dynamic(folder / "float.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    return (folder / "int8.onnx").read_bytes()


def zoo() -> Iterator[Any]:
    """Yield graphs, functions that write them, and how their windows can be batched."""
    yield pytest.param(build(lookup()), as_bytes, "padded", id="lookup")
    for mask in MASKS:
        name = TensorProto.DataType.Name(mask)
        yield pytest.param(build(attention(masked=True), mask), as_bytes, "padded", id=f"attention, mask of {name}")
    for opset in OPSETS:
        for layer in (attention, convolution):
            model = build(layer(masked=True), INT64, opset=opset)
            yield pytest.param(model, as_bytes, "padded", id=f"{layer.__name__}, opset {opset}")
        for operator in GATES:
            yield pytest.param(
                build(recurrent(operator), opset=opset), as_bytes, "equal", id=f"{operator}, opset {opset}"
            )
    for operator in GATES:
        yield pytest.param(build(recurrent(operator), lengths=True), as_bytes, "padded", id=f"{operator} with lengths")
    for layer in (attention, convolution):
        yield pytest.param(build(layer(masked=False)), as_bytes, "equal", id=f"{layer.__name__} without mask")
        yield pytest.param(build(layer(masked=False), INT64), as_bytes, "equal", id=f"{layer.__name__}, mask not used")
        yield pytest.param(build(layer(masked=True), INT64), optimized, "padded", id=f"optimized {layer.__name__}")
    yield pytest.param(build(recurrent("GRU"), lengths=True), optimized, "padded", id="optimized GRU")
    yield pytest.param(build(product()), in_dynamic_int8, "single", id="dynamic int8")
    yield pytest.param(build(one_text()), as_bytes, "single", id="one text at a time")


def rows_alone(encoder: Encoder) -> np.ndarray:
    ends = np.cumsum(LENGTHS)
    return np.concatenate([encoder.rows(IDS[e - n : e], np.array([n])) for e, n in zip(ends, LENGTHS, strict=True)])


@pytest.mark.parametrize(("model", "write", "batching"), zoo())
def test_features_do_not_depend_on_batch(
    model: ModelProto, write: Callable[[ModelProto, Path], bytes], batching: Batching, tmp_path: Path
) -> None:
    encoder = make_encoder(write(model, tmp_path), CHARACTERS, source="zoo.onnx")
    np.testing.assert_allclose(encoder.rows(IDS, LENGTHS), rows_alone(encoder), atol=1e-5)
    assert encoder.batching == batching
    saved = Encoder.from_parts(encoder.to_parts())
    np.testing.assert_array_equal(saved.rows(IDS, LENGTHS), encoder.rows(IDS, LENGTHS))


def with_functions() -> ModelProto:
    """Return a graph with a local function, which ONNX Runtime inlines."""
    model = build([helper.make_node("Same", ["rows"], ["states"], domain="own")])
    body = helper.make_node("Identity", ["x"], ["y"])
    model.functions.append(helper.make_function("own", "Same", ["x"], ["y"], [body], [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def test_unused_operator_sets_and_local_functions_are_supported() -> None:
    unused = build(lookup())
    unused.opset_import.append(helper.make_opsetid("my.library", 1))
    expected = make_encoder(build(lookup()).SerializeToString(), CHARACTERS, source="zoo.onnx").rows(IDS, LENGTHS)
    for model in (unused, with_functions()):
        encoder = make_encoder(model.SerializeToString(), CHARACTERS, source="zoo.onnx")
        np.testing.assert_array_equal(encoder.rows(IDS, LENGTHS), expected)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (build(lookup(), shape=(1, "l")), r"input 'ids' has the fixed shape \(1, 'l'\)"),
        (build(lookup(), shape=("n", 128)), r"input 'ids' has the fixed shape \('n', 128\)"),
        (build(lookup(), TensorProto.UINT8), r"input 'mask' has the unsupported data type tensor\(uint8\)"),
        (build([helper.make_node("Own", ["rows"], ["states"], domain="library")]), "library:Own.* is not a registered"),
        (
            build([*convolution(masked=False)[:-1], helper.make_node("Identity", ["convolved"], ["states"])]),
            "has the shape",
        ),
    ],
)
def test_unsupported_graph_raises_error_with_reason(model: ModelProto, reason: str) -> None:
    if "library" in reason:
        model.opset_import.append(helper.make_opsetid("library", 1))
    with pytest.raises(UserError, match=reason):
        make_encoder(model.SerializeToString(), CHARACTERS, source="zoo.onnx")
