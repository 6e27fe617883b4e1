"""What a model saves has a checksum: bytes that were changed on their way are refused, not computed with."""

import numpy as np
import pytest
import srsly
from torch import nn

from spacy_tener.errors import RemedyError
from spacy_tener.features.lexicon.lexicon import Lexicon
from spacy_tener.features.normalise import Normaliser
from spacy_tener.features.radicals.radicals import RadicalTable
from spacy_tener.models.embed.char import CharVocabulary
from spacy_tener.models.embed.char_encoders import SpellingVocabulary
from spacy_tener.models.embed.lexicon import LexiconVocabulary
from spacy_tener.models.embed.radical import RadicalVocabulary
from spacy_tener.models.shims.bridge import TorchShim
from spacy_tener.models.shims.checksum import pack, unpack


def build(nI, nO):
    return nn.Linear(nI, nO)


def shim():
    made = TorchShim(build)
    made.build(nI=3, nO=4)
    return made


def characters():
    return CharVocabulary(Normaliser(), ["unigram", "bigram"])


def words():
    vocabulary = LexiconVocabulary(["word", "tag"], max_words=5)
    vocabulary.lexicon = Lexicon(["上海", "北京"], ["ns", "ns"])
    return vocabulary


def spellings():
    return SpellingVocabulary("character", digits=True)


def radicals():
    vocabulary = RadicalVocabulary("radical", digits=True)
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
    """What was saved, and what reads it."""
    made, empty = SAVED[request.param]
    return made().to_bytes(), empty


def test_what_was_saved_is_read(saved):
    data, empty = saved
    assert empty().from_bytes(data).to_bytes() == data


def test_no_flipped_bit_passes_for_what_was_saved(saved):
    data, empty = saved
    for place in range(0, len(data), max(1, len(data) // 80)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        try:
            read = empty().from_bytes(bytes(flipped))
        except Exception:
            continue
        # A checksum whose name was hit is not looked at; the rest is whole then.
        assert read.to_bytes() == data


def test_flipped_weights_are_told_as_damage():
    data = shim().to_bytes()
    weights = srsly.msgpack_loads(data)["state"]
    middle = data.index(weights) + len(weights) // 2
    with pytest.raises(RemedyError, match=r"checksum.*Restore it from a copy"):
        shim().from_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def test_what_has_no_checksum_is_read_all_the_same(saved):
    data, empty = saved
    assert empty().from_bytes(srsly.msgpack_dumps(unpack(data))).to_bytes() == data


@pytest.mark.parametrize("message", [{}, {"a": b"12", "b": b"3"}, {"sizes": {"nI": 3, "files": {"x": b"1"}}}])
def test_messages_come_back(message):
    assert unpack(pack(message)) == message


def test_what_moves_from_one_part_to_the_next_is_found():
    message = {**srsly.msgpack_loads(pack({"a": b"12", "b": b"3"})), "a": b"1", "b": b"23"}
    with pytest.raises(RemedyError, match="checksum"):
        unpack(srsly.msgpack_dumps(message))
