"""What encoders looked at, as the architectures' own functions have it."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import spacy

from spacy_tener.explain import explain
from spacy_tener.explain.encoders import find_encoders, record_maps
from spacy_tener.explain.explanation import HeatMap, _map_as_bytes
from spacy_tener.explain.passages import cut_passages, find_vocabulary, lexicon_words
from spacy_tener.models.embed.lexicon import LexiconVocabulary
from spacy_tener.pipeline.units import view_of

TEXT = "吴重阳在中国银行工作。"
WORDS = ["重阳", "中国", "中国银行", "银行", "工作"]


@pytest.fixture
def looked(learned):
    """Makes the maps of an architecture for the text, by kind and stream."""

    def make(name):
        ner = learned(name).get_pipe("tener_ner")
        doc = learned(name).make_doc(TEXT)
        found = record_maps(find_encoders([ner.model]), lambda: ner.model.predict([doc]))
        return {(each.kind, each.stream): each for each in found}

    return make


@pytest.mark.parametrize("name", ["TENER", "FLAT", "FLAT_ATSSA", "MECT"])
def test_what_a_character_looks_at_adds_up_to_one(name, looked):
    n_keys = {"TENER": 11, "FLAT": 11 + 5, "FLAT_ATSSA": 11, "MECT": 11 + 5}[name]
    maps = [each for (kind, _), each in looked(name).items() if kind == "attention"]
    assert len(maps) == (2 if name == "MECT" else 1)
    assert {each.layer for each in looked(name).values()} == {1}
    for each in maps:
        assert each.weights.shape == (2, 11, n_keys)
        np.testing.assert_allclose(each.weights.sum(-1), 1.0, atol=1e-5)


def test_a_query_of_atssa_looks_only_at_the_keys_that_it_kept(looked):
    attention = looked("FLAT_ATSSA")["attention", ""]
    assert attention.kept is not None
    assert attention.kept.min() >= 3
    assert attention.kept.min() < 11
    assert ((attention.weights > 0).sum(-1) <= attention.kept).all()


def test_characters_read_the_words_that_cover_them_and_no_other(learned, looked):
    doc = learned().make_doc(TEXT)
    words = lexicon_words(find_vocabulary([learned().get_pipe("tener_ner").model], LexiconVocabulary), doc)
    assert [word.text for word in words] == WORDS
    read = looked("FLAT_ATSSA")["words", ""].weights
    assert read.shape == (2, 11, 5)
    covered = np.array([[word.start <= unit < word.end for word in words] for unit in range(11)])
    assert (read[:, ~covered] == 0).all()
    np.testing.assert_allclose(read.sum(-1)[:, covered.any(1)], 1.0, atol=1e-5)


def test_relations_are_those_of_grn_s_figure(learned, looked):
    ner = learned("GRN").get_pipe("tener_ner")
    encoder = find_encoders([ner.model])[0].module
    embedded = ner.model.get_ref("tok2vec").layers[0].predict([learned("GRN").make_doc(TEXT)])[0]
    import torch

    with torch.inference_mode():
        (expected,) = encoder.relation_strengths(torch.from_numpy(embedded), [len(TEXT)])
    np.testing.assert_allclose(looked("GRN")["relations", ""].weights[0], expected, atol=1e-5)
    assert looked("GRN")["relations", ""].layer == 1


def test_looking_leaves_nothing_behind(learned, looked):
    ner = learned().get_pipe("tener_ner")
    looked("FLAT_ATSSA")
    found = find_encoders([ner.model])
    assert found
    assert all(not encoder.module._forward_pre_hooks and "predictor" not in vars(encoder.shim) for encoder in found)


def test_a_pipeline_that_predicts_without_torch_goes_on_doing_so(learned):
    nlp = learned("TENER")
    loaded = spacy.blank("zh").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert explain(loaded, TEXT).texts[0].passages[0].maps
    shims = [shim for node in loaded.get_pipe("tener_ner").model.walk() for shim in node.shims]
    assert shims
    assert [shim for shim in shims if shim._model is not None] == []


def test_a_part_of_a_map_has_its_units_and_words():
    weights = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    kept = np.arange(6).reshape(2, 3)
    part = HeatMap("attention", 1, "", weights, kept).part(slice(1, 3), np.array([1]))
    np.testing.assert_array_equal(part.weights, weights[:, 1:3][:, :, [1, 2, 4]])
    np.testing.assert_array_equal(part.kept, kept[:, 1:3])
    words = HeatMap("words", 1, "", weights).part(slice(1, 3), np.array([0, 4]))
    np.testing.assert_array_equal(words.weights, weights[:, 1:3][:, :, [0, 4]])
    alone = HeatMap("relations", 1, "", weights[:, :, :3]).part(slice(1, 3), np.array([1]))
    np.testing.assert_array_equal(alone.weights, weights[:, 1:3, 1:3])


def test_a_packed_map_tells_zero_from_little():
    packed = _map_as_bytes(HeatMap("attention", 1, "", np.array([[[0.0, 1e-6, 0.5, 2.0]]])))
    assert list(base64.b64decode(packed["weights"])) == [0, 1, 64, 255]
    assert (packed["largest"], packed["shape"]) == (2.0, [1, 1, 4])


@pytest.mark.parametrize("name", ["FLAT", "FLAT_ATSSA", "MECT"])
def test_a_passage_has_its_own_part_of_a_map(name, learned):
    """In a text of several windows, whose second passage begins with the same sentence."""
    (text,) = explain(learned(name), TEXT * 12, evidence=False).texts
    assert len(text.passages) > 2
    for passage in text.passages:
        words = [word.text for word in passage.words]
        units = [text.text[start:end] for start, end in passage.units]
        assert all("".join(units[word.start : word.end]) == word.text for word in passage.words)
        for each in passage.maps:
            wide = len(units) if each.kind == "attention" else 0
            keys = len(words) if each.kind == "words" or name != "FLAT_ATSSA" else 0
            assert each.weights.shape == (2, len(units), wide + keys)
            assert each.weights.sum(-1).max() < 1.0 + 1e-5
    assert "".join(text.text[passage.start : passage.end] for passage in text.passages) == TEXT * 12


def test_maps_of_a_later_window_are_of_what_a_shared_component_reads_in_it(make_examples):
    shared = {"@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 16, "depth": 1}
    shared |= {"embed_size": 200, "window_size": 1, "maxout_pieces": 2, "subword_features": False}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
    tok2vec = {"@architectures": "spacy_tener.TENER.v1", "width": 16, "heads": 2, "embed": listener}
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": shared})
    ner = nlp.add_pipe(
        "tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}}
    )
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    doc = nlp.make_doc(TEXT * 40)
    (text,) = explain(nlp, doc, evidence=False).texts
    found = [(entity.start, entity.end) for entity in text.entities]
    start = cut_passages(view_of(doc, "tokens"), found, ner.settings)[-1].window.start
    passage = text.passages[-1]
    assert 0 < start <= passage.start
    piece = nlp.get_pipe("tok2vec")(nlp.make_doc(doc.text[start:]))
    (whole,) = record_maps(find_encoders([ner.model]), lambda: ner.model.predict([piece]))
    expected = whole.part(slice(passage.start - start, passage.end - start), np.array([], dtype=np.int64))
    np.testing.assert_allclose(passage.maps[0].weights, expected.weights, atol=1e-6)
