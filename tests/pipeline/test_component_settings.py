"""Settings changed in `cfg` are refused as the factory refuses them."""

import pytest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("view", "words"),
        ("view", None),
        ("alignment_mode", "loose"),
        ("window", "200"),
        ("window", 80),
        ("overlap", 0),
        ("max_units", 199),
        ("spans_key", 5),
        ("threshold", "0.5"),
        ("threshold", None),
        ("threshold", 1.5),
        ("threshold", {"PER": "high"}),
        ("treshold", 0.5),
    ],
)
def test_what_the_factory_refuses_is_refused_in_cfg(learned, blank, name, value):
    nlp = learned()
    nlp.get_pipe("tener_ner").cfg[name] = value
    with pytest.raises(ValueError, match=name):
        nlp("王小明去了上海")
    with pytest.raises(ValueError, match=name):
        blank(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 81), ("max_units", 200), ("threshold", 1), ("threshold", {"PER": 0}), ("spans_key", "")],
)
def test_what_the_factory_takes_is_taken_in_cfg(learned, blank, name, value):
    nlp = learned()
    nlp.get_pipe("tener_ner").cfg[name] = value
    assert len(nlp("王小明去了上海").ents) in (0, 2)
    blank(**{name: value})
