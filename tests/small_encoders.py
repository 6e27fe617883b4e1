"""Small ONNX encoders whose output would change if padding were not masked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

CHARACTERS = "吴重阳在中国银行工作王小明去了上海今天气很好北京大学南李华和张伟昨他的经理说也，。"
VOCABULARY = ["[PAD]", "[UNK]", *dict.fromkeys(CHARACTERS)]
WIDTH = 6
INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def weights(name: str, *shape: int) -> Any:
    seed = sum(map(ord, name))
    return numpy_helper.from_array(np.random.default_rng(seed).normal(size=shape).astype("f"), name)


def constant(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def model(nodes: Sequence[Any], tensors: Sequence[Any], inputs: dict[str, int], opset: int = 17) -> Any:
    """Create a model with the output `states`.

    inputs: Number of dimensions of each input.
    """
    graph = helper.make_graph(
        list(nodes),
        "encoder",
        [
            helper.make_tensor_value_info(name, INT64, [f"{name}{i}" for i in range(dims)])
            for name, dims in inputs.items()
        ],
        [helper.make_tensor_value_info("states", FLOAT, ["batch", "length", WIDTH])],
        list(tensors),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def mean_encoder(rows: int = len(VOCABULARY)) -> Any:
    """Create an encoder with the inputs of BERT. Its output is a projection of each embedding plus the mean over the
    mask."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Unsqueeze", ["attention_mask", "last"], ["mask3"]),
        helper.make_node("Cast", ["mask3"], ["mask"], to=FLOAT),
        helper.make_node("Mul", ["rows", "mask"], ["real"]),
        helper.make_node("ReduceSum", ["real", "one"], ["sum"]),
        helper.make_node("ReduceSum", ["mask", "one"], ["count"]),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["rows", "mean"], ["mixed"]),
        helper.make_node("Gather", ["kinds", "token_type_ids"], ["kind"]),
        helper.make_node("Add", ["mixed", "kind"], ["inner"]),
        helper.make_node("MatMul", ["inner", "matrix"], ["states"]),
    ]
    tensors = [weights("table", rows, WIDTH), weights("kinds", 2, WIDTH), weights("matrix", WIDTH, WIDTH)]
    inputs = {"input_ids": 2, "attention_mask": 2, "token_type_ids": 2}
    return model(nodes, [*tensors, constant("last", 2), constant("one", 1)], inputs)


def recurrent_encoder(rows: int = len(VOCABULARY)) -> Any:
    """Create a bidirectional GRU. Like LAC's model, it has the lengths as an unused input."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["steps", "W", "R"], ["both", ""], direction="bidirectional", hidden_size=3),
        helper.make_node("Transpose", ["both"], ["ordered"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["ordered", "shape"], ["states"]),
    ]
    tensors = [weights("table", rows, WIDTH), weights("W", 2, 9, WIDTH), weights("R", 2, 9, 3)]
    return model(nodes, [*tensors, constant("shape", 0, 0, WIDTH)], {"ids": 2, "length": 1})


def save(folder: Path, model: Any, vocabulary: Sequence[str] = VOCABULARY) -> Path:
    """Write a model and its vocabulary to a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "encoder.onnx")
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf8")
    return folder / "encoder.onnx"


def save_tokenizer(folder: Path) -> None:
    """Write a tokenizer with special tokens, which splits words into subword tokens."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "new", "york", "##er", "##s", "in"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
