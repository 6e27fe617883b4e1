"""Settings and learned values in `cfg`: validation as in the factory, defaults, and renamed labels."""

import pytest

from spacy_tener.pipeline.settings import LearnedValues, NERSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"view": "words"}, "view"),
        ({"view": None}, "view"),
        ({"alignment_mode": "loose"}, "alignment_mode"),
        ({"window": "200"}, "window"),
        ({"window": 100, "overlap": 50}, r"window must be greater than twice the overlap \(50\); got 100"),
        ({"window": 0}, "window must be greater than 0; got 0"),
        ({"overlap": 0}, "overlap must be greater than 0; got 0"),
        ({"window": 600, "max_units": 599}, r"max_units must be at least as large as window \(600\); got 599"),
        ({"spans_key": 5}, "spans_key"),
        ({"threshold": "0.5"}, "threshold"),
        ({"threshold": None}, "threshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"threshold": {"PER": "high"}}, "threshold"),
        ({"threshold": {"PER": -0.1}}, "threshold.*-0.1"),
        ({"spans_key": "same", "chars_key": "same"}, "spans_key.*chars_key.*same"),
        ({"treshold": 0.5}, "treshold"),
    ],
)
def test_invalid_setting_in_cfg_raises_error(learned, blank, settings, message):
    nlp = learned()
    nlp.get_pipe("tener_ner").cfg.update(settings)
    with pytest.raises(ValueError, match=message):
        nlp("王小明去了上海")
    with pytest.raises(ValueError, match=message):
        blank(**settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 81), ("max_units", 200), ("threshold", 1), ("threshold", {"PER": 0}), ("spans_key", "")],
)
def test_valid_setting_in_cfg_is_accepted(learned, blank, name, value):
    nlp = learned()
    nlp.get_pipe("tener_ner").cfg[name] = value
    assert len(nlp("王小明去了上海").ents) in (0, 2)
    blank(**{name: value})


def test_settings_are_validated_again_only_if_changed(blank):
    pipe = blank().get_pipe("tener_ner")
    settings = pipe.settings
    pipe.cfg["latin_edges"] = {"PER": [1, 2]}
    pipe.cfg["labels"].append("PER")
    assert pipe.settings is settings
    pipe.cfg["threshold"] = 0.5
    assert pipe.settings.threshold == 0.5


LEARNED = {
    "token_length": 1.5,
    "text_length": 57,
    "text_sentences": 7,
    "labels_over_lines": ["PER"],
    "labels_with_ornaments": ["PER", "ORG"],
    "latin_edges": {"PER": [9, 1], "ORG": [1, 99]},
    "temperature": 1.5,
}


def test_cfg_stores_labels_settings_and_learned_values():
    cfg = {"labels": ["ORG", "PER"], "spans_key": "sc", "threshold": {"PER": 0.5}, **LEARNED}
    settings, learned = NERSettings.from_cfg(cfg), LearnedValues.from_cfg(cfg)
    assert settings.to_cfg() == NERSettings(spans_key="sc", threshold={"PER": 0.5}).to_cfg()
    assert learned.to_cfg() == LEARNED
    assert settings.prediction_window == 57
    assert settings.prediction_sentences == 7
    assert learned.labels_within_words == ["PER"]


def test_missing_learned_values_have_defaults():
    """In pipelines that were saved by older versions, new values are missing or None."""
    assert LearnedValues.from_cfg({"labels": [], "token_length": None}).to_cfg() == {}
    assert NERSettings.from_cfg({"labels": []}) == NERSettings()


def test_labels_are_renamed_in_all_learned_values():
    renamed = LearnedValues.from_cfg(LEARNED).rename({"PER": "NAME"})
    assert renamed.to_cfg() == {
        **LEARNED,
        "labels_over_lines": ["NAME"],
        "labels_with_ornaments": ["NAME", "ORG"],
        "latin_edges": {"NAME": [9, 1], "ORG": [1, 99]},
    }


@pytest.mark.parametrize(("name", "value"), [("text_length", "long"), ("latin_edges", [1, 2]), ("token_length", "one")])
def test_learned_value_of_wrong_type_raises_error(learned, name, value):
    pipe = learned().get_pipe("tener_ner")
    pipe.cfg[name] = value
    with pytest.raises(ValueError, match=f"tener_ner.*{name}"):
        pipe.from_bytes(pipe.to_bytes())
