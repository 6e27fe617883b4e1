"""The meta.json of a pipeline that is to be packaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import srsly
from spacy.schemas import ModelMetaSchema, validate

from spacy_tener.errors import RemedyError
from spacy_tener.workbench.report.card import CORPORA, DICTIONARIES, dictionaries_in, fill_meta, package_name

ROOT = Path(__file__).resolve().parents[3]
META: dict[str, Any] = {
    "lang": "zh",
    "name": "pipeline",
    "version": "0.0.0",
    "description": "",
    "license": "",
    "pipeline": ["tener_ner"],
    "performance": {"ents_f": 0.1, "tener_ner_loss": 5.0},
}
CONFIG: dict[str, Any] = {"nlp": {"tokenizer": {"segmenter": "char"}}, "components": {}}
SCORES = {
    "ents_p": 0.8,
    "ents_r": 0.5,
    "ents_f": 0.6154,
    "ents_per_type": {"PER": {"p": 0.8, "r": 0.5, "f": 0.6154}},
    "ents_counts": {"PER": {"tp": 8, "fp": 2, "fn": 8}},
    "token_acc": 1.0,
    "sents_f": None,
    "speed": 1000.0,
}


def filled(
    config: dict[str, Any] = CONFIG,
    meta: dict[str, Any] = META,
    corpus: dict[str, str] | None = CORPORA["weibo"],
    **chosen: str,
) -> dict[str, Any]:
    return fill_meta(meta, config, SCORES, corpus, chosen)


def test_scores_on_test_take_the_place_of_those_on_dev() -> None:
    names = ("ents_p", "ents_r", "ents_f", "ents_per_type", "speed")
    assert filled()["performance"] == {name: SCORES[name] for name in names}


def test_it_is_a_meta_that_spacy_accepts_and_the_old_one_is_untouched() -> None:
    before = srsly.json_dumps(META)
    assert validate(ModelMetaSchema, filled(name="weibo_tener", version="1.0.0", license="MIT", author="Me")) == []
    assert srsly.json_dumps(META) == before


def test_what_the_user_says_is_taken_and_else_what_is_there() -> None:
    meta = {**META, "license": "MIT", "author": "Someone", "description": "Mine."}
    found = filled(meta=meta, name="weibo_flat-atssa", version="2.1.0", author="Me")
    assert (found["name"], found["version"], found["author"]) == ("weibo_flat_atssa", "2.1.0", "Me")
    assert (found["license"], found["description"]) == ("MIT", "Mine.")
    assert (
        filled()["description"]
        == "Named entity recognition by tener_ner of spacy_tener, trained on Weibo NER, second release."
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("weibo_tener", "weibo_tener"),
        ("weibo_flat-atssa+flat-atssa-no-top-k", "weibo_flat_atssa_flat_atssa_no_top_k"),
        ("My Letters", "my_letters"),
        ("_x__y_", "x_y"),
    ],
)
def test_a_name_becomes_one_that_modules_and_wheels_can_have(name: str, expected: str) -> None:
    assert package_name(name) == expected
    assert package_name(expected) == expected
    assert f"zh_{expected}".isidentifier()


@pytest.mark.parametrize("name", ["", "微博", "2nd", "---"])
def test_a_name_that_leaves_nothing_is_refused(name: str) -> None:
    with pytest.raises(RemedyError, match="makes no name for a package"):
        package_name(name)


def test_the_language_is_not_in_the_name_twice() -> None:
    assert filled(name="zh_weibo")["name"] == "weibo"


@pytest.mark.parametrize("version", ["one", "1.0-x", ""])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(RemedyError, match="no version for a wheel"):
        filled(version=version)


@pytest.mark.parametrize(("version", "normal"), [("1.0.0-beta1", "1.0.0b1"), ("v1.0", "1.0"), ("01.0", "1.0")])
def test_a_version_that_the_wheels_name_would_change_is_refused(version: str, normal: str) -> None:
    with pytest.raises(RemedyError, match=normal):
        filled(version=version)
    assert filled(version=normal)["version"] == normal


def test_the_corpus_and_the_dictionaries_in_the_pipeline_are_its_sources() -> None:
    words = {"lexicon": {"@misc": "spacy_tener.JoinedLexicon.v1", "*": {"a": {"@misc": "spacy_tener.JiebaLexicon.v1"}}}}
    found = filled(config={**CONFIG, "components": {"tener_ner": {"model": {"tok2vec": {"words": words}}}}})["sources"]
    assert [source["name"] for source in found] == ["Weibo NER, second release", "jieba's dictionary"]
    assert found[1] == {
        "name": "jieba's dictionary",
        "url": "https://github.com/fxsjy/jieba",
        "license": "MIT",
        "author": "Sun Junyi",
    }
    assert filled(corpus=None)["sources"] == []


def test_a_dictionary_that_is_read_twice_is_named_once() -> None:
    lexicon = {"@misc": "spacy_tener.JiebaLexicon.v1"}
    assert [source["name"] for source in dictionaries_in({"a": lexicon, "b": {"c": lexicon}})] == ["jieba's dictionary"]


@pytest.mark.parametrize(
    ("segmenter", "needed"), [("char", []), ("jieba", ["jieba>=0.42.1"]), ("pkuseg", ["spacy-pkuseg>=0.0.27"])]
)
def test_a_segmenter_is_required_where_the_tokenizer_runs_it(segmenter: str, needed: list[str]) -> None:
    assert filled(config={**CONFIG, "nlp": {"tokenizer": {"segmenter": segmenter}}})["requirements"] == needed


def test_requirements_that_are_there_stay() -> None:
    config = {**CONFIG, "nlp": {"tokenizer": {"segmenter": "jieba"}}}
    assert filled(config, {**META, "requirements": ["numpy", "jieba>=0.42.1"]})["requirements"] == [
        "numpy",
        "jieba>=0.42.1",
    ]


def test_every_corpus_with_a_config_is_known_and_has_terms() -> None:
    assert set(CORPORA) == {path.stem for path in (ROOT / "configs").glob("*.cfg")}
    assert all(source["license"] and source["text"] for source in [*CORPORA.values(), *DICTIONARIES.values()])
