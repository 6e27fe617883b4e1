"""Tests of `spacy pretrain` with the overlay: training starts with the pretrained weights."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest
import torch
from spacy.language import Language
from spacy.training import Example
from spacy.training.initialize import init_nlp
from thinc.api import Config, Model
from tiny_trainings import sentences, write_corpus
from typer.testing import CliRunner

from spacy_tener.cli.spacy_command import app
from spacy_tener.training.overlays import compose

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
PRETRAINING, CODE = ROOT / "research" / "overlays" / "pretraining.cfg", ROOT / "research" / "raw_corpus.py"
CHINESE = [text for text, _ in sentences()] + ["吴重阳从南京去了上海。", "人喜欢住在长沙!"]
ENGLISH = ["John Smith went to New York .", "It rained all day in Acme City ."]
SYSTEMS = [("weibo", name) for name in ("tener", "flat", "flat-atssa", "mect", "char-grn")]


def config_of(folder: Path, base: str, system: str) -> Config:
    texts = ENGLISH if base == "conll2003" else CHINESE
    (folder / "raw.txt.xz").write_bytes(lzma.compress("\n".join(texts).encode()))
    for part in ("train", "dev"):
        write_corpus(folder / f"{part}.spacy", 6)
    paths = {"train": "train.spacy", "dev": "dev.spacy", "raw_text": "raw.txt.xz"}
    named = [f"paths.{name}={folder / file}" for name, file in paths.items()]
    overlays = [system, PRETRAINING]
    return compose(CONFIGS / f"{base}.cfg", overlays, named)


def pretrain(config: Config, output: Path) -> Path:
    path = output.parent / "config.cfg"
    config.to_disk(path)
    result = CliRunner().invoke(app, ["pretrain", str(path), str(output), "--code", str(CODE)])
    assert result.exit_code == 0, (result.output, result.exception)
    return output / "model-last.bin"


def layer(nlp: Language) -> Model[Any, Any]:
    return nlp.get_pipe("tener_ner").model.get_ref("tok2vec")


def weights(model: Model[Any, Any]) -> list[torch.Tensor]:
    """Return copies of all weights, except those of embedders."""
    modules = [shim.module for node in model.walk() if "vocabulary" not in node.attrs for shim in node.shims]
    return [parameter.detach().clone() for module in modules for parameter in module.parameters()]


def moved(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return not any(torch.equal(a, b) for a, b in zip(first, second, strict=True) if a.ndim > 1)


@pytest.mark.parametrize(("base", "system"), [*SYSTEMS, ("conll2003", "tener"), ("conll2003", "grn")])
def test_training_begins_where_pretraining_ended(tmp_path: Path, base: str, system: str) -> None:
    config = config_of(tmp_path, base, system)
    learned = pretrain(config, tmp_path / "pretrained")
    fresh = layer(init_nlp(config))
    config["paths"]["init_tok2vec"] = str(learned)
    nlp = init_nlp(config)
    began = weights(layer(nlp))
    assert all(map(torch.equal, began, weights(fresh.copy().from_disk(learned))))
    assert moved(began, weights(fresh))
    # Strings in the raw text have embedding rows, and strings that only occur in the training set get new rows.
    vocabulary = next(node.attrs["vocabulary"] for node in layer(nlp).walk() if "vocabulary" in node.attrs)
    heights = vocabulary.heights()
    doc = nlp.make_doc("从未有过 alpha beta gamma delta")
    nlp.update([Example.from_dict(doc, {"entities": [(0, 4, "PER")]})], sgd=nlp.create_optimizer())
    assert all(vocabulary.heights()[name] > height for name, height in heights.items())
    loaded = nlp.from_bytes(nlp.to_bytes())
    assert loaded(CHINESE[-1]).has_annotation("ENT_IOB")
