"""Simplification of characters: traditional to simplified Chinese, full width to half width, one for one.

Strings and code points are simplified alike. Lexicons and segmenters use it to match words in both scripts.
"""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features.characters import code_points
from spacy_tener.features.keys import simplify, simplify_codes
from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.segmenter import apply_word_lists, segment
from spacy_tener.features.tokens import join_texts
from spacy_tener.features.word_lists import WordList, WordListEntry

SIMPLIFIED, TRADITIONAL = "吴重阳在中国台湾银行里工作，ＩＢＭ", "吳重陽在中國臺灣銀行裡工作，IBM"


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        ("台臺里裡裏发發髮", "台台里里里发发发"),
        ("衞生衛生枱", "卫生卫生台"),
        ("ＩＢＭ　１５％（！）～", "IBM 15%(!)~"),
        ("ｶﾞ豈①²", "カ\u3099岂12"),
        ("嘅咗喺冇佢哋", "嘅咗喺冇佢哋"),
        ("の々カナ込畑한글", "の々カナ込畑한글"),
        ("乾隆 iPhone\n\u2028é", "乾隆 iPhone\n\u2028é"),
        ("㈱…ﬁ℃👍", "㈱…ﬁ℃👍"),
    ],
)
def test_simplify_normalises_script_and_width(text: str, simplified: str) -> None:
    assert simplify(text) == simplified


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_simplify_is_idempotent_and_keeps_length(text: str) -> None:
    simplified = simplify(text)
    assert len(simplified) == len(text)
    assert simplify(simplified) == simplified
    assert simplify_codes(code_points(text)).tolist() == code_points(simplified).tolist()


def test_simplify_applies_single_character_nfkc_forms() -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    pairs = [(character, unicodedata.normalize("NFKC", character)) for character in characters]
    changed = [(character, nfkc) for character, nfkc in pairs if len(nfkc) == 1 and nfkc != character]
    assert len(changed) > 3000
    assert [simplify(character) for character, _ in changed] == [simplify(nfkc) for _, nfkc in changed]


def doc_of(text: str) -> Doc:
    return Doc(Vocab(), words=list(text), spaces=[False] * len(text))


def test_lexicon_matches_simplified_and_traditional_text() -> None:
    lexicon = Lexicon(["台湾银行", "臺灣", "台湾", "IBM"], ["a", "b", "c", "d"])
    found = lexicon.find(join_texts([doc_of(SIMPLIFIED), doc_of(TRADITIONAL)]))
    assert [lexicon.words[word] for word in found.words] == ["臺灣", "台湾银行", "IBM"] * 2
    assert found.heads.tolist() == [6, 6, 14] * 2
    assert "臺灣銀行" in lexicon
    assert lexicon.index(["ＩＢＭ", "台湾", "台"]).tolist() == [3, 1, -1]


def test_segmenter_treats_both_chinese_scripts_alike() -> None:
    texts = [join_texts([doc_of(text)]) for text in (SIMPLIFIED, TRADITIONAL)]
    simplified, traditional = map(segment, texts)
    assert simplified.lengths.tolist() == traditional.lengths.tolist()
    assert simplified.tags.tolist() == traditional.tags.tolist()
    assert simplified.lengths.size < len(SIMPLIFIED)


def test_word_list_overrides_segmenter_in_both_scripts() -> None:
    words = WordList({"重陽在": WordListEntry(), "ＢＭ": WordListEntry()})
    for text in (SIMPLIFIED, TRADITIONAL):
        joined = join_texts([doc_of(text)])
        segmentation, _ = apply_word_lists(joined, segment(joined), [(words, np.array([0]))])
        ends = np.cumsum(segmentation.lengths)
        assert {1, 4} <= set(ends.tolist())
        # BM in IBM is not a word.
        assert segmentation.lengths[-2] == 3
