"""`spacy pretrain`: what an architecture learned from raw text is where its training begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import srsly
import torch
from made_trainings import MODEL, TENER, make_config, sentences, write_corpus
from spacy.language import Language
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.pretrain import pretrain
from thinc.api import Config, Model

from spacy_tener.training.config_filling import fill

EMBED = TENER["embed"]
WORDS = ("小明", "上海", "北京", "喜欢")
RAW = ("吴重阳从南京去了上海。", "人喜欢住在长沙!")
SAME_LENGTH = {"heads": 2, "width": 16, "dropout": 0.1, "embed": EMBED}


def lexicon(folder: Path) -> dict[str, Any]:
    (folder / "words.txt").write_text("\n".join(WORDS), encoding="utf8")
    source = {"@misc": "spacy_tener.WordList.v1", "path": str(folder / "words.txt")}
    return {"@architectures": "spacy_tener.LexiconEmbed.v1", "width": 8, "lexicon": source}


@pytest.fixture(params=["TENER", "FLAT", "FLAT_ATSSA", "GRN"])
def tok2vec(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    name = f"spacy_tener.{request.param}.v1"
    if request.param == "TENER":
        return TENER
    if request.param == "GRN":
        return {"@architectures": name, "width": 16, "embed": EMBED}
    return {"@architectures": name, **SAME_LENGTH, "words": lexicon(tmp_path)}


def config_of(folder: Path, tok2vec: dict[str, Any]) -> Config:
    for name in ("first", "second"):
        (folder / name).mkdir()
    for part in ("train", "dev"):
        write_corpus(folder / f"{part}.spacy", 6)
    texts = [text for text, _ in sentences()] + list(RAW)
    srsly.write_jsonl(folder / "raw.jsonl", [{"text": text} for text in texts])
    component = {"factory": "tener_ner", "model": {**MODEL, "tok2vec": tok2vec}}
    config = make_config(folder, {"tener_ner": component}, before_update=None)
    config["paths"]["init_tok2vec"] = None
    config["initialize"] = {"init_tok2vec": "${paths.init_tok2vec}"}
    config["corpora"]["pretrain"] = {"@readers": "spacy.JsonlCorpus.v1", "path": str(folder / "raw.jsonl")}
    config["pretraining"] = {
        "component": "tener_ner",
        "layer": "tok2vec",
        "corpus": "corpora.pretrain",
        "max_epochs": 2,
        "n_save_every": None,
        "n_save_epoch": None,
        "dropout": 0.1,
        "batcher": {"@batchers": "spacy.batch_by_sequence.v1", "size": 8},
        "optimizer": {"@optimizers": "Adam.v1", "learn_rate": 0.01},
        "objective": {
            "@architectures": "spacy.PretrainCharacters.v1",
            "maxout_pieces": 2,
            "hidden_size": 32,
            "n_characters": 2,
        },
    }
    return fill(config)


def layer(nlp: Language) -> Model[Any, Any]:
    return nlp.get_pipe("tener_ner").model.get_ref("tok2vec")


def weights(model: Model[Any, Any]) -> list[torch.Tensor]:
    """Those of all but the embedders."""
    modules = [shim.module for node in model.walk() if "vocabulary" not in node.attrs for shim in node.shims]
    return [each.detach().clone() for module in modules for each in module.parameters()]


def test_training_begins_where_pretraining_ended(tmp_path: Path, tok2vec: dict[str, Any]) -> None:
    config = config_of(tmp_path, tok2vec)
    pretrain(config.copy().interpolate(), tmp_path / "first")
    fresh = layer(init_nlp(config))
    config["paths"]["init_tok2vec"] = str(tmp_path / "first" / "model-last.bin")
    nlp = init_nlp(config)
    learned = weights(fresh.copy().from_disk(tmp_path / "first" / "model-last.bin"))
    began = weights(layer(nlp))
    assert all(map(torch.equal, began, learned))
    assert not any(map(torch.equal, began, weights(fresh)))
    # Characters of the raw text have rows that training only sees later; new ones get theirs.
    vocabulary = next(node.attrs["vocabulary"] for node in layer(nlp).walk() if "vocabulary" in node.attrs)
    heights = vocabulary.heights()
    example = Example.from_dict(nlp.make_doc("李雷去了从未有过"), {"entities": [(0, 2, "PER")]})
    nlp.update([example], sgd=nlp.create_optimizer())
    assert vocabulary.heights()["unigram"] > heights["unigram"]
    assert not any(map(torch.equal, weights(layer(nlp)), learned))
    loaded = nlp.from_bytes(nlp.to_bytes())
    assert [token.ent_iob for token in loaded(RAW[0])]


def test_pretraining_that_goes_on_repeats_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, TENER).interpolate()
    pretrain(config.copy(), tmp_path / "first")
    config["pretraining"]["max_epochs"] = 4
    pretrain(config.copy(), tmp_path / "second", resume_path=tmp_path / "first" / "model1.bin")
    epochs = [sorted(path.name for path in (tmp_path / name).glob("model[0-9]*")) for name in ("first", "second")]
    assert epochs == [["model0.bin", "model1.bin"], ["model2.bin", "model3.bin"]]
