"""Entities do not start or end with white space, an emoji, a control character or inside a Latin word, and do not
contain line breaks, for any weights and any tokenization."""

import re

import numpy as np
import pytest
import spacy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from losses import get_loss
from spacy.tokens import Doc
from spacy.training import Example

WHITE_SPACE = " \n\t\r\u3000\u00a0\x1f\u2028"
ORNAMENTS = "😀❤⭐⏰▶㊗\ufe0f\u200b\u200d\u200e\u202d\u202c\xad\x00"
texts = st.text(st.sampled_from("王小明京上海。1aÉｂ" + WHITE_SPACE * 2 + ORNAMENTS), max_size=24)


@st.composite
def segmentations(draw):
    """Generate words of up to four characters, some of them followed by a space."""
    text, words, spaces = draw(texts), [], []
    start = 0
    while start < len(text):
        end = start + draw(st.integers(1, 4))
        words.append(text[start:end])
        spaces.append(draw(st.booleans()))
        start = end
    return words, spaces


@pytest.fixture(scope="module")
def cache():
    return {}


@pytest.fixture
def random_pipeline(cache, blank, make_examples, torch_parameters):
    """Create a pipeline with random weights, which predicts many entities."""

    def make(view, alignment="expand"):
        if (view, alignment) not in cache:
            nlp = blank(view=view, alignment_mode=alignment)
            nlp.initialize(lambda: make_examples(nlp))
            torch.manual_seed(1)
            with torch.no_grad():
                for name, weights in torch_parameters(nlp.get_pipe("tener_ner")).items():
                    weights.normal_(std=0.0 if "crf" in name else 1.0)
            cache[view, alignment] = nlp
        return cache[view, alignment]

    return make


def check_boundaries(text, start, end):
    entity = text[start:end]
    assert not any(re.fullmatch("[aÉｂ]{2}", text[edge - 1 : edge + 1]) for edge in (start, end) if edge)
    assert entity.strip() == entity.strip(ORNAMENTS) == entity != ""
    assert len(entity.splitlines()) == 1


hypothesis_settings = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@hypothesis_settings
@given(text=texts)
def test_token_view_entities_have_valid_boundaries(random_pipeline, text):
    for ent in random_pipeline("tokens")(text).ents:
        check_boundaries(text, ent.start_char, ent.end_char)


@pytest.mark.parametrize("alignment", ["expand", "contract", "strict"])
@hypothesis_settings
@given(segmentation=segmentations())
def test_character_view_entities_have_valid_boundaries(random_pipeline, alignment, segmentation, char_entities_of):
    nlp = random_pipeline("characters", alignment)
    words, spaces = segmentation
    doc = nlp.get_pipe("tener_ner")(Doc(nlp.vocab, words=words, spaces=spaces))
    for start, end, _ in char_entities_of(doc):
        check_boundaries(doc.text, start, end)
    for ent in doc.ents:
        assert not ent[0].is_space
        assert not ent[-1].is_space


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("text", ["😀王小明去了上海", "王\n小明去了上海"])
def test_boundaries_in_training_data_are_allowed(blank, learn, view, text):
    """Symbols or line breaks are allowed only in entities whose label has such entities in the training data."""
    nlp = blank(view=view)
    doc = nlp.make_doc(text)
    examples = [Example.from_dict(doc, {"entities": [(0, 4, "PER"), (6, 8, "GPE")]})]
    learn(nlp, examples)
    assert [(ent.text, ent.label_) for ent in nlp(text).ents] == [(text[:4], "PER"), ("上海", "GPE")]
    copy = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
    assert [ent.text for ent in copy(text).ents] == [text[:4], "上海"]
    nlp.initialize(lambda: examples)
    pipe = nlp.get_pipe("tener_ner")
    get_loss(
        pipe, examples, [np.zeros((len(text), pipe.model.get_dim("nO")), np.float32)]
    )  # computes a loss without training
    assert pipe.cfg.keys().isdisjoint({"labels_over_lines", "labels_with_ornaments"})


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_latin_word_splits_require_several_training_examples(blank, learn, view):
    nlp = blank(view=view)
    pipe = nlp.get_pipe("tener_ner")
    split_word = Example.from_dict(nlp.make_doc("买了iPhone"), {"entities": [(2, 6, "A")]})
    complete_word = Example.from_dict(nlp.make_doc("Huawei买了"), {"entities": [(0, 6, "B")]})
    learn(nlp, [split_word, complete_word])
    counts = pipe.cfg["latin_edges"]
    assert counts["A"][0] == counts["A"][1]
    assert counts["B"][0] == 0
    assert [(ent.text, ent.label_) for ent in nlp("买了iPhone").ents] == [("iPho", "A")]
    assert nlp("买了iPhoneX").ents != ()
    counts["A"] = [1, 9]
    assert "iPho" not in [ent.text for ent in nlp("买了iPhone").ents]
    copy = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
    assert copy.get_pipe("tener_ner").cfg["latin_edges"] == counts


def test_random_weights_predict_entities(random_pipeline, char_entities_of):
    """Check that the tests above compare some entities."""
    assert len(random_pipeline("tokens")("王小明 京 上海\n王小明 ab a").ents) > 1
    assert len(char_entities_of(random_pipeline("characters")("ab 王小明\n\n京 上海"))) > 1
