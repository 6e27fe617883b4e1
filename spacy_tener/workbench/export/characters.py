"""From code points to units and to rows of embedding tables, as `pipeline.units` and `features.keys` compute them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from spacy.language import Language

from ...features.keys import END_MARK, Keys, Normaliser, StringTable, mix, unigram_key_array
from ...models.embed.char import BIGRAM, UNIGRAM, CharVocabulary
from ...pipeline.units import LINE_BREAK, SENTENCE_ENDS, SPACE, TEXT, View, is_latin_letter, kinds_of
from ...types import IntArray
from .graph import Graph, Value

_KINDS_UP_TO = 0x20000
"""All white space and all ornaments are below."""
_CODE_POINTS = 0x40000
"""Code points whose strings are tried: those of all planes with letters. Others are among a pipeline's strings."""
_IDEOGRAPHS = range(0x3400, 0xA000)
_LONGEST_SPACE = 11
"""Characters of the longest white space that can have a row: with one more, a number of base 32 fits into 63 bits."""
_BASE = 32
_BLANK = 32
"""The code point of a space."""
_HIGH_BITS = np.uint64(42)


@dataclass(frozen=True)
class UnitValues:
    """The units of all texts, joined.

    firsts (Value): The first character of each unit. *Shape:* (units,)
    ends (Value): Where the characters of each unit end, and those of a space behind it. *Shape:* (units,)
    codes (Value): The first code point of each unit. *Shape:* (units,)
    kinds (Value): The kind of each unit. *Shape:* (units,)
    lengths (Value): The units of each text. *Shape:* (texts,)
    owners (Value): The unit of each character, or of the character before a space that is in none.
        *Shape:* (characters,)
    is_first (Value | None): A mask of the first character of each unit; None if each unit is a character.
        *Shape:* (characters,)
    in_unit (Value | None): A mask of characters that are in a unit; None if all are. *Shape:* (characters,)
    is_long_space (Value | None): A mask of white space of several characters; None without. *Shape:* (units,)
    """

    firsts: Value
    ends: Value
    codes: Value
    kinds: Value
    lengths: Value
    owners: Value
    is_first: Value | None = None
    in_unit: Value | None = None
    is_long_space: Value | None = None


def read_units(graph: Graph, codes: Value, lengths: Value, view: View) -> UnitValues:
    """Return the units of texts: all characters, or the tokens of spaCy's tokenizer of characters. That one leaves out
    a space behind a character, and other white space is one token.

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    lengths (Value): Characters of each text. *Shape:* (texts,)
    """
    size = graph.size(codes)
    kinds = read_kinds(graph, codes)
    indices = graph.Range(0, size, 1)
    if view == "characters":
        return UnitValues(indices, indices + 1, codes, kinds, lengths, indices)
    begins = graph.marks(graph.starts(lengths), size) > 0
    is_break = graph.Equal(kinds, LINE_BREAK)
    is_space = graph.Equal(kinds, SPACE) | is_break
    opens = is_space & (begins | ~graph.shifted(is_space, False))
    is_left_out = opens & graph.Equal(codes, _BLANK) & ~begins
    is_first = ~is_space | (opens & ~is_left_out) | (is_space & ~begins & graph.shifted(is_left_out, False))
    firsts = graph.where_true(is_first)
    ends = graph.Concat(firsts, graph.shape(size), axis=0)[1:]
    # White space with a line break in it is a line break.
    breaks = graph.cumulated(is_break.to(np.int64))
    has_break = (breaks[ends - 1] > breaks[firsts]) | is_break[firsts]
    kinds = graph.Where(has_break, LINE_BREAK, kinds[firsts])
    counts = graph.Concat([0], graph.cumulated(is_first.to(np.int64)), axis=0)
    starts = graph.starts(lengths)
    return UnitValues(
        firsts=firsts,
        ends=ends,
        codes=codes[firsts],
        kinds=kinds,
        lengths=counts[starts + lengths] - counts[starts],
        owners=counts[1:] - 1,
        is_first=is_first,
        in_unit=~is_left_out,
        is_long_space=is_space[firsts] & (ends - firsts > 1),
    )


def read_kinds(graph: Graph, codes: Value) -> Value:
    """Return the kind of each character. *Shape:* (characters,)"""
    return graph.lookup(codes, _kinds(), TEXT)


@lru_cache(maxsize=1)
def _kinds() -> dict[int, int]:
    kinds = kinds_of(np.arange(_KINDS_UP_TO, dtype=np.uint32))
    return {code: int(kinds[code]) for code in np.flatnonzero(kinds != TEXT).tolist()}


def sentence_ends(graph: Graph, units: UnitValues) -> Value:
    """Mark the units that look like the end of a sentence. *Shape:* (units,)"""
    is_end = graph.lookup(units.codes, {ord(mark): 1 for mark in SENTENCE_ENDS}, 0) > 0
    return is_end if units.is_long_space is None else is_end & ~units.is_long_space


def joined_letters(graph: Graph, codes: Value) -> Value:
    """Mark each Latin letter behind another one. *Shape:* (characters,)"""
    letters = np.flatnonzero(is_latin_letter(np.arange(_KINDS_UP_TO, dtype=np.uint32))).tolist()
    is_letter = graph.lookup(codes, dict.fromkeys(letters, 1), 0) > 0
    return is_letter & graph.shifted(is_letter, False)


def word_neighbours(graph: Graph, units: UnitValues) -> Value:
    """Return `pipeline.units.letter_neighbours`. *Shape:* (units,)"""
    # Without a space between them, which is in no unit.
    is_next = graph.Equal(units.firsts - graph.shifted(units.firsts, -1), 1)
    begins = graph.marks(graph.starts(units.lengths), graph.size(units.codes)) > 0
    joined = (joined_letters(graph, units.codes) & is_next & ~begins).to(np.int64)
    return joined + graph.Concat(joined[1:], [0], axis=0)[: graph.size(joined)] * 2


@dataclass(frozen=True)
class CharacterRows:
    """The strings that an embedder of characters and pairs has rows for. A string's number is 0 if it has none.

    normaliser (Normaliser): The embedder's.
    number_of_code (dict[int, int]): The number of each character's normalised form.
    number_of_space (dict[str, int]): The same for white space of several characters.
    end (int): The number of the mark behind the last unit, which is the largest one.
    unigrams (IntArray): The row of each number. *Shape:* (numbers,)
    pairs (dict[int, int]): The row of each pair, by its numbers: the first one times `end + 1`, and the second one.
    """

    normaliser: Normaliser
    number_of_code: dict[int, int]
    number_of_space: dict[str, int]
    end: int
    unigrams: IntArray
    pairs: dict[int, int]

    @classmethod
    def of(cls, vocabulary: CharVocabulary, nlp: Language) -> CharacterRows:
        """Find the strings of a vocabulary's keys, which are hashes, among characters and a pipeline's strings."""
        strings = list(nlp.vocab.strings)
        spaces = [text for text in strings if 1 < len(text) <= _LONGEST_SPACE and text.isspace()]
        # Pairs may have rows where their characters have none: such characters are among the pipeline's strings.
        characters = [text for text in strings if len(text) == 1]
        rows = cls._number(vocabulary, characters, spaces)
        if len(rows.pairs) < len(vocabulary.tables.get(BIGRAM, [])) - 1:
            # Pretrained pairs may have characters that no text of the training had.
            rows = cls._number(vocabulary, [*characters, *map(chr, _IDEOGRAPHS)], spaces)
        return rows

    @classmethod
    def _number(cls, vocabulary: CharVocabulary, characters: list[str], spaces: list[str]) -> CharacterRows:
        """Number all strings with rows, these characters, and this white space of several characters."""
        normaliser, tables = vocabulary.normaliser, vocabulary.tables
        keys, space_keys = (unigram_key_array(texts, normaliser) for texts in (characters, spaces))
        candidates = np.concatenate([_keys_of_usual(normaliser), keys, space_keys])
        has_row = tables[UNIGRAM].rows(candidates) > 0
        numbered = np.unique(np.concatenate([candidates[has_row], keys, space_keys]))
        number_of = dict(zip(numbered.tolist(), range(1, numbered.size + 1), strict=True))
        texts = [*_usual_characters(), *characters, *spaces]
        number_of_text = {
            text: number_of[key] for text, key in zip(texts, candidates.tolist(), strict=True) if key in number_of
        }
        return cls(
            normaliser,
            number_of_code={ord(text): number for text, number in number_of_text.items() if len(text) == 1},
            number_of_space={text: number for text, number in number_of_text.items() if len(text) > 1},
            end=numbered.size + 1,
            unigrams=np.concatenate([[0], tables[UNIGRAM].rows(numbered), [0]]),
            pairs=_pairs(numbered, normaliser.key(END_MARK), tables[BIGRAM]) if BIGRAM in tables else {},
        )

    def numbers(self, graph: Graph, codes: Value, units: UnitValues) -> Value:
        """Return the number of each unit's string. *Shape:* (units,)

        codes (Value): Code points of all characters. *Shape:* (characters,)
        """
        numbers = graph.lookup(units.codes, self.number_of_code, 0)
        if units.is_long_space is None:
            return numbers
        long_numbers: Value | int = 0
        if self.number_of_space:
            # White space as a number, in whose base each character of it is a digit.
            digit_of_form = {code: i for i, code in enumerate(_white_space(), start=1)}
            digits = {code: digit_of_form[ord(self.normaliser(chr(code)))] for code in digit_of_form}
            places = range(max(map(len, self.number_of_space)) + 1)
            written, last = graph.full(0, graph.size(units.codes)), graph.size(codes) - 1
            for place in places:
                character = units.firsts + place
                digit = graph.lookup(codes[graph.Min(character, last)], digits, 0)
                written = written * _BASE + graph.Where(character < units.ends, digit, 0)
            long_numbers = graph.lookup(
                written,
                {_written(text, digits, len(places)): number for text, number in self.number_of_space.items()},
                0,
            )
        return graph.Where(units.is_long_space, long_numbers, numbers)


def _white_space() -> list[int]:
    return [code for code, kind in _kinds().items() if kind in (SPACE, LINE_BREAK)]


def _written(text: str, digits: dict[int, int], length: int) -> int:
    """Return a text as a number with so many digits."""
    return sum(digits[ord(character)] * _BASE ** (length - 1 - i) for i, character in enumerate(text))


@lru_cache(maxsize=1)
def _usual_characters() -> tuple[str, ...]:
    surrogates = range(0xD800, 0xE000)
    return tuple(chr(code) for code in range(_CODE_POINTS) if code not in surrogates)


@lru_cache(maxsize=4)
def _keys_of_usual(normaliser: Normaliser) -> Keys:
    return unigram_key_array(_usual_characters(), normaliser)


def _pairs(keys: Keys, end_key: int, table: StringTable) -> dict[int, int]:
    """Return the rows of pairs by their numbers. keys: Of the strings, in the order of their numbers, from 1."""
    seconds = np.append(keys, np.uint64(end_key))
    # Most pairs have no row: the first bits of their keys tell it of nearly all of them.
    may_have_row = np.zeros(1 << (64 - int(_HIGH_BITS)), dtype=bool)
    may_have_row[table.keys >> _HIGH_BITS] = True
    pairs: dict[int, int] = {}
    for first, key in enumerate(keys, start=1):
        pair_keys = mix(np.full(seconds.size, key), seconds)
        found = np.flatnonzero(may_have_row[pair_keys >> _HIGH_BITS])
        rows = table.rows(pair_keys[found])
        numbers = first * (seconds.size + 1) + found + 1
        pairs.update(zip(numbers[rows > 0].tolist(), rows[rows > 0].tolist(), strict=True))
    return pairs
