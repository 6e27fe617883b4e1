"""Active learning: the selection of uncertain and diverse texts, without duplicates and in constant memory."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from spacy_tener.errors import UserError
from spacy_tener.pipeline.finding import PipelineNER
from spacy_tener.pipeline.tener_ner import TenerNER
from spacy_tener.review import active_learning as module
from spacy_tener.review.active_learning import (
    WIDTH,
    most_uncertain,
    near_duplicate_key,
    profiles,
    select_diverse,
    suggest,
    variety,
)

TEXTS = ["王小明去了上海", "今天天气很好", "吴重阳去了中国银行", "李雷喜欢长沙", "明天去哪", "京", "上海在京"]


def records(texts: Iterable[str]) -> Iterator[dict[str, str]]:
    return ({"text": text} for text in texts)


@pytest.fixture(scope="module")
def nlp(saved: dict[str, Path]) -> Language:
    """A pipeline with a high temperature, so that it is less certain than after training."""
    nlp = spacy.load(saved["tener"])
    nlp.get_pipe("tener_ner").cfg["temperature"] = 4.0
    return nlp


def enumerated_uncertainties(nlp: Language, texts: Sequence[str]) -> dict[str, float]:
    """Compute the uncertainty of each text from all its label sequences."""
    found = {}
    pipeline = PipelineNER.of(nlp)
    for doc in pipeline.prepare(texts):
        sequences = next(pipeline.ner.decode([doc])).k_best(5_000)
        probabilities = np.array([sequence.probability for sequence in sequences])
        entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-300))).sum() / len(doc) ** 0.5
        found[doc.text] = float(entropy)
    return found


def test_uncertainty_matches_enumerated_label_sequences(nlp: Language) -> None:
    short = ["京", "去长沙"]
    expected = enumerated_uncertainties(nlp, short)
    for suggestion in most_uncertain(nlp, records(short), len(short)):
        assert suggestion.uncertainty == pytest.approx(expected[suggestion.text], abs=1e-4)


def test_batched_stream_yields_most_uncertain_texts(nlp: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    all_suggestions = most_uncertain(nlp, records(TEXTS), len(TEXTS))
    assert [suggestion.uncertainty for suggestion in all_suggestions] == sorted(
        (e.uncertainty for e in all_suggestions), reverse=True
    )
    monkeypatch.setattr(module, "BATCH", 2)
    assert [suggestion.text for suggestion in most_uncertain(nlp, records(iter(TEXTS)), 3)] == [
        suggestion.text for suggestion in all_suggestions[:3]
    ]


def test_suggest_skips_duplicates_and_annotated_texts(nlp: Language) -> None:
    repeated_texts = [*TEXTS, *(f" {text[:2]} {text[2:]} " for text in TEXTS)]
    assert sorted(suggestion.text for suggestion in suggest(nlp, records(repeated_texts), 50)) == sorted(TEXTS)
    rest = {suggestion.text for suggestion in suggest(nlp, records(repeated_texts), 50, annotated=["上海 在京"])}
    assert rest == set(TEXTS) - {"上海在京"}


def test_diversity_selection_uses_limited_candidate_pool(nlp: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    values = dict(zip(TEXTS, (5.0, 4.9, 4.8, 4.7, 1.0, 0.9, 0.8), strict=True))
    monkeypatch.setattr(module, "uncertainties", lambda ner, docs: [values[doc.text] for doc in docs])
    monkeypatch.setattr(module, "POOL", 2)
    assert {suggestion.text for suggestion in suggest(nlp, records(TEXTS), 2, annotated=TEXTS[:0])} <= set(TEXTS[:4])
    assert len(suggest(nlp, records(TEXTS), 1)) == 1
    assert len(suggest(nlp, records(TEXTS), 7)) == 7
    monkeypatch.setattr(module, "select_diverse", lambda weights, *_: range(len(weights)))
    assert [suggestion.text for suggestion in suggest(nlp, records(TEXTS), 3)] == TEXTS[:6]


def test_ties_in_uncertainty_preserve_input_order(nlp: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "uncertainties", lambda ner, docs: [1.0] * len(docs))
    monkeypatch.setattr(module, "BATCH", 2)
    assert [suggestion.text for suggestion in most_uncertain(nlp, records(TEXTS), 4)] == TEXTS[:4]


def numbered_texts(n: int) -> Iterator[str]:
    return (f"文{number}" for number in range(n))


def peak_memory(call: Callable[[], object]) -> int:
    """Return the peak memory of a call in bytes."""
    tracemalloc.start()
    call()
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size


def test_memory_usage_is_independent_of_text_count(nlp: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed_uncertainties(ner: TenerNER, docs: list[Doc]) -> list[float]:
        return [float(hash(doc.text) % 1000) for doc in docs]

    monkeypatch.setattr(module, "uncertainties", hashed_uncertainties)
    suggest(nlp, records(numbered_texts(300)), 5)
    peaks = [peak_memory(lambda n=n: suggest(nlp, records(numbered_texts(n)), 5)) for n in (1000, 4000)]
    assert peaks[1] < 1.5 * peaks[0]


def test_pipeline_without_crf_raises_error() -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("ner")
    with pytest.raises(UserError, match="no tener_ner"):
        suggest(nlp, records(TEXTS), 1)


# Diversity


def test_greedy_selection_maximizes_weight_and_diversity() -> None:
    random = np.random.default_rng(0)
    vectors = profiles(["".join(random.choice(list("甲乙丙丁戊己"), 6)) for _ in range(12)])
    weights = random.random(12).tolist()
    chosen = select_diverse(weights, vectors, 5)
    for count in range(5):
        selected, rest = chosen[:count], [i for i in range(12) if i not in chosen[:count]]
        gains = [weights[i] * (1.0 - max([float(vectors[i] @ vectors[j]) for j in selected] or [0.0])) for i in rest]
        assert chosen[count] == rest[int(np.argmax(gains))]


def test_annotated_texts_count_as_selected() -> None:
    texts = ["王小明去了上海", "今天天气很好"]
    assert select_diverse([1.0, 0.9], profiles(texts), 1) == [0]
    assert select_diverse([1.0, 0.9], profiles(texts), 1, ["王小明去了上海市"]) == [1]


def test_memory_usage_is_independent_of_annotated_text_count() -> None:
    vectors = profiles(["王小明去了上海", "今天天气很好"])

    peaks = [
        peak_memory(lambda n=n: select_diverse([1.0, 0.9], vectors, 1, numbered_texts(n)))
        for n in (2 * WIDTH, 8 * WIDTH)
    ]
    assert peaks[1] < 1.5 * peaks[0]


def test_profile_counts_padded_bigrams_and_trigrams() -> None:
    assert [int(np.count_nonzero(row)) for row in profiles(["", "京", "上海"])] == [1, 3, 5]
    assert np.flatnonzero(profiles(["上海"])).tolist() == [368, 674, 708, 776, 892], "the same on every machine"
    once, twice = profiles(["上海", "上海上海"])
    assert 0 < once @ twice < 1
    (row,) = profiles(["上海" * 4])
    assert row.max() / row[row > 0].min() == pytest.approx(2.0)  # counts of 4 and 1, after the square root
    assert np.linalg.norm(profiles(["王小明去了上海"])) == pytest.approx(1.0, abs=1e-6)


# Near-duplicates


@pytest.mark.parametrize(
    ("text", "repeat", "is_near"),
    [
        ("京京京京", "京京", True),
        ("转发微博转发微博", "转发微博", True),
        ("签到 123 天 http://t.cn/a1", "签到 9 天！http://t.cn/b2", True),
        ("Hello!", "hello...", True),
        ("！！！", "。。。", False),
        ("上海", "北京", False),
        ("A股", "B股", False),
    ],
)
def test_near_duplicate_key_groups_similar_texts(text: str, repeat: str, is_near: bool) -> None:
    assert (near_duplicate_key(text) == near_duplicate_key(repeat)) == is_near


def test_variety_is_fraction_of_distinct_4grams() -> None:
    assert [variety(text) for text in ("", "京", "京京京京", "abcde", "京" * 136)] == [1, 1, 1, 1, 1 / 133]
    assert variety("abcdabcd") == pytest.approx(4 / 5)


def test_repetitive_texts_rank_below_normal_texts(nlp: Language) -> None:
    repetitive = ["京" * 136, "去" * 90, "上海" * 60, "王小明" * 40]
    assert max(suggestion.uncertainty for suggestion in most_uncertain(nlp, records(repetitive), 4)) < min(
        suggestion.uncertainty for suggestion in most_uncertain(nlp, records(TEXTS[:3]), 3)
    )
    assert {suggestion.text for suggestion in suggest(nlp, records([*repetitive, *TEXTS]), 3)} <= set(TEXTS)


def test_near_duplicates_are_suggested_once(nlp: Language) -> None:
    posts = [f"王小明去了上海{number}次！ http://t.cn/{number}" for number in range(10, 60)]
    chosen = [suggestion.text for suggestion in suggest(nlp, records([*posts, *TEXTS]), 20)]
    assert sum(text in posts for text in chosen) == 1
    assert set(TEXTS) <= set(chosen)


def test_profiles_distinguish_texts_without_shared_ngrams() -> None:
    pairs = itertools.combinations(profiles(["上海北京", "京北海上", "abc", "", "京"]), 2)
    assert max(float(first @ second) for first, second in pairs) < 0.5
    assert prod(profiles(["上海 " * 3, "A"]).shape) == 2048
