"""What is said of entities: how sure, what else, and what they rest on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

import spacy_tener
from spacy_tener.errors import RemedyError
from spacy_tener.explain import explain
from spacy_tener.explain.explaining import UNKNOWN_CHARACTER, _overlap, _possible
from spacy_tener.pipeline.decoding import Reading
from spacy_tener.pipeline.entities import FoundEntity

TEXT = "吴重阳在中国银行工作。"


def log_odds(p):
    return math.log(p / (1 - p))


def test_a_text_may_be_longer_than_spacys_limit(learned, monkeypatch):
    nlp = learned()
    monkeypatch.setattr(nlp, "max_length", 5)
    assert len(explain(nlp, TEXT, evidence=False).texts[0].entities) == 2


def test_it_says_what_the_component_says(learned):
    nlp = learned()
    ner, doc = nlp.get_pipe("tener_ner"), nlp.make_doc(TEXT)
    (text,) = explain(nlp, TEXT, rivals=2, k_best=3).texts
    decoding = next(ner.decode([doc]))
    assert [(e.start, e.end, e.label) for e in text.entities] == [(0, 3, "PER"), (4, 8, "ORG")]
    assert [e.probability for e in text.entities] == [e.probability for e in decoding.entities]
    assert [e.rivals for e in text.entities] == decoding.rivals(2)
    assert text.k_best == decoding.k_best(3)
    assert text.entropy == decoding.entropy
    found = {(e.start, e.end, e.label) for e in text.entities}
    possible = [e for reading in text.k_best for e in reading.entities if e.probability >= 0.02]
    assert {(e.start, e.end, e.label) for e in text.possible} == {(e.start, e.end, e.label) for e in possible} - found


def of_characters(nlp, text):
    return Doc(nlp.vocab, words=list(text), spaces=[False] * len(text))


@pytest.mark.parametrize(
    ("view", "words"), [("tokens", list("王小明去了上海 很好")), ("characters", ["王小明", "去了上海 很", "好"])]
)
def test_evidence_is_what_the_log_odds_lose_where_a_unit_is_unknown(view, words, train):
    nlp = train(view=view, steps=20)
    ner = nlp.get_pipe("tener_ner")
    (text,) = explain(nlp, Doc(nlp.vocab, words=words, spaces=[False] * len(words))).texts
    entity = next(each for each in text.entities if each.label == "GPE")
    assert [each.start for each in entity.evidence] == [0, 1, 2, 3, 4, 5, 6, 8, 9]  # 7 is white space
    for each in entity.evidence:
        masked = of_characters(nlp, text.text[: each.start] + UNKNOWN_CHARACTER + text.text[each.end :])
        (probability,) = next(ner.decode([masked])).probabilities([(entity.start, entity.end, "GPE")])
        assert each.drop == pytest.approx(log_odds(entity.probability) - log_odds(probability), abs=1e-3)
    strongest = max(entity.evidence, key=lambda each: each.drop)
    assert text.text[strongest.start] in "上海"


def test_a_shared_component_reads_the_masked_text(make_examples, sentences, entities_of):
    embed = {"@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 16, "depth": 1}
    sizes = {"embed_size": 200, "window_size": 1, "maxout_pieces": 2, "subword_features": False}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": {**embed, **sizes}})
    nlp.add_pipe("tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": listener}})
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(30):
        nlp.update(examples, sgd=optimizer)
    found = explain(nlp, "王小明去了上海")
    (text,) = found.texts
    person = text.entities[0]
    masked = of_characters(nlp, "王小" + UNKNOWN_CHARACTER + "去了上海")
    (probability,) = next(nlp.get_pipe("tener_ner").decode([nlp.get_pipe("tok2vec")(masked)])).probabilities(
        [(0, 3, "PER")]
    )
    assert person.evidence[2].drop == pytest.approx(log_odds(person.probability) - log_odds(probability), abs=1e-3)
    assert "A masked unit counts as a word that training never showed." in found.notes
    assert any("no lexicon" in note for note in found.notes)
    translations = (Path(spacy_tener.__file__).parent / "pages" / "strings.js").read_text(encoding="utf8")
    assert all(f'"{note}": "' in translations for note in found.notes)


def test_words_of_the_lexicon_are_shown_with_what_is_known_of_them(learned):
    (text,) = explain(learned("MECT"), "吴重阳去上海银行", evidence=False).texts
    assert [(word.text, word.start, word.end) for word in text.words] == [
        ("重阳", 1, 3),
        ("上海", 4, 6),
        ("银行", 6, 8),
    ]
    assert all(word.known for word in text.words)
    assert text.radicals == {"吴": "口天", "海": "氵每", "银": "钅艮"}


def test_words_of_lists_are_shown_as_the_encoder_reads_them(learned):
    nlp = learned("MECT")
    words = nlp.get_pipe("tener_ner").lexicon
    words.remove(["重阳"])
    words.add(["上海银行"])
    try:
        (text,) = explain(nlp, "吴重阳去上海银行").texts
        assert [(word.text, word.start, word.end, word.known) for word in text.words] == [
            ("上海", 4, 6, True),
            ("上海银行", 4, 8, True),
            ("银行", 6, 8, True),
        ]
    finally:
        words.clear()


def test_of_a_long_text_each_entity_is_explained_where_it_stands(learned):
    """Twelve sentences in windows of 40 characters: what is masked lies near, and nothing is far from its place."""
    (text,) = explain(learned(), TEXT * 12).texts
    assert len(text.entities) > 12
    assert {entity.start - entity.evidence[0].start for entity in text.entities} >= {0, 20}
    assert max(entity.start - entity.evidence[0].start for entity in text.entities) == 20
    assert max(entity.evidence[-1].end - entity.end for entity in text.entities) == 20
    for entity in text.entities:
        starts = [each.start for each in entity.evidence]
        assert starts == [*range(starts[0], starts[-1] + 1)]
        strongest = max(entity.evidence, key=lambda each: each.drop)
        assert entity.start - 1 <= strongest.start <= entity.end


def test_words_of_a_long_text_are_those_of_each_sentence(learned):
    """Twelve sentences in windows of 40 characters, with 10 of context on each side, whose words count once."""
    (one,) = explain(learned("FLAT"), TEXT, evidence=False).texts
    (text,) = explain(learned("FLAT"), TEXT * 12, evidence=False).texts
    places = [(word.start, word.end) for word in one.words]
    assert len(places) == 5
    shifts = [len(TEXT) * number for number in range(12)]
    found = [(word.start, word.end) for word in text.words]
    assert sorted(found) == sorted((start + by, end + by) for by in shifts for start, end in places)
    assert all(text.text[word.start : word.end] == word.text for word in text.words)


def test_in_a_text_of_one_window_every_unit_is_evidence_of_every_entity(learned):
    (text,) = explain(learned("TENER"), TEXT * 3).texts
    assert len(text.entities) > 3
    assert {len(entity.evidence) for entity in text.entities} == {33}


def test_an_entity_at_the_end_of_a_text_has_evidence(learned):
    (text,) = explain(learned("TENER"), "王小明去了上海").texts
    assert [entity.end for entity in text.entities] == [3, 7]
    assert all(len(entity.evidence) == 7 for entity in text.entities)


def test_entities_of_other_readings_are_possible_from_two_percent_on():
    found = [FoundEntity(0, 2, "A", 0.9)]
    others = [FoundEntity(4, 5, "A", 0.02), FoundEntity(0, 2, "B", 0.5), FoundEntity(2, 3, "A", 0.0199), *found]
    assert _possible(found, [Reading(0.5, found, 0.0), Reading(0.1, others, 0.0)]) == [others[1], others[0]]


@pytest.mark.parametrize(("start", "end", "expected"), [(0, 2, False), (1, 3, True), (3, 4, True), (5, 6, False)])
def test_entities_overlap_where_they_share_characters(start, end, expected):
    assert _overlap(FoundEntity(2, 5, "A", 1.0), FoundEntity(start, end, "B", 1.0)) is expected


def test_what_is_not_wanted_is_left_out(learned):
    (text,) = explain(learned(), TEXT, evidence=False).texts
    assert text.entities
    assert not any(entity.evidence for entity in text.entities)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "京"])
def test_short_and_empty_texts_are_explained(text, learned):
    (explained,) = explain(learned(), text).texts
    assert explained.text == text
    assert '<p id="text" class="line" lang="zh">' in explain(learned(), text).to_html()


def test_entities_of_a_doc_are_neither_used_nor_changed(learned):
    nlp = learned()
    doc = nlp.make_doc(TEXT)
    doc.ents = [doc.char_span(4, 6, label="GPE")]
    (with_entities,) = explain(nlp, doc).texts
    (without,) = explain(nlp, TEXT).texts
    assert [replace(entity, is_given=True) for entity in with_entities.entities] == without.entities
    assert [ent.label_ for ent in doc.ents] == ["GPE"]


def test_annotation_is_shown_beside_what_is_found(learned):
    nlp = learned()
    example = Example.from_dict(nlp.make_doc(TEXT), {"entities": [(4, 6, "GPE")]})
    (text,) = explain(nlp, example, evidence=False).texts
    assert text.gold == [(4, 6, "GPE")]
    assert explain(nlp, TEXT, evidence=False).texts[0].gold is None


def test_the_data_are_json(learned):
    found = explain(learned("MECT"), [TEXT, "王小明去了上海"])
    data = json.loads(found.to_json())
    assert data == found.to_dict()
    assert data["labels"] == ["GPE", "ORG", "PER"]
    entity = data["texts"][0]["entities"][0]
    assert {"start", "end", "label", "probability", "rivals", "evidence", "is_given"} == set(entity)
    assert data["texts"][0]["words"][0]["text"] == "重阳"


def test_a_pipeline_without_the_component_is_refused(learned):
    with pytest.raises(RemedyError, match=r"no tener_ner.*components are: none"):
        explain(spacy.blank("zh"), TEXT)
    with pytest.raises(RemedyError, match="no tener_ner named 'other'"):
        explain(learned(), TEXT, name="other")


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_entities_that_the_pipeline_does_not_give_are_marked(learned, view):
    """By a threshold, by a rule before the component or after it, and by the entities of a Doc."""
    nlp = spacy.blank("zh", config=learned().config).from_bytes(learned().to_bytes())
    cfg = nlp.get_pipe("tener_ner").cfg
    cfg["view"] = view
    entity = {"pattern": "中国", "label": "PLACE"}

    def check(text, *given):
        (explained,) = explain(nlp, text, evidence=False).texts
        doc = nlp(text if isinstance(text, str) else text.copy())
        ents = {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}
        assert [entity.is_given for entity in explained.entities] == list(given)
        for entity in (*explained.entities, *explained.possible):
            assert entity.is_given == (entity.offsets in ents)

    check(TEXT, True, True)
    doc = nlp.make_doc(TEXT)
    doc.ents = [doc.char_span(0, 2, "GPE")]
    check(doc, False, True)
    nlp.add_pipe("entity_ruler", before="tener_ner").add_patterns([entity])
    check(TEXT, True, False)
    nlp.remove_pipe("entity_ruler")
    nlp.add_pipe("entity_ruler", config={"overwrite_ents": True}).add_patterns([entity])
    check(TEXT, True, False)
    nlp.remove_pipe("entity_ruler")
    cfg["threshold"] = {"PER": 1.0}
    check(TEXT, False, True)
