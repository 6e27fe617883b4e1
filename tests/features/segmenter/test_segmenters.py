"""Who divides texts into words: rjieba, jieba with the same result, or the tokens."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.strings import get_string_id
from spacy.tokens import Doc

from spacy_tener.features.lexicon.text import join_texts
from spacy_tener.features.segmenter import segmenters
from spacy_tener.features.segmenter.division import Division, token_keys
from spacy_tener.features.segmenter.jieba_python import JiebaTagger
from spacy_tener.features.segmenter.segmenters import SOURCE_DOC, JiebaSegmenter, TokenSegmenter

TEXTS = [
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。",
    "陆毅曹芙嘉《蒲公英》 http://t.cn/zYimvPe（分享自@土豆网）",
    "卡拉OK和T恤打5.5折，C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣",
    "然後就最後悔，不懷著沈灵佳的心\r\n\t泰国C.H.InternationalTradingCo.",
    "㐀㐀不𠀀𠀀人，豈ａ１é1 ... --",
    "在百变人气偶像孙坚首张EP《公主驾到》第二波深情主打歌曲里",
]
ALPHABET = "".join(TEXTS) + "王小明张尧赛琳曼琦魏腾飞北京大学生前来应聘电商经理 \n09azAZ.%-_+#&"


@pytest.fixture(scope="module")
def rust():
    return importlib.import_module("rjieba").Jieba()


@pytest.fixture(scope="module")
def python():
    return JiebaTagger()


@pytest.mark.parametrize("text", TEXTS)
def test_jieba_reads_what_rjieba_reads(rust, python, text):
    assert python.tag(text) == rust.tag(text)


# The same texts each time: of 20,000, some have two divisions that are equally likely but for the last digit.
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(ALPHABET), max_size=12))
def test_jieba_reads_any_text_as_rjieba_does(rust, python, text):
    assert python.tag(text) == rust.tag(text)


def words_of(text, division):
    ends = np.cumsum(division.lengths)
    return [text[end - length : end] for end, length in zip(ends, division.lengths, strict=True)]


def test_docs_are_divided_one_by_one(rust):
    nlp = spacy.blank("zh")
    docs = [nlp.make_doc("今天北"), nlp.make_doc(""), nlp.make_doc("京城\r"), nlp.make_doc("\n王小明")]
    text = join_texts(docs)
    division = JiebaSegmenter().divide(docs, text)
    expected = [pair for doc in docs for pair in [*rust.tag(doc.text), ("\0", "x")]]
    assert words_of(text.slice(0, len(text)), division) == [word for word, _ in expected]
    assert division.tags.tolist() == [get_string_id(tag) for _, tag in expected]


def test_tokens_are_words_with_their_tags_and_the_space_between_them_has_none():
    vocab = spacy.blank("zh").vocab
    doc = Doc(vocab, words=["北京", "欢迎", "你"], spaces=[True, False, False], tags=["ns", "v", "r"])
    docs = [Doc(vocab), doc]
    division = TokenSegmenter("TAG").divide(docs, join_texts(docs))
    assert division.lengths.tolist() == [1, 2, 1, 2, 1, 1]
    tags = [0, get_string_id("ns"), 0, get_string_id("v"), get_string_id("r"), 0]
    assert division.tags.tolist() == tags


@pytest.mark.parametrize(
    ("start", "stop", "lengths", "last"),
    [(0, 6, [2, 1, 2, 1], "r"), (1, 5, [1, 1, 2], "v"), (4, 6, [1, 1], "r")],
)
def test_characters_know_the_tokens_of_the_doc_they_were_taken_from(start, stop, lengths, last):
    vocab = spacy.blank("zh").vocab
    doc = Doc(vocab, words=["北京", "欢迎", "你"], spaces=[True, False, False], tags=["ns", "v", "r"])
    part = Doc(vocab, words=list(doc.text[start:stop]), spaces=[False] * (stop - start))
    part.user_data[SOURCE_DOC] = (doc, start)
    division = TokenSegmenter("TAG").divide([part], join_texts([part]))
    assert division.lengths.tolist() == [*lengths, 1]
    assert division.tags[-2] == get_string_id(last)


def keys_of(words, *, lengths, tags):
    doc = Doc(spacy.blank("zh").vocab, words=words, spaces=[False] * len(words))
    division = Division(np.array([*lengths, 1]), np.array([*tags, 0], dtype=np.uint64))
    return token_keys(join_texts([doc]), division).tolist()


def test_the_characters_of_a_word_differ_by_their_edges_and_words_by_their_tags():
    b, i, i2, e, s = keys_of(list("股份有限公"), lengths=[4, 1], tags=[7, 7])
    assert i == i2
    assert len({b, i, e, s}) == 4
    assert keys_of(list("甲乙丙丁"), lengths=[1, 2, 1], tags=[7, 7, 7]) == [s, b, e, s]
    assert not {b, i, e, s} & set(keys_of(list("股份有限公"), lengths=[4, 1], tags=[8, 8]))


def test_tokens_of_several_characters_have_the_edges_of_the_words_they_begin_and_end():
    b, i, _, e = keys_of(list("股份有限"), lengths=[4], tags=[7])
    (s,) = keys_of(["股"], lengths=[1], tags=[7])
    assert keys_of(["股份", "有限"], lengths=[4], tags=[7]) == [b, e]
    assert keys_of(["股", "份有", "限"], lengths=[4], tags=[7]) == [b, i, e]
    assert keys_of(["股份有限", "公司"], lengths=[2, 2, 2], tags=[7, 8, 7]) == [s, s]


def test_without_rjieba_jieba_reads_and_a_pipeline_knows_no_difference(monkeypatch):
    by_rust = JiebaSegmenter().identity
    there = segmenters.find_spec
    monkeypatch.setattr(segmenters, "find_spec", lambda name: None if name == "rjieba" else there(name))
    segmenters._jieba.cache_clear()
    try:
        by_python = JiebaSegmenter().identity
        monkeypatch.setattr(segmenters, "find_spec", lambda name: None)
        segmenters._jieba.cache_clear()
        with pytest.raises(ImportError, match=r"pip install 'spacy_tener\[zh\]'"):
            JiebaSegmenter().identity  # noqa: B018
    finally:
        segmenters._jieba.cache_clear()
    assert by_rust[0] == by_python[0]
    assert (by_rust[1].split()[0], by_python[1].split()[0]) == ("rjieba", "jieba")
