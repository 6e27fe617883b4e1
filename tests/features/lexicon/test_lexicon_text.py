"""Docs as one text: what it says, and where tokens begin and end in it."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features.lexicon.text import join_texts

VOCAB = Vocab()
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
docs = st.lists(st.tuples(texts, st.booleans()), max_size=8).map(
    lambda pairs: Doc(VOCAB, words=[word for word, _ in pairs], spaces=[space for _, space in pairs])
)


@given(st.lists(docs, max_size=4))
def test_texts_of_docs_stand_one_after_the_other(batch: list[Doc]) -> None:
    joined = join_texts(batch)
    assert joined.slice(0, len(joined)) == "".join(f"{doc.text}\0" for doc in batch)
    assert joined.lengths.tolist() == [len(doc) for doc in batch]


@given(st.lists(docs, max_size=4))
def test_tokens_are_known_by_their_first_and_last_places(batch: list[Doc]) -> None:
    joined = join_texts(batch)
    text = joined.slice(0, len(joined))
    starts, ends = np.flatnonzero(joined.starting >= 0), np.flatnonzero(joined.ending >= 0)
    tokens = [token.text for doc in batch for token in doc]
    assert joined.starting[starts].tolist() == joined.ending[ends].tolist() == list(range(len(tokens)))
    assert [text[start : end + 1] for start, end in zip(starts, ends, strict=True)] == tokens


def test_slices_count_code_points() -> None:
    joined = join_texts([Doc(VOCAB, words=["𠀀", "a😀", "b"], spaces=[True, False, False])])
    assert [joined.slice(i, i + 1) for i in range(len(joined))] == ["𠀀", " ", "a", "😀", "b", "\0"]
    assert joined.slice(2, 100) == "a😀b\0"
    assert joined.starting.tolist() == [0, -1, 1, -1, 2, -1]
    assert joined.ending.tolist() == [0, -1, -1, 1, 2, -1]


def test_docs_of_several_vocabs_are_joined() -> None:
    batch = [Doc(Vocab(), words=[word, "共有"]) for word in ("甲乙", "丙", "IS_ALPHA", "甲乙")]
    joined = join_texts(batch)
    assert joined.slice(0, len(joined)) == "甲乙 共有 \0丙 共有 \0IS_ALPHA 共有 \0甲乙 共有 \0"


@pytest.mark.parametrize(("lang", "text"), [("zh", "我在 北京\n  New York。 "), ("en", " It's  a\ttest… ")])
def test_pipelines_own_docs_keep_their_white_space(lang: str, text: str) -> None:
    doc = spacy.blank(lang)(text)
    joined = join_texts([doc])
    assert joined.slice(0, len(text)) == text
    assert np.flatnonzero(joined.starting >= 0).tolist() == [token.idx for token in doc]
