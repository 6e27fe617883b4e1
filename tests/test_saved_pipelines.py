"""Pipelines saved by earlier versions load, predict what they predicted, and can be trained further."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.training import Example

from spacy_tener.features.lexicon import lexicon

SAVED = Path(__file__).parent / "data" / "saved-0.1"
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf8"))


@pytest.fixture(scope="module", params=EXPECTED)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def directory(kind, tmp_path_factory):
    path = tmp_path_factory.mktemp(kind)
    with zipfile.ZipFile(SAVED / f"{kind}.zip") as archive:
        archive.extractall(path)
    return path


def assert_predicts(nlp, expected):
    model = nlp.get_pipe("tener_ner").model
    for text, emissions in zip(expected, model.predict([nlp.make_doc(text["text"]) for text in expected]), strict=True):
        np.testing.assert_allclose(emissions.sum(axis=1), text["emissions"], rtol=1e-3, atol=1e-3)
        found = [[ent.start_char, ent.end_char, ent.label_] for ent in nlp(text["text"]).ents]
        assert found == text["ents"]


def test_every_architecture_has_one():
    assert set(EXPECTED) == {"tener", "flat", "flat-atssa", "grn", "characters"}
    assert all(any(text["ents"] for text in texts) for texts in EXPECTED.values())


def test_it_predicts_what_it_predicted(kind, directory):
    assert_predicts(spacy.load(directory), EXPECTED[kind])


def test_the_first_text_builds_no_automaton_so_that_forked_workers_share_it(directory, monkeypatch):
    nlp = spacy.load(directory)
    monkeypatch.setattr(lexicon, "AhoCorasick", None)
    assert nlp("王小明去了上海。")


def test_it_predicts_the_same_after_a_round_trip_through_bytes(kind, directory):
    nlp = spacy.load(directory)
    copy = spacy.blank(nlp.lang, config=nlp.config).from_bytes(nlp.to_bytes())
    assert_predicts(copy, EXPECTED[kind])


def test_its_training_goes_on(directory, kind):
    nlp = spacy.load(directory)
    pipe = nlp.get_pipe("tener_ner")
    before = pipe.model.to_bytes()
    examples = [Example.from_dict(nlp.make_doc(t["text"]), {"entities": t["ents"]}) for t in EXPECTED[kind]]
    losses = nlp.update(examples, sgd=nlp.resume_training(), losses={})
    assert np.isfinite(losses["tener_ner"])
    assert pipe.model.to_bytes() != before


def test_settings_of_the_config_are_those_of_the_component(directory, kind):
    settings = spacy.load(directory).get_pipe("tener_ner").settings
    expected = ("characters", 60, 10) if kind == "characters" else ("tokens", 200, 40)
    assert (settings.view, settings.window, settings.overlap) == expected
