"""Word segmentation by jieba, word lists that override it, and segmentation features of tokens."""

from __future__ import annotations

import itertools

import numpy as np
import rjieba
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.strings import get_string_id
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features.segmenter import Segmentation, apply_word_lists, segment, token_keys
from spacy_tener.features.tokens import join_texts
from spacy_tener.features.word_lists import WordList, WordListEntry

VOCAB = Vocab()


def words_of(text, segmentation):
    ends = np.cumsum(segmentation.lengths)
    return [text[end - length : end] for end, length in zip(ends, segmentation.lengths, strict=True)]


def test_docs_are_segmented_separately():
    nlp = spacy.blank("zh")
    docs = [nlp.make_doc("今天北"), nlp.make_doc(""), nlp.make_doc("京城\r"), nlp.make_doc("\n王小明")]
    text = join_texts(docs)
    segmentation = segment(text)
    expected = [pair for doc in docs for pair in [*rjieba.Jieba().tag(doc.text), ("\0", "x")]]
    assert words_of(text.slice(0, len(text)), segmentation) == [word for word, _ in expected]
    assert segmentation.tags.tolist() == [get_string_id(tag) for _, tag in expected]


def keys_of(words, *, lengths, tags):
    doc = Doc(spacy.blank("zh").vocab, words=words, spaces=[False] * len(words))
    segmentation = Segmentation(np.array([*lengths, 1]), np.array([*tags, 0], dtype=np.uint64))
    return token_keys(join_texts([doc]), segmentation).tolist()


def test_token_keys_encode_word_position_and_tag():
    b, i, i2, e, s = keys_of(list("股份有限公"), lengths=[4, 1], tags=[7, 7])
    assert i == i2
    assert len({b, i, e, s}) == 4
    assert keys_of(list("甲乙丙丁"), lengths=[1, 2, 1], tags=[7, 7, 7]) == [s, b, e, s]
    assert not {b, i, e, s} & set(keys_of(list("股份有限公"), lengths=[4, 1], tags=[8, 8]))


def test_multi_character_token_keys_use_word_boundaries():
    b, i, _, e = keys_of(list("股份有限"), lengths=[4], tags=[7])
    (s,) = keys_of(["股"], lengths=[1], tags=[7])
    assert keys_of(["股份", "有限"], lengths=[4], tags=[7]) == [b, e]
    assert keys_of(["股", "份有", "限"], lengths=[4], tags=[7]) == [b, i, e]
    assert keys_of(["股份有限", "公司"], lengths=[2, 2, 2], tags=[7, 8, 7]) == [s, s]


def is_latin(char):
    return char.isascii() and char.isalnum()


def apply_list(text, segmentation, words):
    """Apply a word list to a segmentation by forward maximum matching, as a reference."""
    word_of_character = [(word, tag) for word, (length, tag) in enumerate(segmentation) for _ in range(length)]
    start = 0
    while start < len(text):
        found = [word for word in words if text.startswith(word, start) and not cuts(text, start, start + len(word))]
        if found:
            word = max(found, key=len)
            end = start + len(word)
            tag = words[word] or word_of_character[end - 1][1]
            word_of_character[start:end] = [((start, "listed"), tag)] * len(word)
            start = end
        else:
            start += 1
    return [(len(list(group)), tag) for (_, tag), group in itertools.groupby(word_of_character)]


def cuts(text, *edges):
    return any(0 < edge < len(text) and is_latin(text[edge - 1]) and is_latin(text[edge]) for edge in edges)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_word_lists_override_segmenter(data):
    texts = data.draw(st.lists(st.text("甲乙丙aZ9", max_size=9), min_size=1, max_size=4))
    docs = [Doc(VOCAB, words=list(text), spaces=[False] * len(text)) for text in texts]
    segmentations = []
    for text in texts:
        ends = sorted(data.draw(st.sets(st.integers(1, max(len(text), 1))))) if text else []
        ends = [*(end for end in ends if end < len(text)), len(text)] if text else []
        segmentations.append(
            [(end - start, data.draw(st.integers(1, 3))) for start, end in itertools.pairwise([0, *ends])]
        )
    joined = [part for segmentation in segmentations for part in [*segmentation, (1, 0)]]
    lengths, tags = np.array(joined, dtype=np.int64).T
    words = st.dictionaries(st.text("甲乙丙aZ9", min_size=2, max_size=4), st.sampled_from(["", "x", "y"]), max_size=5)
    lists = data.draw(st.lists(st.tuples(words, st.sets(st.integers(0, len(texts) - 1), min_size=1)), max_size=2))
    word_lists = [
        (WordList({word: WordListEntry(tag) for word, tag in words.items()}), np.array(sorted(indices)))
        for words, indices in lists
        if words
    ]
    found, _ = apply_word_lists(join_texts(docs), Segmentation(lengths, tags.astype(np.uint64)), word_lists)
    expected = []
    for index, (text, segmentation) in enumerate(zip(texts, segmentations, strict=True)):
        for words, indices in lists:
            if index in indices:
                hashes = {word: get_string_id(tag) if tag else 0 for word, tag in words.items()}
                segmentation = apply_list(text, segmentation, hashes)
        expected += [*segmentation, (1, 0)]
    assert list(zip(found.lengths.tolist(), found.tags.tolist(), strict=True)) == expected


def test_adjacent_list_words_match_and_partial_latin_word_does_not():
    doc = Doc(VOCAB, words=list("大甲乙丙丁aZ9"), spaces=[False] * 8)
    lists = [(WordList(dict.fromkeys(["甲乙", "丙丁", "aZ"], WordListEntry())), np.array([0]))]
    segmentation = Segmentation(np.array([8, 1]), np.array([1, 0], dtype=np.uint64))
    found, _ = apply_word_lists(join_texts([doc]), segmentation, lists)
    assert found.lengths.tolist() == [1, 2, 2, 3, 1]
