"""A lexicon's bytes: what comes back, and what is refused."""

from __future__ import annotations

import pickle
import zlib

import numpy as np
import pytest

from spacy_tener.features.lexicon.lexicon import Lexicon
from spacy_tener.features.lexicon.packed import pack, unpack

TAGS = np.asarray([1, 0, 2], dtype=np.int32)
PACKED = pack(["中国", "𠀀 b", "New\nYork"], ["", "ns", "人名"], TAGS)


def test_words_and_tags_come_back() -> None:
    words, tag_names, tags = unpack(PACKED)
    assert words == ["中国", "𠀀 b", "New\nYork"]
    assert tag_names == ["", "ns", "人名"]
    np.testing.assert_array_equal(tags, TAGS)
    assert tags.dtype == np.int32


def test_empty_lexicon_comes_back() -> None:
    words, tag_names, tags = unpack(pack([], [""], np.zeros(0, dtype=np.int32)))
    assert (words, tag_names, tags.shape) == ([], [""], (0,))


def test_bytes_are_far_fewer_than_those_of_the_words() -> None:
    words = [f"{a}{b}{c}大学" for a in "东南西北中" for b in "京海山湖州" for c in "理工农医师"]
    data = pack(words, ["", "nt"], np.ones(len(words), dtype=np.int32))
    assert len(data) < sum(len(word.encode()) for word in words) / 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"lexicon1",
        PACKED[:-5],
        PACKED[:40] + b"xxxx" + PACKED[44:],
        b"lexicon2" + PACKED[8:],
        PACKED[:8] + b"\xff" * 8 + PACKED[16:],
        PACKED[:32] + zlib.compress(b"short"),
        pickle.dumps(["中国"]) * 3,
    ],
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=rf"These {len(data)} bytes are no lexicon"):
        Lexicon.from_bytes(data)


def test_tag_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="tag of the lexicon contains NUL"):
        Lexicon(["中国"], ["n\0s"]).to_bytes()
