"""Chinese word segmentation with part-of-speech tags.

`segment` calls the segmenter jieba. `apply_word_lists` corrects a segmentation by the word lists that users add to a
pipeline. `token_keys` converts a segmentation to the input of `SegmentEmbed`. The component `lac` uses the same
functions for LAC's segmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np
from spacy.strings import get_string_id

from ..errors import check_package
from ..sequences import ranges
from ..types import IntArray
from .characters import JoinedText, lengths_of
from .keys import Keys, mix
from .word_lists import WordList, find_list_words

# Sample text for `jieba_version`. Its segmentation depends on jieba's dictionary and HMM, and on how digits, URLs and
# Latin letters are treated.
_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_BEGIN, _END = 1, 2
_hash = lru_cache(maxsize=1000)(get_string_id)


@dataclass(frozen=True)
class Segmentation:
    """A segmentation of the concatenated texts in a `JoinedText` into words.

    Every character, including separators and white space, belongs to a word.

    lengths (IntArray): Word lengths in characters. *Shape:* (words,)
    tags (Keys): Hash of each word's part of speech, or 0 if it has none. *Shape:* (words,)
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, segmentation: Segmentation) -> Keys:
    """Return a key for each token that combines its position in a word and the word's part of speech.

    The position is B if a word starts with the token, E if a word ends with the token, S if both apply, and otherwise
    I. The part of speech is that of the word at the token's first character.

    RETURNS (Keys): The keys. *Shape:* (tokens,)
    """
    ends = np.cumsum(segmentation.lengths)
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[ends] = True
    # The positions are encoded as I = 0, B = 1, E = 2, S = 3.
    edges = (
        begins[text.first_characters] * _BEGIN
        + begins[np.maximum(text.last_characters, text.first_characters) + 1] * _END
    )
    return mix(np.repeat(segmentation.tags, segmentation.lengths)[text.first_characters], edges.astype(np.uint64))


def keys_of_tag(tag: str) -> Keys:
    """Return the keys of the positions I, B, E and S for a part of speech, as in `token_keys`. *Shape:* (4,)"""
    return mix(np.full(4, get_string_id(tag), dtype=np.uint64), np.arange(4, dtype=np.uint64))


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """Return an instance of jieba for this package, which other code cannot modify."""
    check_package("rjieba", "Word segmentation requires")
    import rjieba

    return rjieba.Jieba()


def jieba_version() -> tuple[str, str]:
    """Return a fingerprint of jieba, and its package's name and version.

    The fingerprint is a hash of a sample text's segmentation. Both values are saved with a pipeline. If the installed
    jieba has a different fingerprint, the segmentation may differ from the segmentation during training.
    """
    words = repr(_jieba().tag(_PROBE)).encode()
    return f"jieba {blake2b(words, digest_size=8).hexdigest()}", f"rjieba {version('rjieba')}"


def segment(text: JoinedText) -> Segmentation:
    """Segment texts with jieba, which finds words that are not in its dictionary by an HMM."""
    # jieba's dictionary is in simplified script. All texts are segmented in one call, since jieba returns each
    # separator as a single word.
    pairs = _jieba().tag(text.simplified.slice(0, len(text)))
    words, tags = zip(*pairs, strict=True) if pairs else ((), ())
    return Segmentation(lengths_of(words), np.fromiter(map(_hash, tags), dtype=np.uint64, count=len(tags)))


def apply_word_lists(
    text: JoinedText, segmentation: Segmentation, lists: Sequence[tuple[WordList, IntArray]]
) -> tuple[Segmentation, Segmentation]:
    """Correct a segmentation by the words in word lists.

    The words of a list are found by forward maximum matching. If lists overlap, the last list takes precedence. If a
    match covers only a part of a word, the remaining characters become words with the same tag. A list word without a
    tag gets the tag that the segmenter assigned to its last character.

    lists (Sequence[tuple[WordList, IntArray]]): The lists, each with the indices of the texts to which it applies.
    RETURNS (tuple[Segmentation, Segmentation]): The new segmentation with the lists' tags, and the new segmentation
        with the segmenter's tags only.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(segmentation.lengths)] = True
    # Tags per character. `without_lists` contains only the segmenter's tags, and `tags` also contains the lists' tags.
    original = np.repeat(segmentation.tags, segmentation.lengths)
    tags, without_lists = original.copy(), original.copy()
    for words, docs in lists:
        first_indices, ends, keys = _find_longest(text, words, docs)
        inside = ranges(first_indices, ends - first_indices)
        begins[inside] = False
        begins[first_indices] = begins[ends] = True
        tags[inside] = np.repeat(np.where(keys == 0, tags[ends - 1], keys), ends - first_indices)
        without_lists[inside] = np.repeat(original[ends - 1], ends - first_indices)
    starts = np.flatnonzero(begins[:-1])
    lengths = np.diff(starts, append=len(text))
    return Segmentation(lengths, tags[starts]), Segmentation(lengths, without_lists[starts])


def _find_longest(text: JoinedText, words: WordList, docs: IntArray) -> tuple[IntArray, IntArray, Keys]:
    """Find the words of a list by forward maximum matching. The matches do not overlap.

    RETURNS (tuple[IntArray, IntArray, Keys]): The start, the end, and the tag's hash for each match. The hash is 0 if
        the word has no tag. *Shape:* (matches,) each
    """
    first_indices, ends, indices = find_list_words(words, text, docs)
    chosen, stop = [], 0
    for row in np.lexsort((-ends, first_indices)).tolist():
        entry = words.listed[indices[row]]
        if first_indices[row] >= stop and not entry.hidden:
            chosen.append((first_indices[row], ends[row], _hash(entry.tag) if entry.tag else 0))
            stop = ends[row]
    begins, stops, keys = zip(*chosen, strict=True) if chosen else ((), (), ())
    return np.array(begins, np.int64), np.array(stops, np.int64), np.array(keys, np.uint64)
