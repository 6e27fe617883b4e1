"""Characters of Docs: the spellings of distinct words, and the concatenated text of a batch."""

from __future__ import annotations

import numpy as np
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features.characters import MAX_AT_EACH_END
from spacy_tener.features.keys import Normalizer
from spacy_tener.features.tokens import TokenBatch, join_texts, spell

NLP = spacy.blank("en")
# Strings that UTF-8, and therefore spaCy, can represent.
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def doc_of(*words, vocab=NLP.vocab):
    return Doc(vocab, words=list(words))


def decode_spellings(spellings):
    """Return the spelled words as strings."""
    joined = "".join(map(chr, spellings.keys.tolist()))
    ends = np.cumsum(spellings.lengths).tolist()
    return [joined[end - length : end] for end, length in zip(ends, spellings.lengths.tolist(), strict=True)]


def spell_tokens(*docs, digits=True):
    """Return the spelling of each token."""
    spellings = spell(TokenBatch.of(docs), Normalizer(digits=digits))
    words = decode_spellings(spellings)
    return [words[word] for word in spellings.words]


@given(st.lists(st.lists(STRINGS, max_size=6), min_size=1, max_size=4))
def test_spelling_equals_token_text(batch):
    docs = [doc_of(*words) for words in batch]
    assert spell_tokens(*docs, digits=False) == [word for words in batch for word in words]


def test_repeated_words_share_a_spelling():
    docs = [doc_of("the", "cat", "saw", "the", "cat"), doc_of(), doc_of("the", "The")]
    spellings = spell(TokenBatch.of(docs), Normalizer())
    assert sorted(decode_spellings(spellings)) == ["The", "cat", "saw", "the"]
    assert spellings.lengths.tolist() == [len(word) for word in decode_spellings(spellings)]
    assert spellings.words[[0, 1]].tolist() == spellings.words[[3, 4]].tolist()
    assert len(spellings.words) == 7


def test_digit_normalisation_covers_all_scripts_and_keeps_case():
    doc = doc_of("iPhone15", "٣९", "½", "第3")
    assert spell_tokens(doc) == ["iPhone00", "00", "½", "第0"]
    assert spell_tokens(doc, digits=False) == ["iPhone15", "٣९", "½", "第3"]


def test_long_token_is_truncated_in_the_middle():
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 2 * MAX_AT_EACH_END + 1)))
    for length in (MAX_AT_EACH_END + 1, 2 * MAX_AT_EACH_END):
        assert spell_tokens(doc_of(text[:length])) == [text[:length]]
    assert spell_tokens(doc_of(text)) == [text[:MAX_AT_EACH_END] + text[-MAX_AT_EACH_END:]]


def test_batch_supports_docs_with_different_vocabs():
    chinese = spacy.blank("zh").vocab
    docs = [doc_of("zebra"), doc_of("斑马", "zebra", vocab=chinese), doc_of("quagga")]
    assert spell_tokens(*docs) == ["zebra", "斑马", "zebra", "quagga"]


def test_empty_docs_have_no_words():
    spellings = spell(TokenBatch.of([doc_of(), doc_of()]), Normalizer())
    assert (spellings.words.size, spellings.keys.size, spellings.lengths.size) == (0, 0, 0)


# Concatenated texts

VOCAB = Vocab()
short = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
docs = st.lists(st.tuples(short, st.booleans()), max_size=8).map(
    lambda pairs: Doc(VOCAB, words=[word for word, _ in pairs], spaces=[space for _, space in pairs])
)


@given(st.lists(docs, max_size=4))
def test_joined_text_concatenates_docs_with_separators(batch: list[Doc]) -> None:
    joined = join_texts(batch)
    assert joined.slice(0, len(joined)) == "".join(f"{doc.text}\0" for doc in batch)
    assert joined.lengths.tolist() == [len(doc) for doc in batch]


@given(st.lists(docs, max_size=4))
def test_joined_text_maps_characters_to_token_boundaries(batch: list[Doc]) -> None:
    joined = join_texts(batch)
    text = joined.slice(0, len(joined))
    starts, ends = np.flatnonzero(joined.tokens_starting >= 0), np.flatnonzero(joined.tokens_ending >= 0)
    tokens = [token.text for doc in batch for token in doc]
    assert joined.tokens_starting[starts].tolist() == joined.tokens_ending[ends].tolist() == list(range(len(tokens)))
    assert [text[start : end + 1] for start, end in zip(starts, ends, strict=True)] == tokens


def test_joined_text_supports_different_vocabs() -> None:
    batch = [Doc(Vocab(), words=[word, "共有"]) for word in ("甲乙", "丙", "IS_ALPHA", "甲乙")]
    joined = join_texts(batch)
    assert joined.slice(0, len(joined)) == "甲乙 共有 \0丙 共有 \0IS_ALPHA 共有 \0甲乙 共有 \0"
