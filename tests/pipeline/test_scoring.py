"""Scores of character spans: equal to the scores of spaCy if tokens align, and exact otherwise."""

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
NO_SCORES = dict.fromkeys(("ents_p", "ents_r", "ents_f", "ents_per_type"))


def make_doc(words, entities=(), *, spaces=None, default="outside", missing=()):
    doc = Doc(VOCAB, words=words, spaces=spaces or [False] * len(words))
    doc.set_ents([Span(doc, *entity) for entity in entities], missing=[doc[a:b] for a, b in missing], default=default)
    return doc


def add_predictions(doc, *entities):
    """Add entities to a Doc, as a component with `view = "characters"` does."""
    add_entities(view_of(doc, "characters"), [UnitEntity(*entity) for entity in entities], CHARACTERS)
    return doc


def test_entity_inside_token_counts_as_correct():
    """The gold entity is 上海, in the token 上海市. Scores of tokens would count it as wrong."""
    gold = make_doc(list("去上海市"), [(1, 3, "GPE")])
    predicted = add_predictions(make_doc(["去", "上海市"], default="missing"), (1, 3, "GPE"))
    assert [ent.text for ent in predicted.ents] == ["上海市"]
    examples = [Example(predicted, gold)]
    assert get_ner_prf(examples)["ents_f"] == 0.0
    scores = score_char_entities(examples)
    assert (scores["ents_p"], scores["ents_r"], scores["ents_f"]) == (1.0, 1.0, 1.0)
    assert scores["ents_per_type"] == {"GPE": {"p": 1.0, "r": 1.0, "f": 1.0}}


def test_removed_or_replaced_entities_are_not_scored():
    gold = make_doc(list("去上海市"), [(1, 3, "GPE")])
    predicted = add_predictions(make_doc(["去", "上海市"], default="missing"), (1, 3, "GPE"))
    predicted.ents = [Span(predicted, 0, 1, label="GPE")]
    assert score_char_entities([Example(predicted, gold)])["ents_f"] == 0.0
    predicted.ents = []
    scores = score_char_entities([Example(predicted, gold)])
    assert (scores["ents_p"], scores["ents_r"]) == (0.0, 0.0)


def test_entities_in_shared_token_are_scored_separately():
    gold = make_doc(list("中日关系"), [(0, 1, "GPE"), (1, 2, "GPE")])
    predicted = make_doc(["中日", "关系"], default="missing")
    correct = add_predictions(predicted.copy(), (0, 1, "GPE"), (1, 2, "GPE"))
    assert score_char_entities([Example(correct, gold)])["ents_f"] == 1.0
    partly_correct = add_predictions(predicted.copy(), (0, 1, "GPE"), (1, 3, "GPE"))
    scores = score_char_entities([Example(partly_correct, gold)])
    assert (scores["ents_p"], scores["ents_r"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("entities", "gold"),
    [
        ([(0, 3, "PER"), (5, 7, "GPE")], make_doc(list("王小明去了上海"), [(0, 3, "PER"), (5, 7, "GPE")])),
        ([(0, 2, "PER"), (5, 7, "ORG")], make_doc(list("王小明去了上海"), [(0, 3, "PER"), (5, 7, "GPE")])),
        ([(0, 3, "PER")], make_doc(list("王小明去了上海"), [(5, 7, "GPE")], missing=[(0, 4)])),
        ([], make_doc(list("王小明去了上海"), [(5, 7, "GPE")])),
        ([(0, 3, "PER")], make_doc(list("王小明去了上海"))),
        ([(0, 3, "PER")], make_doc(list("王小明去了上海"), default="missing")),
        ([(2, 4, "PER"), (4, 6, "X")], make_doc(list("王小明去了上海"), [(4, 6, "X")], missing=[(2, 3)])),
    ],
)
def test_aligned_tokens_give_same_scores_as_spacy(entities, gold):
    examples = [Example(make_doc(list(gold.text), entities), gold), Example(make_doc(["京"]), make_doc(["京"]))]
    assert score_char_entities(examples) == get_ner_prf(examples)


def test_scores_ignore_differences_in_white_space():
    gold = make_doc(["去", "上海", "了"], [(1, 2, "GPE")])
    predicted = make_doc(["去", "上海", "了"], [(1, 2, "GPE")], spaces=[True, True, False])
    assert score_char_entities([Example(predicted, gold)])["ents_f"] == 1.0


def test_scores_without_annotation_are_none():
    assert score_char_entities([]) == NO_SCORES
    plain = make_doc(["上海"], [(0, 1, "GPE")])
    assert score_char_entities([Example(plain, Doc(VOCAB, words=["上海"]))]) == NO_SCORES


def test_character_view_uses_char_scorer_by_default(blank, jieba_nlp, learned, sentences, make_examples):
    assert blank(scorer={"@scorers": "spacy_tener.char_ner_scorer.v1"}).get_pipe("tener_ner").scorer
    assert blank(view="characters", scorer=None).get_pipe("tener_ner").scorer is None
    nlp = learned(view="characters", chars_key="exact")
    gold = make_doc(list("王小明去了上海"), [(0, 3, "PER"), (5, 7, "GPE")])
    predicted = make_doc(["王小", "明去", "了", "上海"], default="missing")
    nlp.get_pipe("tener_ner")(predicted)
    assert predicted.ents[0].text == "王小明去"
    scores = nlp.get_pipe("tener_ner").score([Example(predicted, gold)])
    assert scores["ents_f"] == 1.0
