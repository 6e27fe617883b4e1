"""Features that are computed once in training: what is read, how often, and with what result."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features import cache as module
from spacy_tener.features.cache import FeatureCache, key_of

VOCAB, WIDTH = Vocab(), 4
ROW = WIDTH * 4


class Reading:
    """A cache, and the batches of texts that were read for it. A text's features are its length."""

    def __init__(self, limit: int = 1_000_000, on_disk: int = 0) -> None:
        self.cache = FeatureCache(limit, on_disk)
        self.batches: list[list[str]] = []

    def _read(self, docs: list[Doc]) -> list[np.ndarray]:
        self.batches.append([doc.text for doc in docs])
        return [np.full((len(doc), WIDTH), len(doc.text), dtype=np.float32) for doc in docs]

    def __call__(self, *texts: str, training: bool = False) -> None:
        docs = [Doc(VOCAB, words=list(text), spaces=[False] * len(text)) for text in texts]
        found = self.cache([key_of(doc) for doc in docs], docs, self._read, training=training)
        for text, rows in zip(texts, found, strict=True):
            np.testing.assert_array_equal(rows, np.full((len(text), WIDTH), len(text)))


def test_training_reads_each_text_once() -> None:
    reading = Reading()
    for _ in range(3):
        reading("一二", "", "一二", "三", training=True)
    reading("三", "四", "一二", training=True)
    reading("三", "四")
    assert reading.batches == [["一二", "", "三"], ["四"]]
    assert reading.cache.size == 4 * ROW


def test_texts_of_dev_are_kept_when_they_are_evaluated_again() -> None:
    reading = Reading()
    for _ in range(3):
        reading("上海", "京")
    assert reading.batches == [["上海", "京"]] * 3, "nothing is kept before training"
    for _ in range(3):
        reading("一", training=True)
        reading("上海", "京")
    assert reading.batches[3:] == [["一"], ["上海", "京"], ["上海", "京"]]


def test_nothing_more_is_kept_after_training() -> None:
    reading = Reading()
    reading("一", training=True)
    for _ in range(3):
        reading("上海", "京")
    assert reading.batches == [["一"], *[["上海", "京"]] * 3]
    assert reading.cache.size == ROW


@pytest.mark.parametrize("how", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_is_empty_with_the_same_limits(how: Callable[[FeatureCache], FeatureCache]) -> None:
    reading = Reading(10, 20)
    reading("一二", training=True)
    other = how(reading.cache)
    assert (other.limit, other.on_disk, other.size) == (10, 20, 0)


def test_one_text_in_other_tokens_is_another() -> None:
    docs = [Doc(VOCAB, words=words, spaces=[False] * len(words)) for words in (["中国"], ["中", "国"])]
    assert len({key_of(doc) for doc in docs}) == 2


def test_once_full_it_takes_no_more_and_the_rest_is_read_together() -> None:
    reading = Reading(5 * ROW)
    for _ in range(2):
        reading("一二三", "四五六七", "八", "九十", training=True)
    assert reading.batches == [["一二三", "四五六七", "八", "九十"], ["八", "九十"]]
    assert reading.cache.size == 7 * ROW


def test_what_memory_has_no_room_for_is_on_disk_up_to_a_limit_too() -> None:
    reading = Reading(2 * ROW, 4 * ROW)
    for _ in range(3):
        reading("一二", "三四五", "六七", "八", training=True)
    assert reading.batches == [["一二", "三四五", "六七", "八"], ["八"], ["八"]]
    assert (reading.cache.size, reading.cache.size_on_disk) == (2 * ROW, 5 * ROW)


def test_without_room_every_text_is_read_as_it_comes() -> None:
    reading = Reading(0)
    for training in (True, False, True):
        reading("一二", "一二", training=training)
    assert reading.batches == [["一二", "一二"]] * 3


@pytest.mark.parametrize(("limit", "noted"), [(1000, 3), (ROW, 0)])
def test_what_it_remembers_of_predictions_is_bounded(limit: int, noted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NOTED", 3)
    reading = Reading(limit)
    reading("一", training=True)
    for text in "二三四五六七八":
        reading(text)
        reading("一", training=True)
    assert len(reading.cache._evaluated) == noted, "what is full has no use for it"
