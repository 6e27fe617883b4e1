"""From code points to units and to rows of embedding tables, as `pipeline.units` and `features.keys` compute them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from spacy.language import Language

from ..embedders.char_embed import BIGRAM, UNIGRAM, CharVocabulary
from ..features.keys import END_MARK, Keys, Normaliser, StringTable, mix, unigram_key_array
from ..nn.graph import Graph, Value
from ..pipeline.units import LINE_BREAK, SENTENCE_ENDS, SPACE, TEXT, View, is_latin_letter, unit_types_of
from ..types import BoolArray, IntArray

_TYPED_CODES = 0x20000
"""All white space and all ornaments are below."""
_CODE_POINTS = 0x40000
"""Code points whose strings are tried: those of all planes with letters. Others are among a pipeline's strings."""
_SEARCHED_CODES = 0x10000
_SUM_BITS = 62
"""Bits of the number of white space, which is no negative one."""
_SPACE_CODE = 32
"""The code point of a space."""
_HIGH_BITS = np.uint64(42)


@dataclass(frozen=True)
class UnitValues:
    """The units of all texts, joined.

    starts (Value): The first character of each unit. *Shape:* (units,)
    ends (Value): Where the characters of each unit end, and those of a space behind it. *Shape:* (units,)
    codes (Value): The first code point of each unit. *Shape:* (units,)
    unit_types (Value): The kind of each unit. *Shape:* (units,)
    lengths (Value): The units of each text. *Shape:* (texts,)
    unit_of_character (Value): The unit of each character, or of the character before a space that is in none.
        *Shape:* (characters,)
    is_first (Value): A mask of the first character of each unit. *Shape:* (characters,)
    in_unit (Value): A mask of characters that are in a unit. *Shape:* (characters,)
    is_long_space (Value): A mask of white space of several characters. *Shape:* (units,)
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
    """Return the units of texts: all characters, or the tokens of spaCy's tokenizer of characters. That one leaves out
    a space behind a character, and other white space is one token.

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    lengths (Value): Characters of each text. *Shape:* (texts,)
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
    # White space with a line break in it is a line break.
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
    """Return the kind of each character. *Shape:* (characters,)"""
    return graph.lookup(codes, _unit_types(), TEXT)


@lru_cache(maxsize=1)
def _unit_types() -> dict[int, int]:
    unit_types = unit_types_of(np.arange(_TYPED_CODES, dtype=np.uint32))
    return {code: int(unit_types[code]) for code in np.flatnonzero(unit_types != TEXT).tolist()}


def sentence_ends(graph: Graph, units: UnitValues) -> Value:
    """Mark the units that look like the end of a sentence. *Shape:* (units,)"""
    is_mark = graph.lookup(units.codes, {ord(mark): 1 for mark in SENTENCE_ENDS}, 0) > 0
    return (is_mark & ~units.is_long_space) | (units.is_long_space & graph.Equal(units.unit_types, LINE_BREAK))


def joined_letters(graph: Graph, codes: Value) -> Value:
    """Mark each Latin letter behind another one. *Shape:* (characters,)"""
    letters = np.flatnonzero(is_latin_letter(np.arange(_TYPED_CODES, dtype=np.uint32))).tolist()
    is_letter = graph.lookup(codes, dict.fromkeys(letters, 1), 0) > 0
    return is_letter & graph.shift_right(is_letter, False)


def word_neighbours(graph: Graph, units: UnitValues) -> Value:
    """Return `pipeline.units.letter_neighbours`. *Shape:* (units,)"""
    # Without a space between them, which is in no unit.
    is_next = graph.Equal(units.starts - graph.shift_right(units.starts, -1), 1)
    begins = graph.count_indices(graph.starts(units.lengths), graph.size(units.codes)) > 0
    joined = (joined_letters(graph, units.codes) & is_next & ~begins).to(np.int64)
    return joined + graph.Concat(joined[1:], [0], axis=0)[: graph.size(joined)] * 2


def number_strings(vocabulary: CharVocabulary, nlp: Language) -> tuple[Keys, dict[str, int], dict[int, int]]:
    """Find the strings of a vocabulary's keys, which are hashes, among characters and a pipeline's strings.

    RETURNS (tuple[Keys, dict[str, int], dict[int, int]]): The keys of strings by their numbers, from 1; the number of
        each character, and of white space; and the row of each pair, by `pair_number`.
    """
    normaliser, tables = vocabulary.normaliser, vocabulary.tables
    character_keys = _character_keys(normaliser)
    # Other characters are among the pipeline's strings.
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
    """Return the keys of characters of pairs, by trying all pairs of the basic plane, which takes a minute.

    Only for pipelines that were saved without `CharVocabulary.pair_characters`.
    """
    printable = [text.isprintable() for text in _all_characters()[:_SEARCHED_CODES]]
    basic = np.unique(character_keys[:_SEARCHED_CODES][printable])
    found = np.array(list(_pairs(basic, end_key, table)), dtype=np.int64)
    keys = np.append(basic, np.uint64(end_key))[np.stack(pair_of(found, basic.size)) - 1].ravel()
    return keys[keys != end_key]


def write_numbers(
    graph: Graph, codes: Value, units: UnitValues, number_of_text: dict[str, int], normaliser: Normaliser
) -> Value:
    """Write the number of each unit's string, 0 if it has none. *Shape:* (units,)

    codes (Value): Code points of all characters. *Shape:* (characters,)
    number_of_text (dict[str, int]): As of `number_strings`.
    """
    number_of_code = {ord(text): number for text, number in number_of_text.items() if len(text) == 1}
    # The number of white space is a sum, of a weight for each place times the character there, of which no two are the
    # same but by a chance of 1 in 2 ** 40.
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
    """Return the number of a pair, of those of its strings. The mark behind the last unit is `n_strings + 1`."""
    return first * (n_strings + 2) + second


def pair_of(number: IntArray, n_strings: int) -> tuple[IntArray, IntArray]:
    """Return the numbers of a pair's strings."""
    return np.divmod(number, n_strings + 2)


@lru_cache(maxsize=1)
def _all_characters() -> tuple[str, ...]:
    surrogates = range(0xD800, 0xE000)
    return tuple(chr(code) for code in range(_CODE_POINTS) if code not in surrogates)


@lru_cache(maxsize=4)
def _character_keys(normaliser: Normaliser) -> Keys:
    return unigram_key_array(_all_characters(), normaliser)


def _pairs(keys: Keys, end_key: int, table: StringTable) -> dict[int, int]:
    """Return the rows of pairs by their numbers. keys: Of the strings, in the order of their numbers, from 1."""
    seconds = np.append(keys, np.uint64(end_key))
    # Most pairs have no row: the first bits of their keys tell it of nearly all of them.
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
    """Return which numbers are the first bits of keys."""
    mask = np.zeros(1 << (64 - int(_HIGH_BITS)), dtype=bool)
    mask[keys >> _HIGH_BITS] = True
    return mask
