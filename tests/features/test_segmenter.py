"""Segmenters: jieba's words, and the tokens as words."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import rjieba
import spacy
from spacy.strings import get_string_id
from spacy.tokens import Doc

from spacy_tener.features import segmenter as module
from spacy_tener.features.characters import join_texts
from spacy_tener.features.segmenter import SOURCE_DOC, Division, JiebaSegmenter, TokenSegmenter, token_keys


def words_of(text, division):
    ends = np.cumsum(division.lengths)
    return [text[end - length : end] for end, length in zip(ends, division.lengths, strict=True)]


def test_docs_are_divided_one_by_one():
    nlp = spacy.blank("zh")
    docs = [nlp.make_doc("今天北"), nlp.make_doc(""), nlp.make_doc("京城\r"), nlp.make_doc("\n王小明")]
    text = join_texts(docs)
    division = JiebaSegmenter().divide(docs, text)
    expected = [pair for doc in docs for pair in [*rjieba.Jieba().tag(doc.text), ("\0", "x")]]
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


def test_without_rjieba_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    module._jieba.cache_clear()
    with pytest.raises(ImportError, match=r"package rjieba, which is not installed.*pip install 'spacy_tener\[zh\]'"):
        JiebaSegmenter().identity  # noqa: B018
