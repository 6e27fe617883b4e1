"""Entity probabilities in a span group, and thresholds: the settings `spans_key` and `threshold`."""

import pytest
import spacy
from spacy.cli.find_threshold import find_threshold
from spacy.tokens import Doc, DocBin, Span

from spacy_tener.pipeline.entities import RECORD_KEY, read_entities

TEXT = "吴重阳在中国银行工作。"
FOUND = [(0, 3, "PER"), (4, 8, "ORG")]


@pytest.fixture
def make_scoring_pipeline(learned):
    """Create a pipeline that stores probabilities. A high temperature reduces its confidence."""

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
    """Return the predictions of the component for the text of a Doc that has been processed."""
    unprocessed = Doc(doc.vocab, words=[token.text for token in doc], spaces=[bool(token.whitespace_) for token in doc])
    return [
        (e.start, e.end, e.label, pytest.approx(e.probability, abs=1e-6))
        for e in next(pipe.decode([unprocessed])).entities
    ]


def test_probabilities_are_not_computed_by_default(learned, monkeypatch):
    nlp = learned()
    monkeypatch.setattr("spacy_tener.pipeline.decoding.Decoding.probabilities", None)
    doc = nlp(TEXT)
    assert len(doc.ents) == 2
    assert list(doc.spans) == [RECORD_KEY]
    assert [entity.probability for entity in read_entities(doc)] == [None, None]


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_span_group_contains_entities_and_probabilities(make_scoring_pipeline, view, entities_of):
    nlp = make_scoring_pipeline(view=view)
    for doc in nlp.pipe([TEXT, "今天天气很好", "", "王小明去了上海"]):
        assert [row[:3] for row in scored(doc)] == entities_of(doc)
        assert scored(doc) == expected(nlp.get_pipe("tener_ner"), doc)
        assert all(0.0 < row[-1] < 1.0 for row in scored(doc))


def test_scores_survive_serialization_and_multiprocessing(make_scoring_pipeline):
    nlp = make_scoring_pipeline()
    doc = nlp(TEXT)
    [binned] = DocBin(docs=[doc]).get_docs(nlp.vocab)
    for copy in (binned, Doc(nlp.vocab).from_bytes(doc.to_bytes()), doc.copy()):
        assert scored(copy) == scored(doc)
    for processed in nlp.pipe([TEXT, TEXT], n_process=2):
        assert scored(processed) == [(*row[:3], pytest.approx(row[3])) for row in scored(doc)]


def test_aligned_span_has_probability_of_exact_entity(make_scoring_pipeline):
    nlp = make_scoring_pipeline(view="characters")
    pipe = nlp.get_pipe("tener_ner")
    words = ["吴", "重阳在", "中国", "银行工作", "。"]
    doc = pipe(Doc(nlp.vocab, words=words, spaces=[False] * 5))
    first, second = expected(pipe, doc)
    assert scored(doc) == [(0, 4, "PER", first[-1]), (4, 10, "ORG", second[-1])]
    assert doc.spans["tener_ner_chars"].attrs["char_offsets"] == [[0, 3], [4, 8]]


def test_second_call_keeps_probabilities_of_entities(make_scoring_pipeline):
    nlp = make_scoring_pipeline()
    pipe = nlp.get_pipe("tener_ner")
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    doc.set_ents([Span(doc, 9, 10, label="GPE")], default="missing")
    pipe(doc)
    *found, existing = scored(doc)
    assert existing == (9, 10, "GPE", 1.0)
    assert [row[:3] for row in found] == FOUND
    assert all(row[3] < 1.0 for row in found)
    before = scored(doc)
    assert scored(pipe(doc)) == before


def test_threshold_removes_less_probable_entities(make_scoring_pipeline, entities_of):
    nlp = make_scoring_pipeline()
    person, organisation = (row[-1] for row in scored(nlp(TEXT)))
    assert person != organisation
    cfg = nlp.get_pipe("tener_ner").cfg
    cfg["threshold"] = (person + organisation) / 2
    [most_probable] = entities_of(nlp(TEXT))
    assert most_probable == FOUND[int(organisation > person)]
    doc = nlp(TEXT)
    assert [row[:3] for row in scored(doc)] == [most_probable]
    assert all(token.ent_iob_ == "O" for token in doc if not token.ent_type_)
    cfg["threshold"] = 1.0
    assert entities_of(nlp(TEXT)) == []
    cfg.update(threshold={"PER": 1.0}, spans_key=None)
    assert entities_of(nlp(TEXT)) == FOUND[1:]
    cfg["threshold"] = {"ORG": person * organisation, "PER": 0.0}
    assert entities_of(nlp(TEXT)) == FOUND


def test_threshold_does_not_remove_existing_entities(make_scoring_pipeline, entities_of):
    nlp = make_scoring_pipeline(threshold=1.0)
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    doc.set_ents([Span(doc, 0, 2, label="GPE")], default="missing")
    assert entities_of(nlp.get_pipe("tener_ner")(doc)) == [(0, 2, "GPE")]


@pytest.mark.parametrize("threshold", [0.25, {"PER": 0.5, "ORG": 0.25}])
def test_threshold_and_temperature_are_saved(blank, make_scoring_pipeline, tmp_path, threshold):
    nlp = make_scoring_pipeline(threshold=threshold)
    cfg = nlp.get_pipe("tener_ner").cfg
    nlp.to_disk(tmp_path)
    for copy in (spacy.load(tmp_path), blank().from_bytes(nlp.to_bytes())):
        pipe = copy.get_pipe("tener_ner")
        assert pipe.cfg == cfg
        assert (pipe.settings.spans_key, pipe.settings.threshold) == ("sc", threshold)
        assert scored(copy(TEXT)) == scored(nlp(TEXT))


def test_temperature_is_discarded_with_old_weights(make_scoring_pipeline, learned, make_examples):
    nlp, without_temperature = make_scoring_pipeline(), learned().to_bytes()
    assert "temperature" in nlp.get_pipe("tener_ner").cfg
    assert "temperature" not in nlp.from_bytes(without_temperature).get_pipe("tener_ner").cfg
    nlp = make_scoring_pipeline()
    nlp.initialize(lambda: make_examples(nlp))
    assert "temperature" not in nlp.get_pipe("tener_ner").cfg


def test_threshold_for_unknown_label_raises_error(learned):
    nlp = learned(threshold={"PERSON": 0.5})
    with pytest.raises(ValueError, match=r"PERSON.*\n?.*PER"):
        nlp(TEXT)


def test_spacy_find_threshold_command_is_supported(make_scoring_pipeline, make_examples, tmp_path, capsys):
    """The development set contains only the most probable entity. The best threshold removes the other entity."""
    nlp = make_scoring_pipeline()
    rows = scored(nlp(TEXT))
    most_probable = max(rows, key=lambda row: row[-1])
    nlp.to_disk(tmp_path / "model")
    DocBin(docs=[example.reference for example in make_examples(nlp, [(TEXT, [most_probable[:3]])])]).to_disk(
        tmp_path / "dev.spacy"
    )
    best, score, scores_by_threshold = find_threshold(
        str(tmp_path / "model"), tmp_path / "dev.spacy", "tener_ner", "threshold", "ents_f", n_trials=21
    )
    assert score == 1.0 > scores_by_threshold[0.0]
    assert min(row[-1] for row in rows) < best <= most_probable[-1]
    assert "Threshold" in capsys.readouterr().out
