"""The transformer overlays, applied to the config of any corpus and system, with a separate learning rate."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from losses import get_loss
from spacy.language import Language
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config
from tiny_transformer import save_tiny_transformer

from spacy_tener.training.overlays import compose

pytestmark = pytest.mark.integration

CONFIGS = Path(__file__).parent.parent / "configs"
BASES_AND_SYSTEMS = [
    ("weibo", ()),
    ("weibo", ("flat",)),
    ("resume", ("flat-atssa",)),
    ("resume", ("mect",)),
    ("conll2003", ()),
    ("ontonotes5", ("grn",)),
    ("wnut17", ("grn", "chars-shape")),
]
OVERLAYS = ["transformer", "transformer-frozen", "transformer-shared", "transformer-crf"]
DATA = {
    "zh": ("吴重阳在中国银行工作。", [(0, 3, "PER"), (4, 8, "ORG")]),
    "en": ("John Smith joined Acme in New York .", [(0, 10, "PER"), (18, 22, "ORG"), (26, 34, "LOC")]),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_transformer(tmp_path_factory.mktemp("bert"))


def overlay_path(overlay: str) -> Path:
    return CONFIGS / "models" / f"{overlay}.cfg"


@cache
def compose_config(base: str, *overlays: str) -> Config:
    return compose(CONFIGS / f"{base}.cfg", [overlay_path(name) for name in overlays])


def loss_without_dropout(nlp: Language, examples: list[Example]) -> float:
    if nlp.has_pipe("transformer"):
        for example in examples:
            nlp.get_pipe("transformer")(example.predicted)
    component = nlp.get_pipe("tener_ner")
    scores = component.model.predict([example.predicted for example in examples])
    return float(get_loss(component, examples, scores)[0])


def tok2vec(config: Config) -> Any:
    return config["components"]["tener_ner"]["model"]["tok2vec"]


@pytest.mark.parametrize("overlay", OVERLAYS[:3])
@pytest.mark.parametrize(("base", "system"), BASES_AND_SYSTEMS)
def test_overlay_joins_transformer_and_embedder(base: str, system: tuple[str, ...], overlay: str) -> None:
    plain, config = tok2vec(compose_config(base, *system)), tok2vec(compose_config(base, *system, overlay))
    embed = config["embed"]
    assert embed["@architectures"] == "spacy_tener.JoinEmbed.v1"
    assert embed["first"] == plain["embed"]
    assert {**config, "embed": None} == {**plain, "embed": None}
    if overlay == "transformer-shared":
        assert embed["second"]["@architectures"] == "spacy-transformers.TransformerListener.v1"
    else:
        assert embed["second"]["name"] == "${paths.transformer}"
        assert embed["second"]["frozen"] == (overlay == "transformer-frozen")


@pytest.mark.parametrize("base", ["weibo", "resume", "conll2003", "ontonotes5", "wnut17"])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_keeps_schedule_and_sets_fine_tuning_rate(base: str, overlay: str) -> None:
    training, plain = compose_config(base, overlay)["training"], compose_config(base)["training"]
    if overlay == "transformer-frozen":
        assert training == plain
        return
    optimizer = training["optimizer"]
    assert optimizer["@optimizers"] == "spacy_tener.Adam.v1"
    assert set(optimizer["rates"].values()) == {0.05}
    # The settings of Thinc's Adam, but without averages if Thinc's wrapper for torch does not use them.
    expected = {**plain["optimizer"], "use_averages": overlay != "transformer-shared"}
    expected.pop("@optimizers")
    assert {name: optimizer[name] for name in expected} == expected
    assert {**training, "optimizer": None} == {**plain, "optimizer": None}


def test_transformer_crf_overlay_replaces_encoder() -> None:
    for base in {base for base, _ in BASES_AND_SYSTEMS}:
        found = tok2vec(compose_config(base, "transformer-crf"))
        assert (found["@architectures"], found["frozen"]) == ("spacy_tener.TransformerEmbed.v1", False)
        assert set(found) >= {"name", "pooling", "layers"}
        assert "embed" not in found


@pytest.mark.parametrize(
    ("base", "system", "overlay"),
    [
        ("weibo", ("flat",), "transformer"),
        ("wnut17", ("grn", "chars-shape"), "transformer-frozen"),
        ("wnut17", ("grn", "chars-shape"), "transformer-shared"),
        ("weibo", (), "transformer-crf"),
    ],
)
def test_training_with_overlay_lowers_loss(base: str, system: tuple[str, ...], overlay: str, tiny: Path) -> None:
    config = compose_config(base, *system, overlay).copy()
    config["paths"]["transformer"] = str(tiny)
    nlp = load_model_from_config(config.interpolate(), auto_fill=False)
    text, entities = DATA[nlp.lang]
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities})]
    nlp.initialize(lambda: examples)
    before, optimizer = loss_without_dropout(nlp, examples), nlp.create_optimizer()
    for _ in range(10):
        nlp.update(examples, sgd=optimizer)
        optimizer.step_schedules()
    assert loss_without_dropout(nlp, examples) < before
    with nlp.use_params(optimizer.averages or {}):
        assert nlp(text).has_annotation("ENT_IOB")


def test_all_transformer_overlays_are_tested() -> None:
    assert {path.stem for path in CONFIGS.glob("models/*transformer*.cfg")} == {*OVERLAYS}
