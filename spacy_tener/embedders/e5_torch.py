"""Multilingual E5 as a model of the library transformers, to train it further."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from ..onnx.published_weights import BertWeights, Blocks, name_in_transformers, tensor_names
from ..types import IntArray

_MARKS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def to_transformers(weights: BertWeights) -> tuple[Any, Any]:
    """Return a `BertModel` with the weights in float32, and its tokenizer."""
    from tokenizers import Tokenizer

    library: Any = import_module("transformers")
    pieces, kinds = weights.vocabulary.size, weights.vector("emb.type").size // weights.width
    config = library.BertConfig(
        vocab_size=pieces,
        hidden_size=weights.width,
        num_hidden_layers=weights.layers,
        num_attention_heads=weights.heads,
        intermediate_size=weights.vector("l0.fi.b").size,
        max_position_embeddings=weights.longest,
        type_vocab_size=kinds,
        layer_norm_eps=weights.epsilon,
    )
    model = library.BertModel(config)
    # Its pooler, of which nothing is read, stays random.
    model.load_state_dict(
        {name_in_transformers(name): _tensor(weights, name) for name in tensor_names(weights.layers)}, strict=False
    )
    tokenizer = Tokenizer.from_buffer(weights.vocabulary.json)
    longest = weights.longest
    return model, library.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **_MARKS)


def keep_rows(model: Any, pieces: IntArray) -> None:
    """Remove the rows of all pieces but these, in this order."""
    rows = model.get_input_embeddings().weight.detach()[torch.from_numpy(pieces).to(model.device)]
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows.clone(), freeze=False))
    model.config.vocab_size = len(pieces)


def _tensor(weights: BertWeights, name: str) -> torch.Tensor:
    matrix = weights.tensors[name]
    return torch.from_numpy(matrix.rows() if isinstance(matrix, Blocks) else matrix.copy())
