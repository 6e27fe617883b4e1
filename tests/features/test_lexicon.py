"""Lexicons: matches in Docs, compared with a brute-force search over all spans, and serialization."""

from __future__ import annotations

import copy
import itertools
import pickle
import weakref
import zlib
from typing import Any

import numpy as np
import pytest
import srsly
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.errors import UserError
from spacy_tener.features import lexicon as module
from spacy_tener.features.lexicon import Lexicon, Match
from spacy_tener.features.tokens import join_texts

VOCAB = Vocab()
OTHER_VOCAB = Vocab()
# Latin and Chinese letters, characters outside the basic plane, a combining accent, white space, and the separator
# between Docs.
SIGNS = "aAb中国𠀀😀\u0301 \n\0"
Found = list[tuple[str, int, int]]


def make_doc(words: list[str], spaces: list[bool] | None = None, vocab: Vocab = VOCAB) -> Doc:
    return Doc(vocab, words=words, spaces=spaces or [False] * len(words))


def character_doc(text: str) -> Doc:
    return make_doc(list(text))


def matches_of_docs(lexicon: Lexicon, match: Match) -> list[Found]:
    """Return the matched words of each Doc with their first and last token, in the order of the match."""
    words = [lexicon.words[word] for word in match.words]
    spans = list(zip(words, match.heads.tolist(), match.tails.tolist(), strict=True))
    ends = np.cumsum(match.counts).tolist()
    assert (ends[-1] if ends else 0) == len(spans)
    return [spans[end - count : end] for end, count in zip(ends, match.counts.tolist(), strict=True)]


def expected(lexicon: Lexicon, doc: Doc, max_words: int | None = None) -> Found:
    """Return all spans of tokens whose text is a word, by brute force."""
    words = set(lexicon.words)
    spans: Found = []
    for head in range(len(doc)):
        texts = ((doc.text[doc[head].idx : token.idx + len(token)], head, token.i) for token in doc[head:])
        spans_of_head = [span for span in texts if span[0] in words]
        spans += spans_of_head if max_words is None else spans_of_head[max(len(spans_of_head) - max_words, 0) :]
    return spans


tokens = st.tuples(st.text(SIGNS, min_size=1, max_size=3), st.booleans())
docs = st.builds(
    lambda pairs, vocab: make_doc([word for word, _ in pairs], [space for _, space in pairs], vocab),
    st.lists(tokens, max_size=12),
    st.sampled_from([VOCAB, OTHER_VOCAB]),
)
lexicons = st.builds(Lexicon, st.lists(st.text(SIGNS, max_size=5), max_size=12))


# Finding


@given(lexicons, st.lists(docs, max_size=4), st.none() | st.integers(0, 3))
def test_find_equals_brute_force_over_all_spans(lexicon: Lexicon, batch: list[Doc], max_words: int | None) -> None:
    match = lexicon.find(join_texts(batch), max_words)
    assert matches_of_docs(lexicon, match) == [expected(lexicon, doc, max_words) for doc in batch]


@given(docs, st.data(), st.integers(1, 7))
def test_search_window_size_does_not_change_matches(doc: Doc, data: Any, window: int) -> None:
    spans = [doc.text[i:j] for i, j in itertools.combinations(range(len(doc.text) + 1), 2)] or [""]
    lexicon = Lexicon(data.draw(st.lists(st.sampled_from(spans), max_size=10)))
    lexicon._window = window
    assert matches_of_docs(lexicon, lexicon.find(join_texts([doc]), 2)) == [expected(lexicon, doc, 2)]


@pytest.mark.parametrize("texts", [[], [""], ["", ""], ["没有词"], ["x"]])
def test_find_without_matches_returns_empty_arrays(texts: list[str]) -> None:
    for lexicon in (Lexicon([]), Lexicon(["中国"])):
        match = lexicon.find(join_texts([character_doc(text) for text in texts]), 2)
        assert match.counts.tolist() == [0] * len(texts)
        for array in (match.words, match.heads, match.tails):
            assert array.shape == (0,)
        for array in (match.words, match.heads, match.tails, match.counts):
            assert array.dtype == np.int64


def test_negative_max_words_raises_error() -> None:
    with pytest.raises(ValueError, match=r"max_words .* got -1"):
        Lexicon(["中国"]).find([character_doc("中国")], -1)


def test_max_words_limits_memory_during_search(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon("a" * length for length in range(2, 51))
    sizes: list[int] = []
    find = module.WordTrie.find

    def measure(*arguments: Any) -> Any:
        found = find(*arguments)
        sizes.append(found.shape[1])
        return found

    monkeypatch.setattr(module.WordTrie, "find", measure)
    lexicon.find(join_texts([character_doc("a" * 20_000)]), 1)
    assert len(sizes) > 2
    # Words may extend beyond the end of a window.
    assert max(sizes) < 1.02 * module._MATCHES_PER_WINDOW


# Words and tags


@pytest.mark.parametrize("string", ["", "人", "𠀀", "  ", "\n\t", "\u3000\u3000", "中\0国", "\0\0", "中\ud800"])
def test_invalid_words_are_excluded(string: str) -> None:
    lexicon = Lexicon([string, "中国"], ["x", "ns"])
    assert lexicon.words == ["中国"]
    assert lexicon.tag_names == ["", "ns"]
    assert string not in lexicon


@pytest.mark.parametrize(
    ("words", "tags", "tag_names", "indices"),
    [
        (["南京", "北京"], None, [""], [0, 0]),
        (["南京", "小明", "上海", "走过"], ["ns", "nr", "ns", ""], ["", "ns", "nr"], [1, 2, 1, 0]),
        (["南京", "北京", "南京"], ["ns", "", "nr"], ["", "ns"], [1, 0]),
    ],
    ids=["no tags", "in the order of their appearance", "the first of equal words wins"],
)
def test_tags_are_assigned_to_words(
    words: list[str], tags: list[str] | None, tag_names: list[str], indices: list[int]
) -> None:
    lexicon = Lexicon(words, tags)
    assert lexicon.words == list(dict.fromkeys(words))
    assert (lexicon.tag_names, lexicon.tags.tolist()) == (tag_names, indices)


def test_too_few_tags_raise_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Lexicon(["南京", "北京"], ["ns"])


def test_word_is_found_in_every_unicode_form() -> None:
    composed, decomposed = "Zoé中", "Zoe\u0301中"
    for word in (composed, decomposed):
        lexicon = Lexicon(["中国", word])
        docs = [character_doc(f"{text}国") for text in (composed, decomposed)]
        found = matches_of_docs(lexicon, lexicon.find(join_texts(docs)))
        assert found == [[(word, 0, 3), ("中国", 3, 4)], [(word, 0, 4), ("中国", 4, 5)]]
        assert lexicon.index([composed, decomposed]).tolist() == [1, 1]
        assert composed in lexicon


def test_index_returns_word_positions() -> None:
    lexicon = Lexicon(["南京", "一", "北京"])
    assert len(lexicon) == 2
    assert "北京" in lexicon
    assert "一" not in lexicon
    assert 3 not in lexicon
    indices = lexicon.index(["北京", "东京", "", "南京"])
    assert indices.tolist() == [1, -1, -1, 0]
    assert indices.dtype == np.int64
    assert lexicon.index([]).shape == (0,)


# Copies


tags = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)


@given(st.lists(st.tuples(st.text(max_size=6), tags)))
def test_bytes_round_trip_keeps_words_and_tags(pairs: list[tuple[str, str]]) -> None:
    lexicon = Lexicon((word for word, _ in pairs), (tag for _, tag in pairs))
    words, tag_names, tags = lexicon.words, lexicon.tag_names, lexicon.tags.tolist()
    data = lexicon.to_bytes()
    del lexicon
    loaded = Lexicon.from_bytes(data)
    assert (loaded.words, loaded.tag_names, loaded.tags.tolist()) == (words, tag_names, tags)
    assert loaded.to_bytes() == data


def test_copies_share_the_same_lexicon_object() -> None:
    lexicon = Lexicon(["中国", "国人"], ["ns", "n"])
    assert copy.copy(lexicon) is lexicon
    assert copy.deepcopy({"lexicon": lexicon})["lexicon"] is lexicon
    assert pickle.loads(pickle.dumps(lexicon)) is lexicon
    data = Lexicon(["汉字", "字典"]).to_bytes()
    assert Lexicon.from_bytes(lexicon.to_bytes()) is lexicon
    first, second = Lexicon.from_bytes(data), Lexicon.from_bytes(data)
    assert first is second


def _count(lexicon: Lexicon, text: str) -> tuple[int, bool]:
    built = "trie" in vars(lexicon)
    return int(lexicon.find(join_texts([character_doc(text)])).words.size), built


def test_pickle_loads_without_registered_lexicon(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon(["中国", "国人"], ["ns", "n"])
    data = pickle.dumps(lexicon)
    monkeypatch.setattr(module, "_LOADED", weakref.WeakValueDictionary())
    loaded = pickle.loads(data)
    assert loaded is not lexicon
    assert (loaded.words, loaded.tag_names, loaded.tags.tolist()) == (["中国", "国人"], ["", "ns", "n"], [1, 2])
    assert _count(loaded, "中国人") == (2, False)


def test_too_many_words_raise_error(monkeypatch):
    monkeypatch.setattr("spacy_tener.features.lexicon.MAX_LEXICON_WORDS", 100)
    with pytest.raises(ValueError, match=r"more than 100 words\. Use fewer"):
        Lexicon(f"词{number}" for number in itertools.count())
    with pytest.raises(ValueError, match="more than 100 words"):
        Lexicon(f"词{number}" for number in range(101))
    assert len(Lexicon(f"词{number}" for number in range(100))) == 100
    assert len(Lexicon(["甲乙"] * 200)) == 1


PACKED = Lexicon(["中国", "𠀀 b", "New\nYork"], ["", "ns", "人名"]).to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PACKED[:-5],
        PACKED[:40] + b"xxxx" + PACKED[44:],
        zlib.compress(b"short"),
        zlib.compress(srsly.msgpack_dumps([1, 2])),
        zlib.compress(srsly.msgpack_dumps({"words": "中国"})),
        zlib.compress(srsly.msgpack_dumps({"words": 3, "tag_names": [""], "tags": b""})),
        zlib.compress(srsly.msgpack_dumps({"words": "中国", "tag_names": [""], "tags": b"\0" * 8})),
        zlib.compress(srsly.msgpack_dumps({"words": "中国", "tag_names": [""], "tags": b"\1\0\0\0"})),
        pickle.dumps(["中国"]) * 3,
    ],
)
def test_damaged_bytes_raise_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=rf"The data \({len(data)} bytes\) is not a saved lexicon"):
        Lexicon.from_bytes(data)


@pytest.mark.parametrize("tag", ["\ud800", "n\0"])
def test_unserializable_tag_raises_error(tag):
    with pytest.raises(UserError, match=r"tag .* of a word in the lexicon cannot be saved"):
        Lexicon(["中国"], [tag])
