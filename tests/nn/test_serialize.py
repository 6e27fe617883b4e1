"""Serialization of models with a checksum: changed bytes raise an error."""

import struct

import numpy as np
import pytest
from safetensors.numpy import load
from torch import nn

from spacy_tener.embedders.char_embed import CharVocabulary
from spacy_tener.embedders.lexicon_embed import LexiconVocabulary
from spacy_tener.embedders.radical_embed import RadicalTable, RadicalVocabulary
from spacy_tener.embedders.spelling import SpellingVocabulary
from spacy_tener.errors import UserError
from spacy_tener.features.keys import Normalizer
from spacy_tener.features.lexicon import Lexicon
from spacy_tener.nn.serialize import from_safetensors, to_safetensors
from spacy_tener.nn.shim import TorchShim


def build(nI, nO):
    return nn.Linear(nI, nO)


def shim():
    trained = TorchShim(build)
    trained.build(nI=3, nO=4)
    return trained


def characters():
    return CharVocabulary(Normalizer(), ["unigram", "bigram"])


def words():
    vocabulary = LexiconVocabulary(["word", "tag"], max_words=5)
    vocabulary.lexicon = Lexicon(["上海", "北京"], ["ns", "ns"])
    return vocabulary


def spellings():
    return SpellingVocabulary("character", Normalizer())


def radicals():
    vocabulary = RadicalVocabulary("radical", Normalizer())
    vocabulary.structures = RadicalTable.of({"江": "氵工"}, "made up")
    return vocabulary


def filled(make):
    vocabulary = make()
    for number, table in enumerate(vocabulary.tables.values(), start=2):
        table.add(np.arange(1, 5, dtype=np.uint64) * number)
    return vocabulary


SAVED = {
    "weights": (shim, shim),
    "characters": (lambda: filled(characters), characters),
    "words": (lambda: filled(words), words),
    "spellings": (lambda: filled(spellings), spellings),
    "radicals": (lambda: filled(radicals), radicals),
}


@pytest.fixture(params=SAVED)
def saved(request):
    """Serialized data, and a function that makes an empty object to load it."""
    fill, make_empty = SAVED[request.param]
    return fill().to_bytes(), make_empty


def test_serialization_round_trip_keeps_bytes(saved):
    data, make_empty = saved
    assert make_empty().from_bytes(data).to_bytes() == data


def test_flipped_bit_raises_checksum_error(saved):
    data, make_empty = saved
    for position in {*range(min(len(data), 400)), *range(0, len(data), max(1, len(data) // 80))}:
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        with pytest.raises(UserError, match=r"checksum.*Restore the file from a backup"):
            make_empty().from_bytes(bytes(flipped))


PARTS = {
    "a.weight": np.arange(6, dtype="f").reshape(2, 3),
    "half": np.ones((2, 2), dtype=np.float16),
    "calls": np.array(3, dtype=np.int64),
    "keys": np.array([2**64 - 1], dtype=np.uint64),
    "empty": np.zeros((0, 4), dtype="f"),
    "pixels": np.array([[0, 255]], dtype=np.uint8),
    "by columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "file": b"\0\xff",
    "nothing": b"",
    "sizes": {"nI": 3, "words": ["\u4e0a", "\ud800"]},
    "checksum": "taken",
}


def test_safetensors_round_trip_keeps_types_and_values():
    data = to_safetensors(PARTS)
    parts = from_safetensors(data)
    assert set(parts) == set(PARTS)
    for name, part in PARTS.items():
        assert type(parts[name]) is type(part)
        np.testing.assert_array_equal(parts[name], part)
        assert getattr(parts[name], "dtype", None) == getattr(part, "dtype", None)
        assert np.shape(parts[name]) == np.shape(part)
    assert to_safetensors(parts) == data


def test_bytes_and_uint8_array_are_told_apart():
    array = np.frombuffer(b"abc", dtype=np.uint8)
    parts = from_safetensors(to_safetensors({"file": b"abc", "array": array}))
    assert parts["file"] == b"abc"
    np.testing.assert_array_equal(parts["array"], array)
    with pytest.raises(ValueError, match=r"'values\.json' is reserved"):
        to_safetensors({"values.json": array})


def test_safetensors_library_reads_arrays():
    arrays = load(to_safetensors(PARTS))
    np.testing.assert_array_equal(arrays["a.weight"], PARTS["a.weight"])


def test_loaded_arrays_are_writable():
    from_safetensors(to_safetensors(PARTS))["a.weight"][:] = 1


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", bytes(100), struct.pack("<Q", 2**63) + b'{"__metadata__":{', to_safetensors(PARTS)[:-1]],
    ids=["nothing", "JSON", "zeros", "a long header", "cut"],
)
def test_invalid_file_raises_error(data):
    with pytest.raises(UserError, match=r"spacy_tener did not write it"):
        from_safetensors(data)
