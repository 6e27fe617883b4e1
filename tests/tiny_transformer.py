"""A BERT of two layers with random weights and a small vocabulary, so that tests do not download a model."""

from __future__ import annotations

from pathlib import Path

import spacy
import torch
from spacy.tokens import Doc

VOCAB = spacy.blank("zh").vocab
WIDTH = 16
POSITIONS = 48
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = list("吴重阳在中国银行工作今天气很好王小明去了上海京。2023abcdefghijklmnopqrstuvwxyz.,")
WORDS = ["2023", "john", "smith", "joined", "acme", "new", "york", "it", "rained", "iphone", "##s", "##x", "##e"]
VOCABULARY = [*SPECIAL, *dict.fromkeys([*CHARACTERS, *WORDS])]


def characters(text: str) -> Doc:
    """Return a Chinese Doc with one token per character."""
    return Doc(VOCAB, words=list(text), spaces=[False] * len(text))


def save_tiny_transformer(path: Path, *, seed: int = 0, **settings: object) -> Path:
    """Write the model and its tokenizer to a directory, as `save_pretrained` of transformers does."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    path.mkdir(parents=True, exist_ok=True)
    (path / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf8")
    tokenizer = BertTokenizerFast(vocab_file=str(path / "vocab.txt"), do_lower_case=True, model_max_length=POSITIONS)
    tokenizer.save_pretrained(path)
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": POSITIONS,
    }
    torch.manual_seed(seed)
    model = BertModel(BertConfig(**{**sizes, **settings}))
    for parameter in model.parameters():
        # With the library's initialization, the embeddings of all subword tokens would be almost equal.
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(path)
    return path
