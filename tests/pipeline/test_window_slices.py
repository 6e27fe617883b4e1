"""Windows as slices of the arrays of a batch: models compute the same emissions as for separate Docs."""

from __future__ import annotations

import numpy as np
import pytest
from small_systems import examples_of, pipeline, small_tok2vecs
from spacy.tokens import Doc
from spacy_parts import spacy_s_cnn

from spacy_tener.embedders.tables import table_embedders
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.features.word_lists import ATTRIBUTE
from spacy_tener.nn.run import predict
from spacy_tener.pipeline.units import CharacterView, view_of
from spacy_tener.pipeline.windows import WindowBatcher, tokens_of_windows

WORDS = ["王小明", "昨天", "从", "南京", "大学", "去了", "北京大学", "New", "York", "银行", "很好", "3月", "X"]
SEGMENT = {"@architectures": "spacy_tener.SegmentEmbed.v1", "width": 8, "dropout": 0.0}
SYSTEMS = ["TENER", "FLAT", "FLAT_ATSSA", "MECT", "GRN", "ONNX", "segments", "spaCy's"]


@pytest.fixture(params=SYSTEMS)
def tok2vec(request, tmp_path):
    if request.param == "segments":
        return SEGMENT
    return spacy_s_cnn() if request.param == "spaCy's" else small_tok2vecs(tmp_path)[request.param]


@pytest.fixture(params=["tokens", "characters"])
def nlp(tok2vec, request):
    nlp = pipeline(tok2vec, view=request.param, window=20, overlap=4)
    nlp.initialize(lambda: examples_of(nlp))
    return nlp


def long_docs(nlp) -> list[Doc]:
    """Return long Docs with and without sentence ends, and short Docs that are not split."""
    words = [WORDS[7 * i % len(WORDS)] for i in range(60)]
    with_ends = [word if i % 11 else "。" for i, word in enumerate(words)]
    docs = [Doc(nlp.vocab, words=part, spaces=[i % 5 == 0 for i in range(len(part))]) for part in (words, with_ends)]
    return [nlp.make_doc("北京"), docs[0], nlp.make_doc("中国银行"), docs[1]]


def window_batch(nlp, docs) -> TokenBatch:
    """Return the windows of Docs as a batch for the model."""
    pipe = nlp.get_pipe("tener_ner")
    batcher = WindowBatcher.of(pipe.model, pipe.settings)
    [windows] = batcher.batches(batcher.split([view_of(doc, pipe.settings.view) for doc in docs]))
    return tokens_of_windows(windows)


def test_window_emissions_equal_emissions_of_separate_docs(nlp):
    model, tokens = nlp.get_pipe("tener_ner").model, window_batch(nlp, long_docs(nlp))
    assert len(tokens) > 8
    emissions = predict(model, tokens)
    np.testing.assert_array_equal(emissions, predict(model, TokenBatch.of(tokens.docs)))
    separate = [predict(model, TokenBatch.of([doc])) for doc in tokens.docs]
    np.testing.assert_allclose(emissions, np.concatenate(separate), rtol=1e-4, atol=1e-5)


def test_window_keys_equal_keys_of_separate_docs(nlp):
    embedders = table_embedders(nlp.get_pipe("tener_ner").model)
    tokens = window_batch(nlp, long_docs(nlp))
    for embedder in embedders:
        keys, expected = (embedder.vocabulary.to_input(batch).keys for batch in (tokens, TokenBatch.of(tokens.docs)))
        for name, table_keys in keys.items():
            np.testing.assert_array_equal(table_keys, expected[name])


def test_word_across_window_boundary_is_not_matched(tmp_path):
    nlp = pipeline(small_tok2vecs(tmp_path)["FLAT"], window=20, overlap=4)
    nlp.initialize(lambda: examples_of(nlp))
    doc = nlp.make_doc("北京" * 20)
    tokens = window_batch(nlp, [doc])
    words = next(node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "lexicon_embed")
    lattice = predict(words, tokens).lattice
    np.testing.assert_array_equal(lattice.lengths, tokens.lengths)
    assert lattice.counts.tolist() == [text.text.count("北京") for text in tokens.docs]


def test_windows_use_word_lists_of_source_doc(tmp_path):
    nlp = pipeline(small_tok2vecs(tmp_path)["FLAT"], window=20, overlap=4)
    nlp.initialize(lambda: examples_of(nlp))
    nlp.get_pipe("tener_ner").lexicon.add(["甲乙"], name="mine")
    docs = [nlp.make_doc("甲乙" * 20) for _ in range(2)]
    setattr(docs[1]._, ATTRIBUTE, "mine")
    words = next(node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "lexicon_embed")
    tokens = window_batch(nlp, docs)
    counts = predict(words, tokens).lattice.counts
    is_named = np.array([doc is docs[1] for doc in tokens.sources])
    assert not counts[~is_named].any()
    assert (counts[is_named] > 0).all()


def test_character_windows_do_not_require_docs(monkeypatch, tmp_path):
    nlp = pipeline(small_tok2vecs(tmp_path)["MECT"], view="characters", window=20, overlap=4)
    nlp.initialize(lambda: examples_of(nlp))
    docs = long_docs(nlp)
    monkeypatch.delattr(CharacterView, "slice_doc")
    nlp.get_pipe("tener_ner").predict(docs)


def test_select_returns_selected_texts_in_order(nlp):
    tokens = window_batch(nlp, long_docs(nlp))
    texts = np.array([1, 4, 2])
    selected, expected = tokens.select(texts), [tokens.docs[text] for text in texts.tolist()]
    assert [selected.docs[i] is doc for i, doc in enumerate(expected)] == [True] * 3
    np.testing.assert_array_equal(selected.columns, TokenBatch.of(expected).columns)
    assert selected.lengths.tolist() == [len(doc) for doc in expected]
    assert selected.sources == [tokens.sources[text] for text in texts.tolist()]
