"""No entity starts or ends in white space, whatever the weights are and however the text is cut into tokens."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc

SPACE = " \n\t\r\u3000\u00a0\x1f"
texts = st.text(st.sampled_from("王小明京上海。ab" + SPACE * 2), max_size=24)


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


hypothesis_settings = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@hypothesis_settings
@given(text=texts)
def test_in_the_token_view(wild, text):
    for ent in wild("tokens")(text).ents:
        assert not ent[0].is_space
        assert not ent[-1].is_space


@pytest.mark.parametrize("alignment", ["expand", "contract", "strict"])
@hypothesis_settings
@given(segmentation=segmentations())
def test_in_the_character_view(wild, alignment, segmentation, char_entities_of):
    nlp = wild("characters", alignment)
    words, spaces = segmentation
    doc = nlp.get_pipe("tener_ner")(Doc(nlp.vocab, words=words, spaces=spaces))
    for start, end, _ in char_entities_of(doc):
        assert doc.text[start:end].strip() == doc.text[start:end] != ""
    for ent in doc.ents:
        assert not ent[0].is_space
        assert not ent[-1].is_space


def test_the_wild_weights_do_find_entities(wild, char_entities_of):
    """Otherwise nothing above would be tested."""
    assert len(wild("tokens")("王小明 京 上海\n王小明").ents) > 1
    assert len(char_entities_of(wild("characters")("ab 王小明\n\n京 上海"))) > 1
