"""Tests of the configs of English corpora with all their overlays: TENER's Table 5, GRN's ablations, and baselines."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from spacy.language import Language
from spacy.training import Example
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

import research.baselines  # noqa: F401  (it registers two architectures)
from research import variants  # noqa: F401 (registers the functions that some systems name)
from research.systems import FOLDERS, ablations, find_system
from spacy_tener.training.overlays import compose

CONFIGS = Path(__file__).parents[2] / "configs"
BASES = ("conll2003", "ontonotes5")
CHARS = ("none", "cnn", "bilstm", "transformer", "adapted")
ENCODERS = ("bilstm", "idcnn", "adapted", "transformer")
ABLATIONS = ("no-context", "branch3", "no-relation", "dfn", "gattn")
CELLS = [(f"chars-{chars}", f"encoder-{encoder}") for chars, encoder in product(CHARS, ENCODERS)]
SYSTEMS = [("cnn-bilstm-crf",), ("cnn-bilstm-att-crf",), ("grn",), *((f"grn-{name}",) for name in ABLATIONS)]
SHAPED = [("chars-shape",), ("cnn-bilstm-crf", "chars-shape"), ("grn", "chars-shape")]
STACKS = [(), *CELLS, *SYSTEMS, *SHAPED]
# To save time, each character encoder and each word encoder is trained in a single combination only.
TRAINED = [(), *CELLS[:: len(ENCODERS) + 1], ("chars-adapted", "encoder-bilstm"), *SYSTEMS, *SHAPED[::2]]
SENTENCES = [
    ("John Smith joined Acme in New York .", [(0, 10, "PER"), (18, 22, "ORG"), (26, 34, "LOC")]),
    ("It rained .", []),
]


@cache
def composed(base: str, overlays: tuple[str, ...] = ()) -> Config:
    return compose(CONFIGS / f"{base}.cfg", *find_system("+".join(overlays or ("tener",))))


def tok2vec(base: str, *overlays: str) -> dict:
    return composed(base, overlays)["components"]["tener_ner"]["model"]["tok2vec"]


def pipeline(config: Config) -> tuple[Language, list[Example]]:
    nlp = load_model_from_config(config.interpolate(), auto_fill=False)
    return nlp, [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in SENTENCES]


def parameters(nlp: Language) -> list[torch.Tensor]:
    """Return copies of the weights of all torch modules in the component."""
    modules = [shim._model for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims]
    return [parameter.detach().clone() for module in modules for parameter in module.parameters()]


def names(stack: tuple[str, ...]) -> str:
    return "+".join(stack) or "base"


# The number of sentences in each training set.
SENTENCES_OF = {
    "weibo": 1350,
    "resume": 3821,
    "ontonotes4": 15_724,
    "msra": 46_364 - 4_636,
    "conll2003": 14_041,
    "ontonotes5": 59_924,
    "wnut17": 3_394,
}


@pytest.mark.parametrize(("base", "sentences"), SENTENCES_OF.items())
def test_a_base_is_complete_and_takes_a_dev_score_after_each_epoch(base: str, sentences: int) -> None:
    config = composed(base)
    assert config == load_config(CONFIGS / f"{base}.cfg")
    training = config["training"]
    assert abs(training["eval_frequency"] - sentences / training["batcher"]["size"]) < 1
    assert training["optimizer"]["learn_rate"]["total_steps"] == "${training.max_steps}"
    assert training["max_steps"] % training["eval_frequency"] == 0


def test_every_overlay_is_in_what_is_trained() -> None:
    assert {name for stack in TRAINED for name in stack} == {name for stack in STACKS for name in stack}


@pytest.mark.parametrize("stack", TRAINED, ids=names)
def test_every_system_takes_a_training_step(stack: tuple[str, ...]) -> None:
    nlp, examples = pipeline(composed("ontonotes5", stack))
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.001
    before, losses = parameters(nlp), {}
    nlp.update(examples, sgd=optimizer, losses=losses)
    assert 0 < losses["tener_ner"] < math.inf
    after = parameters(nlp)
    # All weight matrices change. Biases may be constant, for example below a gate without effect or a ReLU.
    still = [tuple(old.shape) for old, new in zip(before, after, strict=True) if old.ndim > 1 and torch.equal(old, new)]
    assert still == []
    with nlp.use_params(optimizer.averages or {}):
        assert all(doc.has_annotation("ENT_IOB") for doc in nlp.pipe([text for text, _ in SENTENCES]))


@pytest.mark.parametrize("stack", CELLS, ids=names)
def test_a_cell_has_the_encoders_of_its_names(stack: tuple[str, ...]) -> None:
    chars, encoder = (name.partition("-")[2] for name in stack)
    found = tok2vec("ontonotes5", *stack)
    if chars == "none":
        assert found["embed"]["chars"] is None
    else:
        architectures = {"cnn": "spacy_tener.CharCNN.v1", "bilstm": "research.CharBiLSTM.v1"}
        name = architectures.get(chars, "spacy_tener.CharTransformer.v1")
        assert found["embed"]["chars"]["@architectures"] == name
        assert found["embed"]["chars"].get("adapted") == {"transformer": False, "adapted": True}.get(chars)
    architecture = {
        "bilstm": "spacy.TorchBiLSTMEncoder.v1",
        "idcnn": "research.IDCNNEncoder.v1",
        "adapted": "spacy_tener.TransformerEncoder.v1",
        "transformer": "spacy_tener.TransformerEncoder.v1",
    }
    assert found["encode"]["@architectures"] == architecture[encoder]
    assert found["encode"].get("adapted") == {"adapted": True, "transformer": False}.get(encoder)


@pytest.mark.parametrize(("base", "cells"), [("ontonotes5", CELLS), ("conll2003", set(TRAINED) & set(CELLS))])
def test_overlays_leave_the_rest_of_the_embedder_alone(base: str, cells: list[tuple[str, ...]]) -> None:
    embed = dict(tok2vec(base)["embed"])
    for stack in cells:
        changed = dict(tok2vec(base, *stack)["embed"])
        assert {**changed, "chars": None, "project_to": None} == {**embed, "chars": None, "project_to": None}
        assert changed["vectors"] == "${paths.word_vectors}"


@pytest.mark.parametrize("base", BASES)
def test_the_base_is_the_cell_of_two_adapted_transformers(base: str) -> None:
    assert composed(base, ("chars-adapted", "encoder-adapted")) == composed(base)


@pytest.mark.parametrize(
    ("ablation", "changed"),
    [
        ("no-context", {"branches": []}),
        ("branch3", {"branches": [3]}),
        ("no-relation", {"relation": None}),
        ("dfn", {"relation": {"@misc": "research.DFN.v1"}}),
        ("gattn", {"relation": {"@misc": "research.GAttN.v1"}}),
    ],
)
def test_an_ablation_of_grn_changes_one_thing(ablation: str, changed: dict) -> None:
    full = tok2vec("conll2003", "grn")
    assert (full["branches"], full["relation"], full["width"]) == ([1, 3, 5], "gated", 400)
    assert tok2vec("conll2003", f"grn-{ablation}") == {**full, **changed}


def test_the_size_of_the_paper_is_an_overlay_of_three_times_the_steps() -> None:
    base, config = composed("conll2003"), composed("conll2003", ("paper-size",))
    size = {"width": 1792, "heads": 14, "ff_width": 3584}
    assert tok2vec("conll2003", "paper-size") == {
        **tok2vec("conll2003"),
        "encode": {**tok2vec("conll2003")["encode"], **size},
    }
    assert config["training"]["max_steps"] == 3 * base["training"]["max_steps"]


@pytest.mark.parametrize("base", ["conll2003", "wnut17", "sample_en"])
def test_glove_goes_with_a_cnn_of_characters_alone(base: str) -> None:
    assert tok2vec(base, "glove")["embed"]["chars"]["@architectures"] == "spacy_tener.CharCNN.v1"


def test_newswire_begins_with_glove_and_static_vectors(tmp_path: Path) -> None:
    (tmp_path / "static.vec").write_text(f"acme{' 0.5' * 100}\n", encoding="utf8")
    config = composed("conll2003", ("glove", "static")).copy()
    config["paths"]["static_vectors"] = str(tmp_path / "static.vec")
    nlp, examples = pipeline(config)
    optimizer, losses = nlp.initialize(lambda: examples), {}
    nlp.update(examples, sgd=optimizer, losses=losses)
    assert 0 < losses["tener_ner"] < math.inf
    layers = nlp.get_pipe("tener_ner").model.walk()
    rows = [layer.attrs["vocabulary"].heights().get("unigram", 0) for layer in layers if "vocabulary" in layer.attrs]
    assert max(rows) > 40_000, rows


@pytest.mark.parametrize("stack", STACKS, ids=names)
def test_weights_are_averaged_where_all_modules_read_averages(stack: tuple[str, ...]) -> None:
    config = composed("ontonotes5", stack)
    has_thinc_wrapper = any(
        name in config.to_str() for name in ("TorchBiLSTM", "research.IDCNN", "research.CharBiLSTM")
    )
    assert config["training"]["optimizer"]["use_averages"] is not has_thinc_wrapper


def test_every_overlay_of_the_english_corpora_is_tried_here() -> None:
    tried = {name for stack in STACKS for name in stack}
    names = {*ablations(), *(path.stem for folder in FOLDERS for path in folder.glob("*.cfg"))}
    assert {name for name in names if name.startswith(("chars", "encoder", "cnn", "grn"))} == tried
