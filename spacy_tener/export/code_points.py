"""From the code points of texts to units and to rows of embedding tables, in an exported graph.

The pipeline splits a text into units (tokens or characters) with `pipeline.units`, and looks up embeddings by 64-bit
hashes of strings (`features.keys`). An exported graph gets code points and has no hash function. Therefore the export
assigns a number to every known string, and the graph looks up these numbers:

    code points      京 北 京        input of the graph
    string numbers    2  1  2        `write_numbers`: the number of each unit's string, 0 for an unknown string
    pairs            (2, 1) (1, 2) (2, end)
                                     `pair_number`: one integer for both numbers; its row is looked up in a table

`onnx_model` and `layers` use this module to write the graph, and `check` uses it to find test texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from spacy.language import Language

from ..embedders.char_embed import BIGRAM, UNIGRAM, CharVocabulary
from ..features.keys import END_MARK, Keys, Normaliser, StringTable, mix, unigram_key_array
from ..nn.graph import Graph, Value
from ..pipeline.units import (
    LINE_BREAK,
    SENTENCE_ENDS,
    SPACE,
    TEXT,
    View,
    is_latin_letter,
    is_letter_or_digit,
    unit_types_of,
)
from ..types import BoolArray, IntArray

# All white space and ornaments have smaller code points.
_TYPED_CODES = 0x20000
# Characters with smaller code points are hashed to find the keys of tables. These are all planes that contain letters.
_CODE_POINTS = 0x40000
# `_search_characters_of_pairs` only tries characters with smaller code points, which are about those of the Basic
# Multilingual Plane.
_SEARCHED_CODES = 0x10000
# The weighted sums in `write_numbers` must fit into a non-negative int64.
_SUM_BITS = 62
_SPACE_CODE = ord(" ")
# A shift by 42 leaves the 22 high bits of a key. A mask of all values of 22 bits takes 4 MB.
_HIGH_BITS = np.uint64(42)


@dataclass(frozen=True)
class UnitValues:
    """The units of all texts, concatenated.

    starts (Value): The index of the first character of each unit. *Shape:* (units,)
    ends (Value): The index after the last character of each unit, or after a space that follows the unit and belongs to
        no unit. *Shape:* (units,)
    codes (Value): The first code point of each unit. *Shape:* (units,)
    unit_types (Value): The type of each unit, such as `pipeline.units.SPACE`. *Shape:* (units,)
    lengths (Value): The number of units in each text. *Shape:* (texts,)
    unit_of_character (Value): The index of the unit of each character. A space that belongs to no unit has the index of
        the unit before it. *Shape:* (characters,)
    is_first (Value): Mask of characters that are the first character of a unit. *Shape:* (characters,)
    in_unit (Value): Mask of characters that belong to a unit. *Shape:* (characters,)
    is_long_space (Value): Mask of units that are two or more characters of white space. *Shape:* (units,)
    """

    starts: Value
    ends: Value
    codes: Value
    unit_types: Value
    lengths: Value
    unit_of_character: Value
    is_first: Value
    in_unit: Value
    is_long_space: Value


def read_units(graph: Graph, codes: Value, lengths: Value, view: View) -> UnitValues:
    """Split texts into units.

    With the view "characters", each character is a unit. With the view "tokens", the units are the tokens of spaCy's
    character tokenizer for Chinese: a space after a character belongs to no token (`token.whitespace_`), and other
    consecutive white space is one token.

    codes (Value): The code points of all texts, concatenated. *Shape:* (characters,)
    lengths (Value): The number of characters in each text. *Shape:* (texts,)
    """
    size, unit_types, starts = graph.size(codes), read_unit_types(graph, codes), graph.starts(lengths)
    begins = graph.count_indices(starts, size) > 0
    is_break = graph.Equal(unit_types, LINE_BREAK)
    is_space = (graph.Equal(unit_types, SPACE) | is_break) & np.bool_(view == "tokens")
    opens = is_space & (begins | ~graph.shift_right(is_space, False))
    is_omitted = opens & graph.Equal(codes, _SPACE_CODE) & ~begins
    is_first = ~is_space | (opens & ~is_omitted) | (is_space & ~begins & graph.shift_right(is_omitted, False))
    first_indices = graph.where_true(is_first)
    ends = graph.Concat(first_indices, graph.shape(size), axis=0)[1:]
    # White space that contains a line break has the type of a line break.
    breaks = graph.CumSum(is_break.to(np.int64), 0)
    has_break = (breaks[ends - 1] > breaks[first_indices]) | is_break[first_indices]
    counts = graph.Concat([0], graph.CumSum(is_first.to(np.int64), 0), axis=0)
    return UnitValues(
        starts=first_indices,
        ends=ends,
        codes=codes[first_indices],
        unit_types=graph.Where(has_break, LINE_BREAK, unit_types[first_indices]),
        lengths=counts[starts + lengths] - counts[starts],
        unit_of_character=counts[1:] - 1,
        is_first=is_first,
        in_unit=~is_omitted,
        is_long_space=is_space[first_indices] & (ends - first_indices > 1),
    )


def read_unit_types(graph: Graph, codes: Value) -> Value:
    """Return the unit type of each character, such as `pipeline.units.SPACE`. *Shape:* (characters,)"""
    return graph.lookup(codes, _unit_types(), TEXT)


@lru_cache(maxsize=1)
def _unit_types() -> dict[int, int]:
    """Return the types of all code points that are not text."""
    unit_types = unit_types_of(np.arange(_TYPED_CODES, dtype=np.uint32))
    return {code: int(unit_types[code]) for code in np.flatnonzero(unit_types != TEXT).tolist()}


def sentence_ends(graph: Graph, units: UnitValues) -> Value:
    """Return a mask of units that end a sentence, as `DocView.sentence_ends` of the pipeline. *Shape:* (units,)"""
    is_mark = graph.lookup(units.codes, {ord(mark): 1 for mark in SENTENCE_ENDS}, 0) > 0
    characters = np.flatnonzero(is_letter_or_digit(np.arange(_TYPED_CODES, dtype=np.uint32))).tolist()
    continues = (graph.lookup(units.codes, dict.fromkeys(characters, 1), 0) > 0) & _follows_directly(graph, units)
    before_character = graph.Concat(continues[1:], np.array([False]), axis=0)[: graph.size(units.codes)]
    is_mark = is_mark & ~(graph.Equal(units.codes, ord(".")) & before_character)
    return (is_mark & ~units.is_long_space) | (units.is_long_space & graph.Equal(units.unit_types, LINE_BREAK))


def joined_letters(graph: Graph, codes: Value) -> Value:
    """Return a mask of Latin letters that directly follow another Latin letter. *Shape:* (characters,)"""
    letters = np.flatnonzero(is_latin_letter(np.arange(_TYPED_CODES, dtype=np.uint32))).tolist()
    is_letter = graph.lookup(codes, dict.fromkeys(letters, 1), 0) > 0
    return is_letter & graph.shift_right(is_letter, False)


def word_neighbours(graph: Graph, units: UnitValues) -> Value:
    """Return for each unit which of its edges lie within a Latin word. *Shape:* (units,)

    The numbers are those of `pipeline.units.letter_neighbours`.
    """
    joined = (joined_letters(graph, units.codes) & _follows_directly(graph, units)).to(np.int64)
    return joined + graph.Concat(joined[1:], [0], axis=0)[: graph.size(joined)] * 2


def _follows_directly(graph: Graph, units: UnitValues) -> Value:
    """Return a mask of units that directly follow another unit of the same text. *Shape:* (units,)"""
    # Two units are not adjacent if there is a space between them that belongs to no unit.
    is_next = graph.Equal(units.starts - graph.shift_right(units.starts, -1), 1)
    begins = graph.count_indices(graph.starts(units.lengths), graph.size(units.codes)) > 0
    return is_next & ~begins


def number_strings(vocabulary: CharVocabulary, nlp: Language) -> tuple[Keys, dict[str, int], dict[int, int]]:
    """Assign numbers to all strings that have an embedding, alone or in a pair.

    The vocabulary only contains the hashes of strings. Candidates for the strings are the characters below
    `_CODE_POINTS`, the strings of the pipeline (characters above, and white space of any length), and the characters of
    pretrained pairs, which training texts may not contain.

    RETURNS (tuple[Keys, dict[str, int], dict[int, int]]): The keys of the strings in the order of their numbers, which
        start at 1; the number of each string; and the row of each pair by its `pair_number`.
    """
    normaliser, tables = vocabulary.normaliser, vocabulary.tables
    character_keys = _character_keys(normaliser)
    strings = [text for text in nlp.vocab.strings if len(text) == 1 or text.isspace()]
    strings += vocabulary.pair_characters
    string_keys, end_key = unigram_key_array(strings, normaliser), normaliser.key(END_MARK)
    with_row = character_keys[tables[UNIGRAM].rows(character_keys) > 0]
    keys, pairs = np.union1d(with_row, string_keys), dict[int, int]()
    if BIGRAM in tables:
        pairs = _pairs(keys, end_key, tables[BIGRAM])
        n_rows = len(tables[BIGRAM]) - 1
        if len(pairs) < n_rows and not vocabulary.pair_characters:
            keys = np.union1d(keys, _search_characters_of_pairs(tables[BIGRAM], character_keys, end_key))
            pairs = _pairs(keys, end_key, tables[BIGRAM])
    number_of = dict(zip(keys.tolist(), range(1, keys.size + 1), strict=True))
    texts = zip([*_all_characters(), *strings], [*character_keys.tolist(), *string_keys.tolist()], strict=True)
    return keys, {text: number_of[key] for text, key in texts if key in number_of}, pairs


def _search_characters_of_pairs(table: StringTable, character_keys: Keys, end_key: int) -> Keys:
    """Return the keys of the characters of pairs by hashing all pairs of printable characters, which takes a minute.

    This is a fallback for pipelines with pretrained pairs that were saved without `CharVocabulary.pair_characters`.
    """
    printable = [text.isprintable() for text in _all_characters()[:_SEARCHED_CODES]]
    basic = np.unique(character_keys[:_SEARCHED_CODES][printable])
    found = np.array(list(_pairs(basic, end_key, table)), dtype=np.int64)
    keys = np.append(basic, np.uint64(end_key))[np.stack(pair_of(found, basic.size)) - 1].ravel()
    found_keys: Keys = keys[keys != end_key]
    return found_keys


def write_numbers(
    graph: Graph, codes: Value, units: UnitValues, number_of_text: dict[str, int], normaliser: Normaliser
) -> Value:
    """Return the number of each unit's string, or 0 for unknown strings. *Shape:* (units,)

    codes (Value): The code points of all characters. *Shape:* (characters,)
    number_of_text (dict[str, int]): The number of each string, from `number_strings`.
    """
    number_of_code = {ord(text): number for text, number in number_of_text.items() if len(text) == 1}
    # A graph cannot look up strings of several characters. White space of several characters is looked up by a hash:
    # the sum over its characters of a random weight for the position times a number for the character. Two strings have
    # the same hash with a probability of about 1 in 2 ** 40.
    spaces = {text: number for text, number in number_of_text.items() if len(text) > 1}
    longest = max(map(len, spaces), default=1)
    white = [code for code, kind in _unit_types().items() if kind in (SPACE, LINE_BREAK)]
    largest = (1 << _SUM_BITS) // ((len(white) + 1) * longest)
    weights = np.append(np.random.default_rng(0).integers(1, largest, longest), 0)
    digits = {code: white.index(ord(normaliser(chr(code)))) + 1 for code in white}
    number_of_space = {
        sum(digits[ord(character)] * weight for character, weight in zip(text, weights.tolist(), strict=False)): number
        for text, number in spaces.items()
    }
    positions = graph.Range(0, graph.size(codes), 1) - units.starts[units.unit_of_character]
    weight_of_position = graph.value(weights)[graph.Min(positions, longest)]
    terms = graph.lookup(codes, digits, 0) * weight_of_position
    zeros = graph.full(0, graph.size(units.codes))
    sums = graph.ScatterElements(zeros, units.unit_of_character, terms, axis=0, reduction="add")
    is_short_enough = units.ends - units.starts <= longest
    space_numbers = graph.Where(is_short_enough, graph.lookup(sums, number_of_space, 0), 0)
    return graph.Where(units.is_long_space, space_numbers, graph.lookup(units.codes, number_of_code, 0))


def pair_number(first: Any, second: Any, n_strings: int) -> Any:
    """Return the number of a pair of strings, from the numbers of its strings.

    second (Any): The number of the second string, or `n_strings + 1` at the end of a text.
    """
    return first * (n_strings + 2) + second


def pair_of(number: IntArray, n_strings: int) -> tuple[IntArray, IntArray]:
    """Return the numbers of both strings of a pair. This is the inverse of `pair_number`."""
    return np.divmod(number, n_strings + 2)


@lru_cache(maxsize=1)
def _all_characters() -> tuple[str, ...]:
    # Surrogates are not characters, and cannot be encoded as UTF-8, which spaCy hashes.
    surrogates = range(0xD800, 0xE000)
    return tuple(chr(code) for code in range(_CODE_POINTS) if code not in surrogates)


@lru_cache(maxsize=4)
def _character_keys(normaliser: Normaliser) -> Keys:
    return unigram_key_array(_all_characters(), normaliser)


def _pairs(keys: Keys, end_key: int, table: StringTable) -> dict[int, int]:
    """Return the rows of all pairs of strings that have one, by `pair_number`.

    keys (Keys): The keys of the strings in the order of their numbers, from 1. *Shape:* (strings,)
    """
    seconds = np.append(keys, np.uint64(end_key))
    # Most pairs have no row. Looking up the high bits of their keys in a mask excludes nearly all of them, and is
    # faster than a binary search in the table.
    may_have_row = _high_bits(table.keys)
    pairs: dict[int, int] = {}
    for first, key in enumerate(keys, start=1):
        pair_keys = mix(np.full(seconds.size, key), seconds)
        found = np.flatnonzero(may_have_row[pair_keys >> _HIGH_BITS])
        rows = table.rows(pair_keys[found])
        numbers = pair_number(first, found + 1, keys.size)
        pairs.update(zip(numbers[rows > 0].tolist(), rows[rows > 0].tolist(), strict=True))
    return pairs


def _high_bits(keys: Keys) -> BoolArray:
    """Return a mask of the values that occur as high bits of keys. *Shape:* (2 ** 22,)"""
    mask = np.zeros(1 << (64 - int(_HIGH_BITS)), dtype=bool)
    mask[keys >> _HIGH_BITS] = True
    return mask
