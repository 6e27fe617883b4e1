"""Chinese corpora' configs with the overlays of the lexicon's architectures: each makes a model that trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from spacy.language import Language
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config

from spacy_tener.training.compose import compose

CONFIGS = Path(__file__).parent.parent / "configs"
STACKS = {
    ("flat",): {"@architectures": "spacy_tener.FLAT.v1"},
    ("flat-atssa",): {"@architectures": "spacy_tener.FLAT_ATSSA.v1", "selection": "adaptive", "k": 3, "alpha": 50.0},
    ("flat-atssa", "flat-atssa-no-selection"): {"selection": "none"},
    ("flat-atssa", "flat-atssa-no-top-k"): {"selection": "adaptive", "k": 0},
    ("flat-atssa", "flat-atssa-no-amplification"): {"alpha": 1.0},
    ("flat-atssa", "flat-atssa-fixed-threshold"): {"threshold": "fixed"},
    ("flat-atssa", "flat-atssa-top-k"): {"selection": "top_k", "k": 3},
    ("mect",): {"@architectures": "spacy_tener.MECT.v1", "streams": "cross", "random_attention": 320},
    ("mect", "mect-single-stream"): {"streams": "single"},
    ("mect", "mect-no-cross"): {"streams": "parallel"},
    ("mect", "mect-no-random-attention"): {"streams": "cross", "random_attention": 0},
}
TEXT = "吴重阳在中国银行工作。"
ENTITIES = [(0, 3, "PER"), (4, 8, "ORG")]


def composed(base: str, overlays: tuple[str, ...]) -> Config:
    return compose(CONFIGS / f"{base}.cfg", [CONFIGS / "models" / f"{name}.cfg" for name in overlays]).config


def loss_without_dropout(nlp: Language, examples: list[Example]) -> float:
    component = nlp.get_pipe("tener_ner")
    scores = component.model.predict([example.predicted for example in examples])
    return float(component.get_loss(examples, scores)[0])


@pytest.mark.parametrize("base", ["weibo", "resume"])
@pytest.mark.parametrize("overlays", STACKS, ids="+".join)
def test_overlay_sets_what_its_name_says_and_keeps_the_corpus_training(base: str, overlays: tuple[str, ...]) -> None:
    config, own = composed(base, overlays), composed(base, ())
    tok2vec = config["components"]["tener_ner"]["model"]["tok2vec"]
    assert {name: tok2vec[name] for name in STACKS[overlays]} == STACKS[overlays]
    assert tok2vec["embed"]["vectors"] == "${paths.char_vectors}"
    assert tok2vec["words"]["vectors"] == "${paths.word_vectors}"
    assert config["training"] == own["training"]


@pytest.mark.parametrize("overlays", STACKS, ids="+".join)
def test_every_stack_trains_and_lowers_its_loss(overlays: tuple[str, ...]) -> None:
    nlp = load_model_from_config(composed("weibo", overlays).interpolate(), auto_fill=False)
    examples = [Example.from_dict(nlp.make_doc(TEXT), {"entities": ENTITIES})]
    optimizer = nlp.initialize(lambda: examples)
    before = loss_without_dropout(nlp, examples)
    for _ in range(20):
        nlp.update(examples, sgd=optimizer)
    assert loss_without_dropout(nlp, examples) < before


def test_every_overlay_of_the_lexicon_is_in_a_stack() -> None:
    files = {path.stem for kind in ("flat", "mect") for path in (CONFIGS / "models").glob(f"{kind}*.cfg")}
    assert files == {name for stack in STACKS for name in stack}
