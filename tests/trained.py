"""Trained pipelines on disk: one of each architecture, one that reads characters, and one over a transformer that was
converted to ONNX. Each process trains its own."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import torch
from learning import learn
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs
from tiny_transformer import save_tiny_transformer

from spacy_tener.workbench.to_onnx import to_onnx

SYSTEMS = {"tener": "TENER", "flat": "FLAT", "flat_atssa": "FLAT_ATSSA", "mect": "MECT", "grn": "GRN", "onnx": "ONNX"}
KINDS = [*SYSTEMS, "characters", "converted"]
UNSEEN = "吴小明在上海银行工作。王重阳去了中国"
_FOLDER = tempfile.TemporaryDirectory(prefix="trained-")


@cache
def trained(kind: str) -> Path:
    """Train a small pipeline until it knows its texts by heart, and return its directory."""
    folder = Path(_FOLDER.name)
    view = {"view": "characters", "window": 60, "overlap": 10} if kind == "characters" else {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tok2vec = small_tok2vecs(folder)[SYSTEMS.get(kind, "TENER")]
        if kind == "converted":
            name = save_tiny_transformer(folder / "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
            tok2vec = {"@architectures": "spacy_tener.TransformerEmbed.v1", "name": str(name), "dropout": 0.0}
        nlp = pipeline(tok2vec, **view)
        examples = examples_of(nlp)
        learn(nlp, examples, steps=200, enough=0.05)
    if kind == "converted":
        assert to_onnx(nlp, "int8") == []
    for text, entities in TEXTS:
        assert [(ent.start_char, ent.end_char, ent.label_) for ent in nlp(text).ents] == entities
    nlp.config["initialize"] = {}
    nlp.to_disk(folder / kind)
    return folder / kind
