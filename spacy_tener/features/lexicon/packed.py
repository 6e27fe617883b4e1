"""A lexicon's words and tags as bytes."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from .text import SEPARATOR

_MAGIC = b"lexicon1"
_SIZES = struct.Struct("<8sQQQ")
_TAG = np.dtype("<i4")


def pack(words: list[str], tag_names: list[str], tags: NDArray[np.int32]) -> bytes:
    """No word contains the separator; a tag that does is refused."""
    if any(SEPARATOR in name for name in tag_names):
        raise ValueError("A tag of the lexicon contains NUL. Use tags without it.")
    parts = [_encode(words), _encode(tag_names), tags.astype(_TAG).tobytes()]
    # The lowest level: a fifth of the time of the usual one, for a tenth more bytes.
    return _SIZES.pack(_MAGIC, len(words), len(parts[0]), len(parts[1])) + zlib.compress(b"".join(parts), level=1)


def unpack(data: bytes) -> tuple[list[str], list[str], NDArray[np.int32]]:
    try:
        magic, n_words, *sizes = _SIZES.unpack_from(data)
        joined = zlib.decompress(memoryview(data)[_SIZES.size :]) if magic == _MAGIC else b""
        if len(joined) != sum(sizes) + n_words * _TAG.itemsize:
            raise ValueError("wrong size")
    except (struct.error, zlib.error, ValueError) as error:
        raise ValueError(f"These {len(data)} bytes are no lexicon, or are damaged ({error}). Save it again.") from error
    tags = np.frombuffer(joined, dtype=_TAG, offset=sum(sizes)).astype(np.int32)
    words = _decode(joined[: sizes[0]]) if n_words else []
    return words, _decode(joined[sizes[0] : sum(sizes)]), tags


def _encode(strings: list[str]) -> bytes:
    return SEPARATOR.join(strings).encode("utf8")


def _decode(data: bytes) -> list[str]:
    return data.decode("utf8").split(SEPARATOR)
