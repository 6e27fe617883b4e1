"""Probabilities beside `doc.ents`, and thresholds: the settings `spans_key` and `threshold`."""

import pytest
import spacy
from spacy.cli.find_threshold import find_threshold
from spacy.tokens import Doc, DocBin, Span

from spacy_tener.pipeline.entities import RECORD_KEY, read_entities

TEXT = "吴重阳在中国银行工作。"
FOUND = [(0, 3, "PER"), (4, 8, "ORG")]


@pytest.fixture
def scoring(learned):
    """Makes a pipeline that writes probabilities, and is less sure than it learned to be."""

    def make(temperature=4.0, **config):
        nlp = learned(spans_key="sc", **config)
        nlp.get_pipe("tener_ner").cfg["temperature"] = temperature
        return nlp

    return make


def scored(doc, key="sc"):
    group = doc.spans[key]
    assert len(group.attrs["scores"]) == len(group)
    return [(s.start_char, s.end_char, s.label_, p) for s, p in zip(group, group.attrs["scores"], strict=True)]


def expected(pipe, doc):
    """What the component says of the text, which a Doc that was processed has already."""
    bare = Doc(doc.vocab, words=[token.text for token in doc], spaces=[bool(token.whitespace_) for token in doc])
    return [
        (e.start, e.end, e.label, pytest.approx(e.probability, abs=1e-6)) for e in next(pipe.decode([bare])).entities
    ]


def test_nothing_is_weighed_or_written_where_it_is_off(learned, monkeypatch):
    nlp = learned()
    monkeypatch.setattr("spacy_tener.pipeline.decoding.Decoding.probabilities", None)
    doc = nlp(TEXT)
    assert len(doc.ents) == 2
    assert list(doc.spans) == [RECORD_KEY]
    assert [entity.probability for entity in read_entities(doc)] == [None, None]


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_the_group_holds_the_entities_of_the_doc_and_their_probabilities(scoring, view, entities_of):
    nlp = scoring(view=view)
    for doc in nlp.pipe([TEXT, "今天天气很好", "", "王小明去了上海"]):
        assert [row[:3] for row in scored(doc)] == entities_of(doc)
        assert scored(doc) == expected(nlp.get_pipe("tener_ner"), doc)
        assert all(0.0 < row[-1] < 1.0 for row in scored(doc))


def test_scores_travel_with_the_doc(scoring):
    nlp = scoring()
    doc = nlp(TEXT)
    [binned] = DocBin(docs=[doc]).get_docs(nlp.vocab)
    for copy in (binned, Doc(nlp.vocab).from_bytes(doc.to_bytes()), doc.copy()):
        assert scored(copy) == scored(doc)
    for worked in nlp.pipe([TEXT, TEXT], n_process=2):
        assert scored(worked) == [(*row[:3], pytest.approx(row[3])) for row in scored(doc)]


def test_the_probability_is_that_of_the_entity_behind_the_tokens(scoring):
    nlp = scoring(view="characters")
    pipe = nlp.get_pipe("tener_ner")
    words = ["吴", "重阳在", "中国", "银行工作", "。"]
    doc = pipe(Doc(nlp.vocab, words=words, spaces=[False] * 5))
    first, second = expected(pipe, doc)
    assert scored(doc) == [(0, 4, "PER", first[-1]), (4, 10, "ORG", second[-1])]
    assert doc.spans["tener_ner_chars"].attrs["char_offsets"] == [[0, 3], [4, 8]]


def test_given_entities_are_certain_and_found_ones_keep_their_probability_in_a_second_run(scoring):
    nlp = scoring()
    pipe = nlp.get_pipe("tener_ner")
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    doc.set_ents([Span(doc, 9, 10, label="GPE")], default="missing")
    pipe(doc)
    *found, preset = scored(doc)
    assert preset == (9, 10, "GPE", 1.0)
    assert [row[:3] for row in found] == FOUND
    assert all(row[3] < 1.0 for row in found)
    before = scored(doc)
    assert scored(pipe(doc)) == before


def test_entities_below_the_threshold_are_left_out_and_their_tokens_are_outside(scoring, entities_of):
    nlp = scoring()
    person, organisation = (row[-1] for row in scored(nlp(TEXT)))
    assert person != organisation
    cfg = nlp.get_pipe("tener_ner").cfg
    cfg["threshold"] = (person + organisation) / 2
    [surer] = entities_of(nlp(TEXT))
    assert surer == FOUND[int(organisation > person)]
    doc = nlp(TEXT)
    assert [row[:3] for row in scored(doc)] == [surer]
    assert all(token.ent_iob_ == "O" for token in doc if not token.ent_type_)
    cfg["threshold"] = 1.0
    assert entities_of(nlp(TEXT)) == []
    cfg.update(threshold={"PER": 1.0}, spans_key=None)
    assert entities_of(nlp(TEXT)) == FOUND[1:]
    cfg["threshold"] = {"ORG": person * organisation, "PER": 0.0}
    assert entities_of(nlp(TEXT)) == FOUND


def test_given_entities_stay_whatever_the_threshold(scoring, entities_of):
    nlp = scoring(threshold=1.0)
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    doc.set_ents([Span(doc, 0, 2, label="GPE")], default="missing")
    assert entities_of(nlp.get_pipe("tener_ner")(doc)) == [(0, 2, "GPE")]


@pytest.mark.parametrize("threshold", [0.25, {"PER": 0.5, "ORG": 0.25}])
def test_settings_and_calibration_are_saved_with_the_pipeline(blank, scoring, tmp_path, threshold):
    nlp = scoring(threshold=threshold)
    cfg = nlp.get_pipe("tener_ner").cfg
    nlp.to_disk(tmp_path)
    for copy in (spacy.load(tmp_path), blank().from_bytes(nlp.to_bytes())):
        pipe = copy.get_pipe("tener_ner")
        assert pipe.cfg == cfg
        assert (pipe.settings.spans_key, pipe.settings.threshold) == ("sc", threshold)
        assert scored(copy(TEXT)) == scored(nlp(TEXT))


def test_a_calibration_goes_with_the_weights_it_was_made_for(scoring, learned, make_examples):
    nlp, fresh = scoring(), learned().to_bytes()
    assert "temperature" in nlp.get_pipe("tener_ner").cfg
    assert "temperature" not in nlp.from_bytes(fresh).get_pipe("tener_ner").cfg
    nlp = scoring()
    nlp.initialize(lambda: make_examples(nlp))
    assert "temperature" not in nlp.get_pipe("tener_ner").cfg


def test_a_threshold_of_an_unknown_label_is_named(learned):
    nlp = learned(threshold={"PERSON": 0.5})
    with pytest.raises(ValueError, match=r"PERSON.*\n?.*PER"):
        nlp(TEXT)


def test_spacy_finds_a_threshold(scoring, make_examples, tmp_path, capsys):
    """A dev set that lacks the less probable kind of entity is best served by a threshold that leaves it out."""
    nlp = scoring()
    rows = scored(nlp(TEXT))
    surer = max(rows, key=lambda row: row[-1])
    nlp.to_disk(tmp_path / "model")
    DocBin(docs=[example.reference for example in make_examples(nlp, [(TEXT, [surer[:3]])])]).to_disk(
        tmp_path / "dev.spacy"
    )
    best, score, tried = find_threshold(
        str(tmp_path / "model"), tmp_path / "dev.spacy", "tener_ner", "threshold", "ents_f", n_trials=21
    )
    assert score == 1.0 > tried[0.0]
    assert min(row[-1] for row in rows) < best <= surer[-1]
    assert "Threshold" in capsys.readouterr().out
