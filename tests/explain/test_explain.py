"""Test explanations of entities: probabilities, alternatives and attributions."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import spacy
from small_systems import learn, pipeline
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy_parts import spacy_s_cnn

import spacy_tener
from spacy_tener.errors import UserError
from spacy_tener.explain import explain
from spacy_tener.explain.explaining import UNKNOWN_CHARACTER

TEXT = "吴重阳在中国银行工作。"


def log_odds(p):
    return math.log(p / (1 - p))


def test_text_can_exceed_max_length(learned, monkeypatch):
    nlp = learned()
    monkeypatch.setattr(nlp, "max_length", 5)
    assert len(explain(nlp, TEXT, attribution=False).texts[0].entities) == 2


def test_explanation_equals_decoding(learned):
    nlp = learned()
    ner, doc = nlp.get_pipe("tener_ner"), nlp.make_doc(TEXT)
    (text,) = explain(nlp, TEXT, alternatives=2, k_best=3).texts
    decoding = next(ner.decode([doc]))
    assert [(e.start, e.end, e.label) for e in text.entities] == [(0, 3, "PER"), (4, 8, "ORG")]
    assert [e.probability for e in text.entities] == [e.probability for e in decoding.entities]
    assert [e.alternatives for e in text.entities] == decoding.alternatives(2)
    assert text.k_best == decoding.k_best(3)
    assert text.entropy == decoding.entropy
    found = {(e.start, e.end, e.label) for e in text.entities}
    # Entities of other label sequences with a probability of at least 2 %.
    possible = [e for sequence in text.k_best for e in sequence.entities if e.probability >= 0.02]
    assert {(e.start, e.end, e.label) for e in text.possible} == {(e.start, e.end, e.label) for e in possible} - found


def test_possible_entity_has_overlapping_alternatives(train):
    nlp = train(steps=20)
    nlp.get_pipe("tener_ner").cfg["temperature"] = 8.0
    (text,) = explain(nlp, TEXT, k_best=50, attribution=False).texts
    entities = [*text.entities, *text.possible]
    touching = 0
    for entity in text.possible:
        characters = {*range(entity.start, entity.end)}
        expected = [e.offsets for e in entities if e is not entity and characters & {*range(e.start, e.end)}]
        assert [alternative.offsets for alternative in entity.alternatives] == expected
        touching += sum(e.start == entity.end for e in entities)
    assert touching


def of_characters(nlp, text):
    return Doc(nlp.vocab, words=list(text), spaces=[False] * len(text))


@pytest.mark.parametrize(
    ("view", "words"), [("tokens", list("王小明去了上海 很好")), ("characters", ["王小明", "去了上海 很", "好"])]
)
def test_attribution_is_drop_of_log_odds(view, words, train):
    nlp = train(view=view, steps=20)
    ner = nlp.get_pipe("tener_ner")
    (text,) = explain(nlp, Doc(nlp.vocab, words=words, spaces=[False] * len(words))).texts
    entity = next(entity for entity in text.entities if entity.label == "GPE")
    assert [unit.start for unit in entity.attributions] == [0, 1, 2, 3, 4, 5, 6, 8, 9]  # 7 is white space
    for unit in entity.attributions:
        masked = of_characters(nlp, text.text[: unit.start] + UNKNOWN_CHARACTER + text.text[unit.end :])
        (probability,) = next(ner.decode([masked])).probabilities([(entity.start, entity.end, "GPE")])
        assert unit.drop == pytest.approx(log_odds(entity.probability) - log_odds(probability), abs=1e-3)
    strongest = max(entity.attributions, key=lambda unit: unit.drop)
    assert text.text[strongest.start] in "上海"


def test_shared_component_encodes_masked_text(make_examples, sentences, entities_of):
    nlp = pipeline({"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"})
    nlp.add_pipe("tok2vec", config={"model": spacy_s_cnn()}, first=True)
    learn(nlp, make_examples(nlp), steps=30)
    found = explain(nlp, "王小明去了上海")
    (text,) = found.texts
    person = text.entities[0]
    masked = of_characters(nlp, "王小" + UNKNOWN_CHARACTER + "去了上海")
    (probability,) = next(nlp.get_pipe("tener_ner").decode([nlp.get_pipe("tok2vec")(masked)])).probabilities(
        [(0, 3, "PER")]
    )
    assert person.attributions[2].drop == pytest.approx(log_odds(person.probability) - log_odds(probability), abs=1e-3)
    assert "A masked unit is encoded as a word that did not occur in training." in found.notes
    assert any("no lexicon" in note for note in found.notes)
    translations = (Path(spacy_tener.__file__).parent / "pages" / "strings.js").read_text(encoding="utf8")
    assert all(f'"{note}": "' in translations for note in found.notes)


def test_lexicon_words_have_offsets_and_known_flag(learned):
    (text,) = explain(learned("MECT"), "吴重阳去上海银行", attribution=False).texts
    assert [(word.text, word.start, word.end) for word in text.words] == [("上海", 4, 6), ("银行", 6, 8)]
    assert all(word.known for word in text.words)


def test_words_of_word_lists_are_included(learned):
    nlp = learned("MECT")
    words = nlp.get_pipe("tener_ner").lexicon
    words.remove(["上海"])
    words.add(["上海银行"])
    try:
        (text,) = explain(nlp, "吴重阳去上海银行").texts
        assert [(word.text, word.start, word.end, word.known) for word in text.words] == [
            ("上海银行", 4, 8, True),
            ("银行", 6, 8, True),
        ]
    finally:
        words.clear()


def test_long_text_masks_units_near_entities(learned):
    """Twelve sentences in windows of 40 characters. Only units within 20 characters of an entity are masked."""
    (text,) = explain(learned(), TEXT * 12).texts
    assert len(text.entities) > 12
    assert {entity.start - entity.attributions[0].start for entity in text.entities} >= {0, 20}
    assert max(entity.start - entity.attributions[0].start for entity in text.entities) == 20
    assert max(entity.attributions[-1].end - entity.end for entity in text.entities) == 20
    for entity in text.entities:
        starts = [unit.start for unit in entity.attributions]
        assert starts == [*range(starts[0], starts[-1] + 1)]
        strongest = max(entity.attributions, key=lambda unit: unit.drop)
        assert entity.start - 1 <= strongest.start <= entity.end


def test_lexicon_words_of_long_text_are_unique(learned):
    """Twelve sentences in windows of 40 characters. Words in the overlap of 10 characters are not repeated."""
    (sentence,) = explain(learned("FLAT"), TEXT, attribution=False).texts
    (text,) = explain(learned("FLAT"), TEXT * 12, attribution=False).texts
    places = [(word.start, word.end) for word in sentence.words]
    assert len(places) == 4
    shifts = [len(TEXT) * number for number in range(12)]
    found = [(word.start, word.end) for word in text.words]
    assert sorted(found) == sorted((start + by, end + by) for by in shifts for start, end in places)
    assert all(text.text[word.start : word.end] == word.text for word in text.words)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "京"])
def test_short_and_empty_texts_are_supported(text, learned):
    (explained,) = explain(learned(), text).texts
    assert explained.text == text
    assert '<p id="text" class="line" lang="zh">' in explain(learned(), text).to_html()


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("label", ["GPE", "STRANGE"])
def test_existing_entities_have_no_attributions(learned, view, label):
    nlp = spacy.blank("zh", config=learned().config).from_bytes(learned().to_bytes())
    nlp.get_pipe("tener_ner").cfg["view"] = view
    doc = Doc(nlp.vocab, words=[TEXT[:2], *TEXT[2:]], spaces=[False] * (len(TEXT) - 1))
    doc.ents = [Span(doc, 0, 2, label=label)]
    (explained,) = explain(nlp, doc).texts
    first, second = explained.entities
    assert (first.offsets, first.probability, first.is_existing, first.is_in_output) == ((0, 3, label), 1.0, True, True)
    assert (first.attributions, first.alternatives) == ([], [])
    assert (second.offsets, second.is_existing) == ((4, 8, "ORG"), False)
    assert second.attributions
    assert [ent.label_ for ent in doc.ents] == [label]


def test_predicted_entities_of_example_are_ignored(learned):
    nlp = learned()
    doc = nlp.make_doc(TEXT)
    doc.ents = [doc.char_span(4, 6, label="GPE")]
    assert explain(nlp, Example(doc, doc)).texts[0].entities == explain(nlp, TEXT).texts[0].entities


def test_example_adds_gold_entities(learned):
    nlp = learned()
    example = Example.from_dict(nlp.make_doc(TEXT), {"entities": [(4, 6, "GPE")]})
    (text,) = explain(nlp, example, attribution=False).texts
    assert text.gold == [(4, 6, "GPE")]
    assert explain(nlp, TEXT, attribution=False).texts[0].gold is None


def test_to_json_equals_to_dict(learned):
    found = explain(learned("MECT"), [TEXT, "王小明去了上海"])
    data = json.loads(found.to_json())
    assert data == found.to_dict()
    assert data["labels"] == ["GPE", "ORG", "PER"]
    entity = data["texts"][0]["entities"][0]
    assert {
        "start",
        "end",
        "label",
        "probability",
        "alternatives",
        "attributions",
        "is_in_output",
        "is_existing",
        "outside",
    } == set(entity)
    assert data["texts"][0]["words"][0]["text"] == "中国"


def test_pipeline_without_tener_ner_raises_error(learned):
    with pytest.raises(UserError, match=r"no tener_ner.*components are: none"):
        explain(spacy.blank("zh"), TEXT)
    with pytest.raises(UserError, match="no tener_ner named 'other'"):
        explain(learned(), TEXT, name="other")


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_entities_not_in_output_are_marked(learned, view):
    """Entities can be removed by a threshold or by a later component. Existing entities remain in the output."""
    nlp = spacy.blank("zh", config=learned().config).from_bytes(learned().to_bytes())
    cfg = nlp.get_pipe("tener_ner").cfg
    cfg["view"] = view
    entity = {"pattern": "中国", "label": "PLACE"}

    def check(text, *are_in_output):
        (explained,) = explain(nlp, text, attribution=False).texts
        doc = nlp(text if isinstance(text, str) else text.copy())
        ents = {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}
        assert [entity.is_in_output for entity in explained.entities] == list(are_in_output)
        for entity in (*explained.entities, *explained.possible):
            assert entity.is_in_output == (entity.offsets in ents)

    check(TEXT, True, True)
    doc = nlp.make_doc(TEXT)
    doc.ents = [doc.char_span(0, 2, "GPE")]
    check(doc, True, True)
    nlp.add_pipe("entity_ruler", before="tener_ner").add_patterns([entity])
    check(TEXT, True, True, True)
    nlp.disable_pipe("entity_ruler")
    nlp.add_pipe("entity_ruler", name="after", config={"overwrite_ents": True}).add_patterns([entity])
    check(TEXT, True, False)
    nlp.disable_pipe("after")
    cfg["threshold"] = {"PER": 1.0}
    check(TEXT, False, True)


def test_missed_entity_is_explained(learned):
    nlp = learned()
    ner, text = nlp.get_pipe("tener_ner"), "王小明去了上海银行"
    reference = nlp.make_doc(text)
    gold = [(0, 2, "PER"), (3, 5, "GPE"), (7, 9, "FOOD")]
    reference.set_ents([reference.char_span(*entity) for entity in gold], default="outside")
    (explained,) = explain(nlp, Example(nlp.make_doc(text), reference), k_best=1).texts
    decoding = next(ner.decode([nlp.make_doc(text)]))
    missed = {entity.label: entity for entity in explained.missed}
    assert [entity.offsets for entity in explained.missed] == gold == explained.gold
    for entity, probability in zip(explained.missed, decoding.probabilities(gold), strict=True):
        assert entity.probability == pytest.approx(probability)
        found = [found.offsets for found in explained.entities if found.start < entity.end and found.end > entity.start]
        assert {*found} <= {alternative.offsets for alternative in entity.alternatives}
        probabilities = [alternative.probability for alternative in entity.alternatives]
        assert probabilities == sorted(probabilities, reverse=True)
    assert missed["FOOD"].probability == 0.0
    assert not missed["FOOD"].attributions
    for label, place in (("PER", slice(0, 2)), ("GPE", slice(3, 5))):
        empty = nlp.make_doc(text)
        empty.set_ents([], outside=[empty[place]], default="missing")
        assert missed[label].outside == pytest.approx(decoding.likelihood(empty), abs=1e-6)
    # The predicted entity 王小明 depends on its last character, which is not part of the missed entity.
    against = min(missed["PER"].attributions, key=lambda unit: unit.drop)
    assert (against.start, against.drop < 0) == (2, True)
    for entity in explained.entities:
        assert entity.outside is None


def test_missed_entity_excluded_by_entity_list(train):
    nlp = train(steps=20)
    nlp.add_pipe("entity_lists", before="tener_ner").add({"王小明": "HERO"})
    reference = nlp.make_doc("王小明去了上海")
    reference.set_ents([reference.char_span(0, 3, "PER")], default="outside")
    (explained,) = explain(nlp, Example(nlp.make_doc(reference.text), reference)).texts
    (missed,) = explained.missed
    assert (missed.probability, missed.outside, missed.attributions) == (0.0, 0.0, [])
    assert (missed.alternatives[0].offsets, missed.alternatives[0].probability) == ((0, 3, "HERO"), 1.0)


def test_missed_entity_within_token_has_probability_zero(train):
    nlp = train(steps=20)
    doc = Doc(nlp.vocab, words=["王小明", "去了", "上海"], spaces=[False] * 3)
    reference = nlp.make_doc(doc.text)
    reference.set_ents([reference.char_span(0, 2, "PER")], default="outside")
    (missed,) = explain(nlp, Example(doc, reference)).texts[0].missed
    assert (missed.offsets, missed.probability, missed.outside) == ((0, 2, "PER"), 0.0, None)
