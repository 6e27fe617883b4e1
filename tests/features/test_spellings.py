"""From tokens to the characters of distinct words."""

from __future__ import annotations

import numpy as np
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_tener.features.characters import HALF, spell

NLP = spacy.blank("en")
# What UTF-8, and so spaCy, can hold.
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def doc_of(*words, vocab=NLP.vocab):
    return Doc(vocab, words=list(words))


def texts(spellings):
    """The words again, as strings."""
    joined = "".join(map(chr, spellings.keys.tolist()))
    ends = np.cumsum(spellings.lengths).tolist()
    return [joined[end - length : end] for end, length in zip(ends, spellings.lengths.tolist(), strict=True)]


def read(*docs, digits=True):
    """Each token of the docs as the string that its word is spelled by."""
    spelled = spell(docs, digits=digits)
    words = texts(spelled.spellings)
    return [words[word] for word in spelled.words]


@given(st.lists(st.lists(STRINGS, max_size=6), min_size=1, max_size=4))
def test_every_token_is_spelled_as_it_is_written(batch):
    docs = [doc_of(*words) for words in batch]
    assert read(*docs, digits=False) == [word for words in batch for word in words]


def test_a_distinct_word_is_spelled_once():
    docs = [doc_of("the", "cat", "saw", "the", "cat"), doc_of(), doc_of("the", "The")]
    spelled = spell(docs, digits=True)
    assert sorted(texts(spelled.spellings)) == ["The", "cat", "saw", "the"]
    assert spelled.spellings.lengths.tolist() == [len(word) for word in texts(spelled.spellings)]
    assert spelled.words[[0, 1]].tolist() == spelled.words[[3, 4]].tolist()
    assert len(spelled.words) == 7


def test_digits_of_any_script_are_zeros_on_request_and_case_is_kept():
    doc = doc_of("iPhone15", "٣९", "½", "第3")
    assert read(doc) == ["iPhone00", "00", "½", "第0"]
    assert read(doc, digits=False) == ["iPhone15", "٣९", "½", "第3"]


def test_characters_beyond_the_basic_plane_are_one_each():
    assert spell([doc_of("𠮷野家", "👍🏽")], digits=True).spellings.lengths.sum() == 5
    assert read(doc_of("𠮷野家", "👍🏽")) == ["𠮷野家", "👍🏽"]


def test_of_a_very_long_token_both_ends_are_read():
    fits, longer = "ab" * HALF, "x" * HALF + "y" * 1000 + "z" * HALF
    assert read(doc_of(fits, longer)) == [fits, "x" * HALF + "z" * HALF]


def test_docs_of_several_vocabs_may_be_in_one_batch():
    other = spacy.blank("zh").vocab
    docs = [doc_of("zebra"), doc_of("斑马", "zebra", vocab=other), doc_of("quagga")]
    assert read(*docs) == ["zebra", "斑马", "zebra", "quagga"]


def test_docs_without_tokens_have_no_words():
    spelled = spell([doc_of(), doc_of()], digits=True)
    assert (spelled.words.size, spelled.spellings.keys.size, spelled.spellings.lengths.size) == (0, 0, 0)
