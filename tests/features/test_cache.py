"""The cache of features in training: what is computed, how often, and that threads and processes read it correctly."""

from __future__ import annotations

import errno
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features import cache as module
from spacy_tener.features.cache import FeatureCache, cache_key

VOCAB, WIDTH = Vocab(), 4
ROW = WIDTH * 2


class CachedLengths:
    """A cache that records which batches were computed. The features of a text are its length."""

    def __init__(self, limit: int = 1_000_000, on_disk: int = 0) -> None:
        self.cache = FeatureCache(limit, on_disk, half=True)
        self.batches: list[list[str]] = []

    def _compute(self, docs: list[Doc]) -> list[np.ndarray]:
        self.batches.append([doc.text for doc in docs])
        return [np.full((len(doc), WIDTH), len(doc.text), dtype=np.float32) for doc in docs]

    def __call__(self, *texts: str, training: bool = False) -> None:
        docs = [Doc(VOCAB, words=list(text), spaces=[False] * len(text)) for text in texts]
        found = self.cache([cache_key(doc) for doc in docs], docs, self._compute, training=training)
        for text, rows in zip(texts, found, strict=True):
            np.testing.assert_array_equal(rows, np.full((len(text), WIDTH), len(text)))


def test_training_computes_features_once_per_text() -> None:
    cached = CachedLengths()
    for _ in range(3):
        cached("一二", "", "一二", "三", training=True)
    cached("三", "四", "一二", training=True)
    cached("三", "四")
    assert cached.batches == [["一二", "", "三"], ["四"]]
    assert cached.cache.size == 4 * ROW


def test_dev_texts_are_cached_at_second_evaluation() -> None:
    cached = CachedLengths()
    for _ in range(3):
        cached("上海", "京")
    assert cached.batches == [["上海", "京"]] * 3, "features are not cached before training"
    for _ in range(3):
        cached("一", training=True)
        cached("上海", "京")
    assert cached.batches[3:] == [["一"], ["上海", "京"], ["上海", "京"]]


def test_prediction_after_training_adds_no_cache_entries() -> None:
    cached = CachedLengths()
    cached("一", training=True)
    for _ in range(3):
        cached("上海", "京")
    assert cached.batches == [["一"], *[["上海", "京"]] * 3]
    assert cached.cache.size == ROW


def test_cache_key_depends_on_tokenization() -> None:
    docs = [Doc(VOCAB, words=words, spaces=[False] * len(words)) for words in (["中国"], ["中", "国"])]
    assert len({cache_key(doc) for doc in docs}) == 2


def test_full_cache_computes_uncached_texts_in_one_batch() -> None:
    cached = CachedLengths(5 * ROW)
    for _ in range(2):
        cached("一二三", "四五六七", "八", "九十", training=True)
    assert cached.batches == [["一二三", "四五六七", "八", "九十"], ["八", "九十"]]
    assert cached.cache.size == 7 * ROW


def test_features_over_memory_limit_are_stored_on_disk() -> None:
    cached = CachedLengths(2 * ROW, 4 * ROW)
    for _ in range(3):
        cached("一二", "三四五", "六七", "八", training=True)
    assert cached.batches == [["一二", "三四五", "六七", "八"], ["八"], ["八"]]
    assert (cached.cache.size, cached.cache.size_on_disk) == (2 * ROW, 5 * ROW)


def test_zero_limit_disables_cache() -> None:
    cached = CachedLengths(0)
    for training in (True, False, True):
        cached("一二", "一二", training=training)
    assert cached.batches == [["一二", "一二"]] * 3


@pytest.mark.parametrize(("limit", "n_hashes"), [(1000, 3), (ROW, 0)])
def test_number_of_evaluated_text_hashes_is_bounded(limit: int, n_hashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_HASHES", 3)
    cached = CachedLengths(limit)
    cached("一", training=True)
    for text in "二三四五六七八":
        cached(text)
        cached("一", training=True)
    assert len(cached.cache._evaluated) == n_hashes, "a full cache does not record texts"


def filled_cache(n_texts: int) -> tuple[FeatureCache, list[tuple[str, bytes]]]:
    """Return a cache with features on disk, except for the first text. The features of a text are its number."""
    cache, keys = FeatureCache(1, 1 << 20, half=True), [(str(number), b"") for number in range(n_texts)]
    cache(keys, range(n_texts), lambda numbers: [np.full((9, WIDTH), number, "f") for number in numbers], training=True)
    assert cache.size_on_disk == (n_texts - 1) * 9 * ROW
    return cache, keys


def count_wrong(cache: FeatureCache, keys: list[tuple[str, bytes]], seed: int) -> int:
    """Read random batches of texts, and return the number of texts with wrong features."""
    wrong, rng = 0, np.random.default_rng(seed)
    for _ in range(300):
        numbers = rng.integers(0, len(keys), 10).tolist()
        found = cache([keys[number] for number in numbers], numbers, lambda _: [], training=False)
        wrong += sum(not (rows == number).all() for rows, number in zip(found, numbers, strict=True))
    return wrong


def test_threads_read_correct_features() -> None:
    cache, keys = filled_cache(100)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda seed: count_wrong(cache, keys, seed), range(4))) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_processes_read_cache_without_writing_to_it() -> None:
    cache, keys = filled_cache(100)

    def read_and_add(seed: int) -> int:
        wrong = count_wrong(cache, keys, seed)
        cache([("new", b"")], [0], lambda _: [np.full((9, WIDTH), -1, "f")], training=True)
        return wrong

    children = []
    for seed in range(3):
        if not (process := os.fork()):
            signal.alarm(60)
            os._exit(min(read_and_add(seed), 255))
        children.append(process)
    assert [os.waitpid(process, 0)[1] for process in children] == [0, 0, 0]
    cache([("later", b"")], [0], lambda _: [np.full((9, WIDTH), 7, "f")], training=True)
    assert count_wrong(cache, keys, 9) == 0


@pytest.mark.parametrize("fault", ["no room", "short write"])
def test_full_disk_stops_caching_with_warning(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: bytes, offset: int) -> int:
        if fault == "no room":
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data) - 1

    monkeypatch.setattr(os, "pwrite", write)
    cached = CachedLengths(2 * ROW, 9 * ROW)
    with pytest.warns(UserWarning, match=r"cannot be cached in .* (No space left|the disk is full).* set TMPDIR"):
        cached("一二", "三四五", training=True)
    cached("一二", "三四五", "六", training=True)
    assert cached.batches == [["一二", "三四五"], ["三四五", "六"]]


def test_exception_leaves_cache_unchanged() -> None:
    cache, keys = filled_cache(3)

    def fail(_: object) -> list[np.ndarray]:
        raise KeyError

    with pytest.raises(KeyError):
        cache([keys[1], ("new", b"")], [1, 9], fail, training=True)
    assert count_wrong(cache, keys, 0) == 0
