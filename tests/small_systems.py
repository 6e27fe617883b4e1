"""Small pipelines: texts, a model of each architecture, a training loop, and trained pipelines on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import spacy
import torch
from small_encoders import recurrent_encoder, save
from spacy.language import Language
from spacy.training import Example
from thinc.api import Optimizer
from tiny_transformer import save_tiny_transformer

from spacy_tener.export.transformer_to_onnx_torch import to_onnx

TEXTS = [
    ("吴重阳在中国银行工作。", [(0, 3, "PER"), (4, 8, "ORG")]),
    ("今天天气很好", []),
    ("王小明去了上海", [(0, 3, "PER"), (5, 7, "GPE")]),
    ("京", [(0, 1, "GPE")]),
    ("李华和张伟昨天从南京大学去了北京大学", [(0, 2, "PER"), (3, 5, "PER"), (8, 12, "ORG"), (14, 18, "ORG")]),
    ("他昨天去了银行", []),
    ("上海银行的王经理说南京很大，北京也很大，今天天气很好", [(0, 4, "ORG"), (5, 6, "PER"), (9, 11, "GPE")]),
    ("北京大学在北京", [(0, 4, "ORG"), (5, 7, "GPE")]),
]
WORDS = [
    "中国",
    "银行",
    "中国银行",
    "上海",
    "南京",
    "北京",
    "大学",
    "北京大学",
    "南京大学",
    "工作",
    "今天",
    "昨天",
    "天气",
]
SYSTEMS = {"tener": "TENER", "flat": "FLAT", "flat_atssa": "FLAT_ATSSA", "mect": "MECT", "grn": "GRN", "onnx": "ONNX"}
KINDS = [*SYSTEMS, "characters", "converted"]
UNSEEN = "吴小明在上海银行工作。王重阳去了中国"
_FOLDER = tempfile.TemporaryDirectory(prefix="trained-")
PARTS = "吴\t口 天\n银\t钅 艮\n海\t氵 每\n明\t日 月\n好\t女 子\n"


def small_tok2vecs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return a small config of each architecture, without dropout.

    folder: Directory for the files of words and radicals.
    """
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf8")
    (folder / "parts.txt").write_text(PARTS, encoding="utf8")
    characters = {
        "@architectures": "spacy_tener.CharEmbed.v1",
        "width": 12,
        "bigram_width": 8,
        "dropout": 0.0,
        "word_dropout": 0.0,
        "bigram_dropout": 0.0,
        "simplify": True,
    }
    words = {
        "@architectures": "spacy_tener.LexiconEmbed.v1",
        "width": 8,
        "dropout": 0.0,
        "word_dropout": 0.0,
        "lexicon": {"@misc": "spacy_tener.WordList.v1", "path": str(folder / "words.txt")},
    }
    radicals = {
        "@architectures": "spacy_tener.RadicalEmbed.v1",
        "width": 8,
        "dropout": 0.0,
        "radical_dropout": 0.0,
        "source": {"@misc": "spacy_tener.RadicalsFile.v1", "path": str(folder / "parts.txt")},
    }
    joined = {
        "@architectures": "spacy_tener.JoinEmbed.v1",
        "first": characters,
        "second": {
            "@architectures": "spacy_tener.OnnxEmbed.v1",
            "width": 8,
            "dropout": 0.0,
            "encoder": {
                "@misc": "spacy_tener.OnnxEncoder.v1",
                "path": str(save(folder / "encoder", recurrent_encoder())),
            },
        },
    }
    transformer = {"width": 16, "heads": 2, "dropout": 0.0}
    parts = {
        "TENER": {"embed": characters, **transformer},
        "FLAT": {"embed": characters, "words": words, **transformer},
        "FLAT_ATSSA": {"embed": characters, "words": words, **transformer},
        "MECT": {"embed": characters, "words": words, "radicals": radicals, **transformer},
        "GRN": {"embed": characters, "width": 16, "dropout": 0.0},
        "ONNX": {"@architectures": "spacy_tener.TENER.v1", "embed": joined, **transformer},
    }
    return {name: {"@architectures": f"spacy_tener.{name}.v1", **config} for name, config in parts.items()}


def pipeline(tok2vec, *, lang="zh", depth=1, **config):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank(lang)
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": tok2vec, "depth": depth}
    nlp.add_pipe("tener_ner", config={"model": model, **config})
    return nlp


def examples_of(nlp, texts=TEXTS):
    return [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in texts]


def learn(
    nlp: Language,
    examples: Sequence[Example],
    *,
    steps: int = 60,
    optimizer: Optimizer | None = None,
    enough: float = 0.0,
) -> Optimizer:
    """Train a pipeline on examples. Without an optimizer, the weights are initialized first.

    enough: Stop when the loss is smaller.
    RETURNS: The optimizer, to continue training.
    """
    if optimizer is None:
        optimizer = nlp.initialize(lambda: examples)
        optimizer.learn_rate = 0.01
    for _ in range(steps):
        if max(nlp.update(examples, sgd=optimizer).values()) < enough:
            break
    return optimizer


@cache
def trained(kind: str) -> Path:
    """Overfit a small pipeline to its texts, and return its directory. It is trained once per process."""
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
        to_onnx(nlp, "int8")
    for text, entities in TEXTS:
        assert [(ent.start_char, ent.end_char, ent.label_) for ent in nlp(text).ents] == entities
    nlp.config["initialize"] = {}
    nlp.to_disk(folder / kind)
    return folder / kind
