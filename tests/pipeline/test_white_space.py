"""No entity begins or ends with white space, an emoji, a control character or within a Latin word, or spans lines,
whatever the weights are and however the text is cut into tokens."""

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

SPACE = " \n\t\r\u3000\u00a0\x1f\u2028"
ORNAMENTS = "😀❤⭐⏰▶㊗\ufe0f\u200b\u200d\u200e\u202d\u202c\xad\x00"
texts = st.text(st.sampled_from("王小明京上海。1aÉｂ" + SPACE * 2 + ORNAMENTS), max_size=24)


@st.composite
def segmentations(draw):
    """A text as words of up to four characters, some followed by a space."""
    text, words, spaces = draw(texts), [], []
    start = 0
    while start < len(text):
        end = start + draw(st.integers(1, 4))
        words.append(text[start:end])
        spaces.append(draw(st.booleans()))
        start = end
    return words, spaces


@pytest.fixture(scope="module")
def pipes():
    return {}


@pytest.fixture
def wild(pipes, blank, make_examples, torch_parameters):
    """Makes a component that sees entities everywhere, of random weights."""

    def make(view, alignment="expand"):
        if (view, alignment) not in pipes:
            nlp = blank(view=view, alignment_mode=alignment)
            nlp.initialize(lambda: make_examples(nlp))
            torch.manual_seed(1)
            with torch.no_grad():
                for name, weights in torch_parameters(nlp.get_pipe("tener_ner")).items():
                    weights.normal_(std=0.0 if "crf" in name else 1.0)
            pipes[view, alignment] = nlp
        return pipes[view, alignment]

    return make


def check(text, start, end):
    entity = text[start:end]
    assert not any(re.fullmatch("[aÉｂ]{2}", text[edge - 1 : edge + 1]) for edge in (start, end) if edge)
    assert entity.strip() == entity.strip(ORNAMENTS) == entity != ""
    assert len(entity.splitlines()) == 1


hypothesis_settings = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@hypothesis_settings
@given(text=texts)
def test_in_the_token_view(wild, text):
    for ent in wild("tokens")(text).ents:
        check(text, ent.start_char, ent.end_char)


@pytest.mark.parametrize("alignment", ["expand", "contract", "strict"])
@hypothesis_settings
@given(segmentation=segmentations())
def test_in_the_character_view(wild, alignment, segmentation, char_entities_of):
    nlp = wild("characters", alignment)
    words, spaces = segmentation
    doc = nlp.get_pipe("tener_ner")(Doc(nlp.vocab, words=words, spaces=spaces))
    for start, end, _ in char_entities_of(doc):
        check(doc.text, start, end)
    for ent in doc.ents:
        assert not ent[0].is_space
        assert not ent[-1].is_space


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("text", ["😀王小明去了上海", "王\n小明去了上海"])
def test_entities_like_those_of_training_are_found(blank, learn, view, text):
    """A label's entities may have what some of them have in training; those of other labels may not."""
    nlp = blank(view=view)
    doc = nlp.make_doc(text)
    examples = [Example.from_dict(doc, {"entities": [(0, 4, "PER"), (6, 8, "GPE")]})]
    learn(nlp, examples)
    assert [(ent.text, ent.label_) for ent in nlp(text).ents] == [(text[:4], "PER"), ("上海", "GPE")]
    again = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
    assert [ent.text for ent in again(text).ents] == [text[:4], "上海"]
    nlp.initialize(lambda: examples)
    pipe = nlp.get_pipe("tener_ner")
    get_loss(pipe, examples, [np.zeros((len(text), pipe.model.get_dim("nO")), np.float32)])  # learns nothing
    assert pipe.cfg.keys().isdisjoint({"labels_over_lines", "labels_with_ornaments"})


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_entities_within_latin_words_are_found_if_training_has_more_than_a_few(blank, learn, view):
    nlp = blank(view=view)
    pipe = nlp.get_pipe("tener_ner")
    cut = Example.from_dict(nlp.make_doc("买了iPhone"), {"entities": [(2, 6, "A")]})
    whole = Example.from_dict(nlp.make_doc("Huawei买了"), {"entities": [(0, 6, "B")]})
    learn(nlp, [cut, whole])
    counts = pipe.cfg["latin_edges"]
    assert counts["A"][0] == counts["A"][1]
    assert counts["B"][0] == 0
    assert [(ent.text, ent.label_) for ent in nlp("买了iPhone").ents] == [("iPho", "A")]
    assert nlp("买了iPhoneX").ents != ()
    counts["A"] = [1, 9]
    assert "iPho" not in [ent.text for ent in nlp("买了iPhone").ents]
    again = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
    assert again.get_pipe("tener_ner").cfg["latin_edges"] == counts


def test_the_wild_weights_do_find_entities(wild, char_entities_of):
    """Otherwise nothing above would be tested."""
    assert len(wild("tokens")("王小明 京 上海\n王小明 ab a").ents) > 1
    assert len(char_entities_of(wild("characters")("ab 王小明\n\n京 上海"))) > 1
