"""Tests of the characters, bigrams and words of a text, which have to be the strings that the embedders look up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from research.vectors.strings import (
    BIGRAMS,
    CHARS,
    KINDS,
    WORDS,
    JiebaSplitter,
    TextSettings,
    TextSplitter,
    TokenSplitter,
    bigrams,
    characters,
)
from spacy_tener.features.keys import END_MARK, Normalizer, bigram_key_array, pair_keys, unigram_key_array

PLAIN = Normalizer(digits=False)


@pytest.fixture(scope="module")
def jieba_words() -> JiebaSplitter:
    return JiebaSplitter(Normalizer(lower=True))


# Characters


def test_characters_are_normalised_one_by_one() -> None:
    normalise = Normalizer(digits=True, lower=True)
    assert characters("A１٣b7𠮷", normalise) == ["a", "0", "0", "b", "0", "𠮷"]
    # Characters are converted one by one. The lower case of the whole text would have another sigma at the end of the
    # word.
    assert characters("ΟΣ", normalise) == ["ο", "σ"]


@pytest.mark.parametrize("text", ["第一条 为了", "　　为了　规范", "a\u00a0b", "好 \u3000好", "无"])
def test_characters_are_the_tokens_of_spacys_chinese_tokenizer(text: str) -> None:
    tokens = [token.text for token in spacy.blank("zh")(text)]
    assert characters(text, PLAIN) == tokens


@pytest.mark.parametrize("text", ["", " ", " \t ", "\r"])
def test_blank_text_has_no_characters(text: str) -> None:
    assert characters(text, PLAIN) == []


@given(st.text(st.one_of(st.characters(codec="utf8"), st.sampled_from(" \t\r\v\f\u3000\u00a0上海市长ab12,。"))))
@pytest.mark.parametrize(
    "splitter",
    [
        partial(characters, normalise=PLAIN),
        JiebaSplitter(PLAIN),
        TokenSplitter(PLAIN, "en"),
    ],
    ids=["characters", "words", "tokens"],
)
def test_no_string_can_break_the_trainers_lines(splitter: Callable[[str], list[str]], text: str) -> None:
    for string in splitter(text):
        assert string.encode().split() == [string.encode()]


# Bigrams


@given(st.text(st.sampled_from("上海市2３aB𠮷。<"), min_size=1))
def test_bigrams_have_the_keys_that_the_embedder_looks_up(text: str) -> None:
    normalizer = Normalizer(digits=True, lower=True)
    keys = unigram_key_array(text, normalizer)
    looked_up = pair_keys(keys, np.asarray([len(text)]), normalizer.key(END_MARK))
    written = bigrams(characters(text, normalizer))
    np.testing.assert_array_equal(bigram_key_array(written, normalizer), looked_up)


# Words


def test_chinese_words_are_jiebas(jieba_words: JiebaSplitter) -> None:
    assert jieba_words("有限责任公司 的　股东") == ["有限责任", "公司", "的", "股东"]


def test_words_of_the_dictionary_stay_as_they_are_and_others_are_normalised(jieba_words: JiebaSplitter) -> None:
    assert jieba_words("T恤2011年ABC") == ["T恤", "0000", "年", "abc"]


def test_other_languages_have_the_words_of_spacys_tokenizer() -> None:
    assert TokenSplitter(Normalizer(lower=True), "en")("Don't  panic in 1999!") == [
        "do",
        "n't",
        "panic",
        "in",
        "0000",
        "!",
    ]


def test_language_that_spacy_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokenizer for the language 'qq'"):
        TokenSplitter(Normalizer(), "qq")


# All at once


@pytest.mark.parametrize("kinds", [KINDS, (CHARS,), (BIGRAMS,), (WORDS,), (WORDS, CHARS)])
def test_only_what_is_wanted_is_split(kinds: tuple[str, ...]) -> None:
    expected = {CHARS: ["i", "n"], BIGRAMS: ["in", "n<eos>"], WORDS: ["in"]}
    assert TextSplitter(kinds, TextSettings(lang="en", digits=False))("in") == {kind: expected[kind] for kind in kinds}
