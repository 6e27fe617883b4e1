"""Probabilities of entities and tag sequences: both views, windows, existing entities, listeners and temperature."""

import crf_brute_force as brute
import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc, Span
from thinc.api import Adam

from spacy_tener.architectures.tagger import torch_crf
from spacy_tener.crf.marginals import EntitySpans
from spacy_tener.nn.backend_torch import join_tensors
from spacy_tener.pipeline.decoding import likelihoods
from spacy_tener.pipeline.entities import FoundEntity

TEXT = "吴重阳在中国银行工作。"


def spans_of(length, labels):
    return [(a, b, label) for a in range(length) for b in range(a + 1, length + 1) for label in labels]


def keys(entities):
    return [(entity.start, entity.end, entity.label) for entity in entities]


def probabilities_of(entities):
    return [entity.probability for entity in entities]


def decode(pipe, doc):
    return next(pipe.decode([doc]))


@pytest.fixture
def pipe_of(learned):
    """Return a function that makes a trained component, with a temperature that avoids extreme probabilities."""

    def make(**config):
        pipe = learned(**config).get_pipe("tener_ner")
        pipe.cfg["temperature"] = 4.0
        return pipe

    return make


@pytest.mark.parametrize("setting", [{"spans_key": "sure"}, {"threshold": 0.5}])
def test_pipeline_without_labels_finds_no_entities(blank, setting):
    nlp = blank("tener_ner", **setting)
    nlp.initialize()
    assert nlp("王小明").ents == ()


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_span_probabilities_equal_sum_over_all_sequences(pipe_of, view):
    """All tag sequences of a short text are enumerated. Those with the span sum up to its probability."""
    pipe = pipe_of(view=view)
    words = ["王", "小明"] if view == "characters" else ["王", "小", "明"]
    doc = Doc(pipe.vocab, words=words, spaces=[False] * len(words))
    decoding = decode(pipe, doc)
    sequences = decoding.k_best(100_000)
    assert sum(sequence.probability for sequence in sequences) == pytest.approx(1.0)
    spans = spans_of(3, pipe.labels)
    expected = [
        sum(sequence.probability for sequence in sequences if span in keys(sequence.entities)) for span in spans
    ]
    assert decoding.probabilities(spans) == pytest.approx(expected, abs=1e-9)
    assert max(expected) > 0.2
    for sequence in sequences[:5]:
        assert probabilities_of(sequence.entities) == pytest.approx(decoding.probabilities(keys(sequence.entities)))


@pytest.mark.parametrize("minimum", [0.0, -1.0, 1.5, float("nan")])
@pytest.mark.parametrize("method", ["alternatives", "marginals"])
def test_invalid_minimum_probability_raises_error(pipe_of, method, minimum):
    pipe = pipe_of()
    with pytest.raises(ValueError, match="above 0"):
        getattr(decode(pipe, Doc(pipe.vocab, words=list(TEXT))), method)(minimum=minimum)


def test_outside_marginals_cover_spaces_inside_entities(pipe_of):
    """Spaces between tokens are not units. They are inside an entity if it contains the tokens on both sides."""
    pipe = pipe_of()
    words = Doc(pipe.vocab, words=["王小明", "去", "上海"], spaces=[True, False, False])
    spaced = Doc(pipe.vocab, words=list("王小明去上海"), spaces=[True, True, True, False, False, False])
    preset = Doc(pipe.vocab, words=list("王小明去上海"), spaces=[True, True, True, False, False, False])
    preset.set_ents([Span(preset, 0, 3, label="PER")], default="missing")
    for doc, inside in ((words, []), (spaced, [1, 3]), (preset, [1, 3])):
        marginals = decode(pipe, doc).marginals(1e-12)
        for offset in range(len(doc.text)):
            covering = [e.probability for e in marginals.entities if e.start <= offset < e.end]
            assert marginals.outside[offset] == pytest.approx(1.0 - sum(covering), abs=1e-6)
        assert all(marginals.outside[offset] < 0.9 for offset in inside)


@pytest.mark.parametrize("label", ["GPE", "STRANGE"])
@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_existing_entities_have_probability_one(pipe_of, view, label):
    pipe = pipe_of(view=view)
    pipe.cfg.update(spans_key="sure", threshold=1.0)
    doc = Doc(pipe.vocab, words=["吴", "重阳", *TEXT[3:]], spaces=[False] * (len(TEXT) - 1))
    doc.set_ents([Span(doc, 1, 4, label=label)], blocked=[doc[5:7]], default="missing")
    before = doc.to_bytes()
    decoding = decode(pipe, doc)
    assert FoundEntity(1, 5, label, 1.0) in decoding.entities
    assert decoding.probabilities([(1, 5, label), (1, 5, "PER"), (6, 8, "ORG"), (2, 6, label)]) == [1.0, 0.0, 0.0, 0.0]
    assert all(FoundEntity(1, 5, label, 1.0) in sequence.entities for sequence in decoding.k_best(20))
    assert FoundEntity(1, 5, label, 1.0) in decoding.marginals(0.5).entities
    assert decoding.marginals().outside[1:5].tolist() == [0.0] * 4
    assert decoding.alternatives()[[e.offsets for e in decoding.entities].index((1, 5, label))] == []
    assert doc.to_bytes() == before
    annotated = pipe(doc.copy())
    assert keys(e for e in decoding.entities if e.probability == 1.0) == [
        (ent.start_char, ent.end_char, ent.label_) for ent in annotated.ents
    ]
    assert annotated.spans["sure"].attrs["scores"].tolist() == [1.0]
    pipe.annotate([decoding])
    assert doc.to_bytes() == annotated.to_bytes()


@pytest.mark.parametrize("label", ["GPE", "STRANGE"])
def test_likelihood_is_zero_for_contradicting_annotation(pipe_of, label):
    pipe = pipe_of()
    doc = Doc(pipe.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    doc.set_ents([Span(doc, 1, 5, label=label)], default="missing")
    decoding = decode(pipe, doc)
    predicted = pipe(doc.copy())
    assert decoding.likelihood(predicted) == pytest.approx(decoding.k_best(1)[0].probability, abs=1e-9)
    assert decoding.likelihood(Doc(pipe.vocab, words=list(TEXT), spaces=[False] * len(TEXT))) == pytest.approx(1.0)
    other = predicted.copy()
    other.set_ents([], default="outside")
    assert decoding.likelihood(other) == 0.0
    other.ents = [Span(other, 1, 4, label="GPE")]
    assert decoding.likelihood(other) == 0.0
    unknown = predicted.copy()
    unknown.ents = [Span(unknown, 6, 7, label="unheard of")]
    with pytest.raises(ValueError, match="contains the entity label 'unheard of'"):
        decoding.likelihood(unknown)


def test_decoding_is_not_changed_by_later_updates(pipe_of, make_examples, blank):
    pipe = pipe_of()
    doc = Doc(pipe.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    for _ in range(2):  # in the second iteration, the weights share memory with a torch module
        decoding, expected = decode(pipe, doc), decode(pipe, doc).k_best(3)
        weights = [weight.copy() for weight in decoding.batch.crf.weights]
        pipe.update(make_examples(blank()), sgd=Adam(0.1))
        assert all(map(np.array_equal, decoding.batch.crf.weights, weights))
        assert decoding.k_best(3) == expected
        assert decode(pipe, doc).k_best(3) != expected


def test_decoding_has_short_repr(pipe_of):
    pipe = pipe_of()
    decoding = decode(pipe, Doc(pipe.vocab, words=list(TEXT), spaces=[False] * len(TEXT)))
    assert repr(decoding) == "<Decoding of '吴重阳在中国银行工作。' in 11 units, labels GPE, ORG, PER>"
    assert repr(decoding.batch) == "<BatchDecoding of 1 texts, 11 units, depth 1>"


def test_spans_at_whitespace_or_sentence_start_are_impossible(pipe_of):
    pipe = pipe_of()
    doc = Doc(pipe.vocab, words=list("王小 明去"), spaces=[False] * 5, sent_starts=[True, False, False, True, False])
    spans = [(0, 3, "PER"), (2, 3, "PER"), (0, 5, "PER"), (3, 5, "PER"), (0, 2, "PER")]
    probabilities = decode(pipe, doc).probabilities(spans)
    assert probabilities[:3] == [0.0, 0.0, 0.0]
    assert min(probabilities[3:]) > 0.0


def test_probabilities_accept_spacy_spans(pipe_of):
    pipe = pipe_of()
    doc = Doc(pipe.vocab, words=["王小明", "去", "了", "上海"], spaces=[False, True, False, False])
    spans = [Span(doc, 0, 1, label="PER"), Span(doc, 3, 4, label="GPE")]
    decoding = decode(pipe, doc)
    assert decoding.probabilities(spans) == decoding.probabilities([(0, 3, "PER"), (6, 8, "GPE")])


def test_misaligned_span_or_unknown_label_has_zero_probability(pipe_of):
    doc = Doc(pipe_of().vocab, words=["王小明", "去"], spaces=[False, False])
    spans = [(0, 3, "PER"), (0, 2, "PER"), (0, 3, "unheard of")]
    inside, misaligned, other_label = decode(pipe_of(), doc).probabilities(spans)
    assert misaligned == other_label == 0.0 < inside
    assert decode(pipe_of(view="characters"), doc).probabilities(spans)[1] > 0.0


@pytest.mark.parametrize("span", [(-1, 2, "PER"), (2, 2, "PER"), (0, 99, "PER")])
def test_span_outside_text_raises_error(pipe_of, span):
    pipe = pipe_of()
    with pytest.raises(ValueError, match=rf"{span[0]}, {span[1]}"):
        decode(pipe, Doc(pipe.vocab, words=["京"])).probabilities([span])


def test_character_probabilities_do_not_depend_on_tokens(pipe_of):
    pipe = pipe_of(view="characters")
    docs = [
        Doc(pipe.vocab, words=words, spaces=[False] * len(words))
        for words in (list(TEXT), ["吴", "重阳在", "中国", "银行工作", "。"], [TEXT])
    ]
    by_characters, *by_words = (decoding.entities for decoding in pipe.decode(docs))
    assert keys(by_characters) == [(0, 3, "PER"), (4, 8, "ORG")]
    for entities in by_words:
        assert keys(entities) == keys(by_characters)
        assert probabilities_of(entities) == pytest.approx(probabilities_of(by_characters), abs=1e-6)


def test_windows_of_long_doc_are_decoded_as_single_sequence(pipe_of):
    """Forward and backward scores are computed over the emissions of all windows."""
    pipe = pipe_of(window=20, overlap=6, max_units=50)
    docs = [Doc(pipe.vocab, words=list(TEXT * n), spaces=[False] * (len(TEXT) * n)) for n in (8, 1, 5)]
    decodings = list(pipe.decode(docs))
    assert len(decodings[0].entities) > 8
    for decoding in decodings:
        found, sequences = decoding.entities, decoding.k_best(2)
        assert probabilities_of(found) == pytest.approx(decoding.probabilities(keys(found)))
        assert keys(sequences[0].entities) == keys(found)
        assert probabilities_of(sequences[0].entities) == pytest.approx(probabilities_of(found), abs=1e-6)
        assert 0.0 < sequences[1].probability <= sequences[0].probability <= min(probabilities_of(found)) + 1e-9


def test_decoding_does_not_depend_on_batch(pipe_of):
    pipe = pipe_of(max_units=200)
    docs = [Doc(pipe.vocab, words=list(TEXT[:n]), spaces=[False] * n) for n in (11, 0, 3, 8, 1)] * 30
    alone = [decode(pipe, doc) for doc in docs[:5]] * 30
    for decoding, expected in zip(pipe.decode(docs), alone, strict=True):
        spans = [(0, end, label) for end in range(1, len(decoding.doc)) for label in ("PER", "unheard of")]
        assert decoding.probabilities(spans) == pytest.approx(expected.probabilities(spans), abs=1e-6)
        assert keys(decoding.entities) == keys(expected.entities) == keys(decoding.k_best(1)[0].entities)
        assert probabilities_of(decoding.entities) == pytest.approx(probabilities_of(expected.entities), abs=1e-6)
        assert decoding.entropy == pytest.approx(expected.entropy, abs=1e-4)
        probabilities = [sequence.probability for sequence in decoding.k_best(3)]
        assert probabilities == sorted(probabilities, reverse=True)
        assert len(decoding.alternatives()) == len(expected.entities)
        assert keys(decoding.marginals().entities) == keys(expected.marginals().entities)


def test_empty_input_is_decoded(pipe_of, blank):
    for pipe in (pipe_of(), blank().get_pipe("tener_ner")):
        assert list(pipe.decode([])) == []
        empty = Doc(pipe.vocab)
        decoding, _ = pipe.decode([empty, empty])
        assert (
            decoding.entities
            == decoding.alternatives()
            == decoding.probabilities([])
            == decoding.marginals().entities
            == []
        )
        assert decoding.entropy == 0.0
        assert decoding.likelihood(empty) == 1.0
        (sequence,) = decoding.k_best()
        assert (sequence.probability, sequence.entities) == (1.0, [])


def test_listener_decodes_shared_tok2vec_output(tiny_hash_embed, make_examples, learn):
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": tiny_hash_embed})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": listener}
    pipe = nlp.add_pipe("tener_ner", config={"model": model})
    learn(nlp, make_examples(nlp))
    docs = list(nlp.pipe([TEXT, "", "京"], disable=["tener_ner"]))
    scored = [decoding.entities for decoding in pipe.decode(docs)]
    assert [keys(found) for found in scored] == [[(0, 3, "PER"), (4, 8, "ORG")], [], [(0, 1, "GPE")]]
    scores = join_tensors(pipe.model.ops, pipe.model.predict(docs), torch.device("cpu"))
    spans = EntitySpans(*np.array([(0, 0, 3, pipe.labels.index("PER"))]).T)
    expected = brute.computed_span_marginals(torch_crf(pipe.model), scores, [len(doc) for doc in docs], spans)
    assert scored[0][0].probability == pytest.approx(expected.item(), abs=1e-6)
    with pytest.raises(ValueError, match="shared component"):
        decode(pipe, nlp.make_doc(TEXT))


def test_temperature_changes_probabilities_but_not_entities(pipe_of):
    pipe = pipe_of()
    doc = Doc(pipe.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    warm = decode(pipe, doc).entities
    del pipe.cfg["temperature"]
    cold = decode(pipe, doc).entities
    assert keys(warm) == keys(cold)
    assert all(lower < higher for lower, higher in zip(probabilities_of(warm), probabilities_of(cold), strict=True))


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("temperature", [0.5, 4.0, 20.0])
def test_probabilities_of_covering_spans_and_outside_sum_to_one(pipe_of, view, temperature):
    pipe = pipe_of(view=view)
    pipe.cfg["temperature"] = temperature
    doc = Doc(pipe.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    spans = spans_of(len(TEXT), pipe.labels)
    decoding = decode(pipe, doc)
    probabilities, marginals = decoding.probabilities(spans), decoding.marginals()
    assert min(probabilities) >= 0.0
    for i in range(len(TEXT)):
        covering = sum(p for p, (start, end, _) in zip(probabilities, spans, strict=True) if start <= i < end)
        assert covering + marginals.outside[i] == pytest.approx(1.0)
    probable = {span: p for span, p in zip(spans, probabilities, strict=True) if p >= 0.05}
    assert dict(zip(keys(marginals.entities), probabilities_of(marginals.entities), strict=True)) == pytest.approx(
        probable
    )


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), float("inf"), "warm", None])
def test_invalid_temperature_raises_error(pipe_of, temperature):
    pipe = pipe_of()
    pipe.cfg["temperature"] = temperature
    with pytest.raises(ValueError, match="spacy tener calibrate"):
        decode(pipe, Doc(pipe.vocab, words=["京"]))


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_likelihood_equals_sum_over_consistent_sequences(pipe_of, view):
    pipe = pipe_of(view=view)
    doc = Doc(pipe.vocab, words=["王", "小", "明"], spaces=[False] * 3)
    decoding = decode(pipe, doc)
    sequences = decoding.k_best(100_000)
    for span in (None, (0, 3, "PER"), (1, 2, "GPE")):
        complete, partial = doc.copy(), doc.copy()
        ents = [doc.char_span(*span[:2], label=span[2])] if span else []
        complete.set_ents(ents, default="outside")
        partial.set_ents(ents, default="missing")
        exact = sum(
            sequence.probability for sequence in sequences if keys(sequence.entities) == ([span] if span else [])
        )
        agreeing = sum(
            sequence.probability for sequence in sequences if span is None or span in keys(sequence.entities)
        )
        found = [decoding.likelihood(complete), decoding.likelihood(partial)]
        assert likelihoods([decoding] * 2, [complete, partial]) == pytest.approx(found)
        assert found == pytest.approx([exact, agreeing], abs=1e-6)


def test_likelihood_ignores_incorrect_spans(pipe_of):
    pipe = pipe_of(incorrect_spans_key="wrong")
    doc = Doc(pipe.vocab, words=["王", "小", "明"], spaces=[False] * 3)
    missing, annotated = Doc(pipe.vocab, words=["王", "小", "明"], spaces=[False] * 3), doc.copy()
    annotated.ents = [Span(annotated, 0, 3, "PER")]
    decoding = decode(pipe, doc)
    for reference in (missing, annotated):
        before = decoding.likelihood(reference)
        reference.spans["wrong"] = [Span(reference, 0, 3, "PER")]
        assert decoding.likelihood(reference) == before


def test_likelihood_is_zero_if_impossible_and_one_if_empty(pipe_of):
    pipe = pipe_of()
    doc = Doc(pipe.vocab, words=list("王小明"), sent_starts=[True, True, False])
    across = doc.copy()
    across.ents = [Span(across, 0, 2, "PER")]
    assert decode(pipe, doc).likelihood(across) == 0.0
    assert decode(pipe, Doc(pipe.vocab)).likelihood(Doc(pipe.vocab)) == 1.0
