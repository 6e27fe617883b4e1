"""Features of a frozen transformer that are kept while training: what is read, how often, and with what result."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from spacy.tokens import Doc
from tiny_transformer import VOCAB, WIDTH, characters

from spacy_tener.models.bridge import torch_shim
from spacy_tener.models.transformer.embed import build_transformer_embed
from spacy_tener.models.transformer.module import FeatureCache

TEXTS = ["吴重阳在中国", "2023 去", "", "王小明iPhones。", " "]
DOCS = [characters(text) for text in TEXTS]


def embedder(name, **settings):
    model = build_transformer_embed(name, **{"dropout": 0.0, "frozen": True} | settings)
    model.initialize()
    return model


@pytest.fixture
def read(monkeypatch):
    """The texts that transformers have read, in batches."""
    batches = []

    def listen(model):
        module = torch_shim(model).module
        reader = module.reader

        def note(docs):
            batches.append([doc.text for doc in docs])
            return reader(docs)

        monkeypatch.setattr(module, "reader", note)
        return batches

    return listen


def same(left, right):
    for mine, other in zip(left, right, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)


def test_training_reads_each_text_once(tiny, read):
    model = embedder(tiny)
    batches = read(model)
    first = model.begin_update(DOCS)[0]
    assert batches == [[text] for text in TEXTS]
    same(model.begin_update(DOCS)[0], first)
    same(model.predict(DOCS), first)
    assert len(batches) == len(TEXTS)


def test_texts_of_dev_are_kept_when_they_are_evaluated_again(tiny, read):
    model, dev = embedder(tiny), [characters("上海"), characters("京")]
    batches = read(model)
    model.begin_update(DOCS)
    first, size = model.predict(dev), torch_shim(model).module.cache.size
    for _ in range(2):
        model.begin_update(DOCS)
        same(model.predict(dev), first)
    assert batches[len(TEXTS) :] == [["上海", "京"], ["上海"], ["京"]]
    assert torch_shim(model).module.cache.size == size + 3 * WIDTH * 4


def test_a_pipeline_that_serves_after_its_training_keeps_nothing_more(tiny, read):
    model = embedder(tiny)
    model.begin_update(DOCS)
    batches, size = read(model), torch_shim(model).module.cache.size
    for _ in range(3):
        model.predict([characters("上海"), characters("京")])
    assert batches == [["上海", "京"]] * 3
    assert torch_shim(model).module.cache.size == size


def test_what_is_kept_is_what_would_be_computed(tiny):
    keeping, computing = embedder(tiny), embedder(tiny, cache=0)
    keeping.begin_update(DOCS)
    same(keeping.begin_update(DOCS[::-1])[0], computing.begin_update(DOCS[::-1])[0])


def test_no_feature_depends_on_what_it_was_first_read_with(tiny):
    together, apart = embedder(tiny), embedder(tiny)
    first = together.begin_update(DOCS)[0]
    second = [apart.begin_update([doc])[0][0] for doc in DOCS]
    for mine, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_nothing_is_kept_before_training_nor_of_a_transformer_that_learns(tiny, read):
    for model in (embedder(tiny), embedder(tiny, cache=0), embedder(tiny, frozen=False)):
        batches = read(model)
        size = len(batches)
        model.predict(DOCS)
        model.predict(DOCS)
        assert batches[size:] == [TEXTS, TEXTS]
        assert torch_shim(model).module.cache.size == 0
    for model in (embedder(tiny, cache=0), embedder(tiny, frozen=False)):
        batches = read(model)
        size = len(batches)
        model.begin_update(DOCS)
        model.begin_update(DOCS)
        assert batches[size:] == [TEXTS, TEXTS]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_keeps_nothing_until_it_is_trained(tiny, how, read):
    model = embedder(tiny)
    expected = model.begin_update(DOCS)[0]
    other = how(model)
    cache = torch_shim(other).module.cache
    same(other.predict(DOCS), expected)
    assert cache.size == 0
    batches = read(other)
    other.begin_update(DOCS)
    other.begin_update(DOCS)
    assert batches == [[text] for text in TEXTS]
    assert cache.size == sum(map(len, DOCS)) * WIDTH * 4


def test_one_text_in_other_tokens_is_another(tiny):
    model = embedder(tiny)
    words = Doc(VOCAB, words=["吴重阳", "在", "中国"], spaces=[False] * 3)
    first, second = model.begin_update([DOCS[0], words])[0]
    assert (len(first), len(second)) == (6, 3)
    same([second], [embedder(tiny, cache=0).predict([words])[0]])


def test_texts_that_stand_twice_in_a_batch_are_read_once(tiny, read):
    model = embedder(tiny)
    batches = read(model)
    first, _, again = model.begin_update([DOCS[0], DOCS[1], DOCS[0]])[0]
    assert batches == [[TEXTS[0]], [TEXTS[1]]]
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("rows", [5, 7])
def test_once_full_it_takes_no_more_and_the_rest_is_read_together(rows):
    batches = []

    def read(docs):
        batches.append([doc.text for doc in docs])
        return torch.cat([torch.full((len(doc), 4), float(len(doc))) for doc in docs])

    cache = FeatureCache(rows * 4 * 4)
    docs = [characters("一二三"), characters("四五六七"), characters("八"), characters("九十")]
    for _ in range(2):
        assert cache(docs, read, training=True)[:, 0].tolist() == [3.0] * 3 + [4.0] * 4 + [1.0] + [2.0] * 2
    assert batches == [["一二三"], ["四五六七"], ["八", "九十"], ["八", "九十"]]
    assert cache.size == 7 * 4 * 4


def test_without_room_every_text_is_read_as_it_comes():
    batches = []

    def read(docs):
        batches.append([doc.text for doc in docs])
        return torch.zeros(sum(map(len, docs)), 4)

    cache = FeatureCache(0)
    for training in (True, False, True):
        cache([characters("一二"), characters("一二")], read, training=training)
    assert batches == [["一二", "一二"]] * 3
    assert cache.size == 0


def test_on_a_gpu_what_is_missing_is_read_at_once_and_kept():
    batches = []

    def read(docs):
        batches.append([doc.text for doc in docs])
        return torch.cat([torch.full((len(doc), 4), float(len(doc))) for doc in docs])

    cache = FeatureCache(5 * 4 * 4)
    docs = [characters("一二三"), characters("四五六七"), characters("八"), characters("九十")]
    for _ in range(2):
        found = cache(docs, read, training=True, alone=False)
        assert found[:, 0].tolist() == [3.0] * 3 + [4.0] * 4 + [1.0] + [2.0] * 2
    assert batches == [["一二三", "四五六七", "八", "九十"], ["八", "九十"]]
    assert cache.size == 7 * 4 * 4


def test_what_it_remembers_of_predictions_is_bounded(monkeypatch):
    monkeypatch.setattr("spacy_tener.models.transformer.module._NOTED", 3)

    def read(docs):
        return torch.ones(sum(map(len, docs)), 4)

    def noted(limit):
        cache = FeatureCache(limit)
        cache([characters("一")], read, training=True)
        for text in "二三四五六七八":
            cache([characters(text)], read, training=False)
            cache([characters("一")], read, training=True)
        return len(cache._evaluated)

    assert noted(1000) == 3
    assert noted(16) == 0, "what is full has no use for it"


def test_dropout_is_drawn_anew_each_time(tiny):
    model = embedder(tiny, dropout=0.5)
    first, second = (model.begin_update(DOCS[:1])[0][0] for _ in range(2))
    assert not np.array_equal(first == 0, second == 0)


def test_a_cache_of_less_than_nothing_is_refused():
    with pytest.raises(ValueError, match="cache must be at least 0; got -1"):
        build_transformer_embed("bert", frozen=True, cache=-1)
