"""Scores over characters: those of spaCy where tokens agree, and exact where they do not."""

import pytest
import spacy
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_tener.pipeline.entities import UnitEntity, add_entities
from spacy_tener.pipeline.scoring import score_char_entities
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.units import view_of

CHARACTERS = NERSettings(view="characters")
VOCAB = spacy.blank("zh").vocab
NOTHING = dict.fromkeys(("ents_p", "ents_r", "ents_f", "ents_per_type"))


def make(words, entities=(), *, spaces=None, default="outside", missing=()):
    doc = Doc(VOCAB, words=words, spaces=spaces or [False] * len(words))
    doc.set_ents([Span(doc, *entity) for entity in entities], missing=[doc[a:b] for a, b in missing], default=default)
    return doc


def with_found(doc, *entities):
    """Add entities to a Doc as a component does that reads characters."""
    add_entities(view_of(doc, "characters"), [UnitEntity(*entity) for entity in entities], CHARACTERS)
    return doc


def test_an_entity_inside_a_token_is_right():
    """The gold entity 上海 in the token 上海市: by its tokens it would be wrong."""
    gold = make(list("去上海市"), [(1, 3, "GPE")])
    predicted = with_found(make(["去", "上海市"], default="missing"), (1, 3, "GPE"))
    assert [ent.text for ent in predicted.ents] == ["上海市"]
    examples = [Example(predicted, gold)]
    assert get_ner_prf(examples)["ents_f"] == 0.0
    scores = score_char_entities(examples)
    assert (scores["ents_p"], scores["ents_r"], scores["ents_f"]) == (1.0, 1.0, 1.0)
    assert scores["ents_per_type"] == {"GPE": {"p": 1.0, "r": 1.0, "f": 1.0}}


def test_entities_that_a_later_component_removes_or_replaces_are_not_scored():
    gold = make(list("去上海市"), [(1, 3, "GPE")])
    predicted = with_found(make(["去", "上海市"], default="missing"), (1, 3, "GPE"))
    predicted.ents = [Span(predicted, 0, 1, label="GPE")]
    assert score_char_entities([Example(predicted, gold)])["ents_f"] == 0.0
    predicted.ents = []
    scores = score_char_entities([Example(predicted, gold)])
    assert (scores["ents_p"], scores["ents_r"]) == (0.0, 0.0)


def test_two_entities_in_one_token_count_twice():
    gold = make(list("中日关系"), [(0, 1, "GPE"), (1, 2, "GPE")])
    predicted = make(["中日", "关系"], default="missing")
    right = with_found(predicted.copy(), (0, 1, "GPE"), (1, 2, "GPE"))
    assert score_char_entities([Example(right, gold)])["ents_f"] == 1.0
    half_right = with_found(predicted.copy(), (0, 1, "GPE"), (1, 3, "GPE"))
    scores = score_char_entities([Example(half_right, gold)])
    assert (scores["ents_p"], scores["ents_r"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("entities", "gold"),
    [
        ([(0, 3, "PER"), (5, 7, "GPE")], make(list("王小明去了上海"), [(0, 3, "PER"), (5, 7, "GPE")])),
        ([(0, 2, "PER"), (5, 7, "ORG")], make(list("王小明去了上海"), [(0, 3, "PER"), (5, 7, "GPE")])),
        ([(0, 3, "PER")], make(list("王小明去了上海"), [(5, 7, "GPE")], missing=[(0, 4)])),
        ([], make(list("王小明去了上海"), [(5, 7, "GPE")])),
        ([(0, 3, "PER")], make(list("王小明去了上海"))),
        ([(0, 3, "PER")], make(list("王小明去了上海"), default="missing")),
        ([(2, 4, "PER"), (4, 6, "X")], make(list("王小明去了上海"), [(4, 6, "X")], missing=[(2, 3)])),
    ],
)
def test_where_tokens_agree_scores_are_those_of_spacy(entities, gold):
    examples = [Example(make(list(gold.text), entities), gold), Example(make(["京"]), make(["京"]))]
    assert score_char_entities(examples) == get_ner_prf(examples)


def test_texts_that_differ_in_white_space_are_compared_by_what_is_not():
    gold = make(["去", "上海", "了"], [(1, 2, "GPE")])
    predicted = make(["去", "上海", "了"], [(1, 2, "GPE")], spaces=[True, True, False])
    assert score_char_entities([Example(predicted, gold)])["ents_f"] == 1.0


def test_without_annotation_there_are_no_scores():
    assert score_char_entities([]) == NOTHING
    plain = make(["上海"], [(0, 1, "GPE")])
    assert score_char_entities([Example(plain, Doc(VOCAB, words=["上海"]))]) == NOTHING


def test_it_is_the_default_of_the_view_of_characters(blank, jieba_nlp, learned, sentences, make_examples):
    assert blank(scorer={"@scorers": "spacy_tener.char_ner_scorer.v1"}).get_pipe("tener_ner").scorer
    assert blank(view="characters", scorer=None).get_pipe("tener_ner").scorer is None
    nlp = learned(view="characters", chars_key="exact")
    gold = make(list("王小明去了上海"), [(0, 3, "PER"), (5, 7, "GPE")])
    predicted = make(["王小", "明去", "了", "上海"], default="missing")
    nlp.get_pipe("tener_ner")(predicted)
    assert predicted.ents[0].text == "王小明去"
    scores = nlp.get_pipe("tener_ner").score([Example(predicted, gold)])
    assert scores["ents_f"] == 1.0
