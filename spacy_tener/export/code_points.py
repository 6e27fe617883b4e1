"""Tokenization and embedding lookup in an exported ONNX graph, with code points as input.

A pipeline looks up embeddings by 64-bit hashes of strings (`features/keys.py`). ONNX has no hash function. Therefore
the exporter assigns an integer to every string that has an embedding, and the graph looks up these integers:

    code points      京 北 京        input of the graph
    string numbers    2  1  2        `write_numbers`: an integer for each string, 0 for unknown strings
    bigrams          (2, 1) (1, 2) (2, end)
                                     `pair_number`: an integer for each bigram, to look up its embedding row

The graph also splits texts into units, the elements that the model tags. Units are tokens, or characters if the
component is configured with `view = "characters"`. `pipeline/units.py` contains the same rules for a Doc.

`onnx_model.py` and `layers.py` use this module to create the graph. `check.py` uses it to generate texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from spacy.language import Language

from ..embedders.char_embed import BIGRAM, UNIGRAM, CharVocabulary
from ..features.keys import END_MARK, Keys, Normalizer, StringTable, mix, unigram_key_array
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

# All white space, emoji and control characters have smaller code points than this.
_TYPED_CODES = 0x20000
# Upper limit for the characters that are hashed to recover the strings in a vocabulary. It covers all Unicode planes
# with letters.
_CODE_POINTS = 0x40000
# Upper limit for the characters in `_search_characters_of_pairs`: the Basic Multilingual Plane.
_SEARCHED_CODES = 0x10000
# Number of bits in the hashes of `write_numbers`, which must fit into a non-negative int64.
_SUM_BITS = 62
_SPACE_CODE = ord(" ")
# Shifting a 64-bit key by 42 leaves its 22 high bits, the index into a 4 MB mask (`_high_bits`).
_HIGH_BITS = np.uint64(42)


@dataclass(frozen=True)
class UnitValues:
    """The units in a batch as graph tensors. A unit is a token, or a character if `view = "characters"`.

    All texts are concatenated. Like `token.whitespace_` in spaCy, a single space after a token is not a unit.

    starts (Value): Index of each unit's first character. *Shape:* (units,)
    ends (Value): Index after each unit's last character, including a trailing space. *Shape:* (units,)
    codes (Value): First code point of each unit. *Shape:* (units,)
    unit_types (Value): Type of each unit, such as `pipeline.units.SPACE`. *Shape:* (units,)
    lengths (Value): Text lengths in units. *Shape:* (texts,)
    unit_of_character (Value): Index of the unit that contains each character. For a trailing space, the index of the
        unit before it. *Shape:* (characters,)
    is_first (Value): Mask of the units' first characters. *Shape:* (characters,)
    in_unit (Value): Mask of all characters except trailing spaces. *Shape:* (characters,)
    is_long_space (Value): Mask of units that consist of two or more white space characters. *Shape:* (units,)
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
    """Add ONNX nodes that split texts into units, the elements that the model tags.

    With `view = "characters"`, each character is a unit. With `view = "tokens"`, the units are the tokens of spaCy's
    Chinese tokenizer without a segmenter: single characters, and white space sequences. A single space after a
    character is not a token, but the character's `whitespace_`.

    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    lengths (Value): Text lengths in characters. *Shape:* (texts,)
    RETURNS (UnitValues): The units.
    """
    size, unit_types, starts = graph.size(codes), read_unit_types(graph, codes), graph.starts(lengths)
    begins = graph.count_indices(starts, size) > 0
    is_break = graph.Equal(unit_types, LINE_BREAK)
    is_space = (graph.Equal(unit_types, SPACE) | is_break) & np.bool_(view == "tokens")
    opens = is_space & (begins | ~graph.shift_right(is_space, False))
    # A single space is not a token. spaCy stores it in the previous character's `whitespace_`.
    is_omitted = opens & graph.Equal(codes, _SPACE_CODE) & ~begins
    is_first = ~is_space | (opens & ~is_omitted) | (is_space & ~begins & graph.shift_right(is_omitted, False))
    first_indices = graph.where_true(is_first)
    ends = graph.Concat(first_indices, graph.shape(size), axis=0)[1:]
    # White space tokens that contain a line break have the type `LINE_BREAK`.
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
    """Add ONNX nodes that look up each character's type, such as `pipeline.units.SPACE`. *Shape:* (characters,)"""
    return graph.lookup(codes, _unit_types(), TEXT)


@lru_cache(maxsize=1)
def _unit_types() -> dict[int, int]:
    """Return the types of white space, line breaks, emoji and control characters by code point."""
    unit_types = unit_types_of(np.arange(_TYPED_CODES, dtype=np.uint32))
    return {code: int(unit_types[code]) for code in np.flatnonzero(unit_types != TEXT).tolist()}


def sentence_ends(graph: Graph, units: UnitValues) -> Value:
    """Add ONNX nodes that compute a mask of the tokens or characters (units) at sentence ends. *Shape:* (units,)

    `DocView.sentence_ends` implements the same rules for a Doc.
    """
    is_mark = graph.lookup(units.codes, {ord(mark): 1 for mark in SENTENCE_ENDS}, 0) > 0
    characters = np.flatnonzero(is_letter_or_digit(np.arange(_TYPED_CODES, dtype=np.uint32))).tolist()
    continues = (graph.lookup(units.codes, dict.fromkeys(characters, 1), 0) > 0) & _follows_directly(graph, units)
    before_character = graph.Concat(continues[1:], np.array([False]), axis=0)[: graph.size(units.codes)]
    is_mark = is_mark & ~(graph.Equal(units.codes, ord(".")) & before_character)
    return (is_mark & ~units.is_long_space) | (units.is_long_space & graph.Equal(units.unit_types, LINE_BREAK))


def joined_letters(graph: Graph, codes: Value) -> Value:
    """Add ONNX nodes that compute a mask of Latin letters that follow another Latin letter. *Shape:* (characters,)"""
    letters = np.flatnonzero(is_latin_letter(np.arange(_TYPED_CODES, dtype=np.uint32))).tolist()
    is_letter = graph.lookup(codes, dict.fromkeys(letters, 1), 0) > 0
    return is_letter & graph.shift_right(is_letter, False)


def word_neighbours(graph: Graph, units: UnitValues) -> Value:
    """Add ONNX nodes that compute which neighbours of each unit belong to the same Latin word. *Shape:* (units,)

    A unit is the token or character that the model tags. The values are sums of the flags
    `PREVIOUS_IN_WORD` and `NEXT_IN_WORD`, as in `pipeline.units.letter_neighbours`.
    """
    joined = (joined_letters(graph, units.codes) & _follows_directly(graph, units)).to(np.int64)
    return joined + graph.Concat(joined[1:], [0], axis=0)[: graph.size(joined)] * 2


def _follows_directly(graph: Graph, units: UnitValues) -> Value:
    """Return a mask of units that directly follow another unit in the same text. *Shape:* (units,)"""
    # A space between two units separates words.
    is_next = graph.Equal(units.starts - graph.shift_right(units.starts, -1), 1)
    begins = graph.count_indices(graph.starts(units.lengths), graph.size(units.codes)) > 0
    return is_next & ~begins


def number_strings(vocabulary: CharVocabulary, nlp: Language) -> tuple[Keys, dict[str, int], dict[int, int]]:
    """Assign an integer to every string that has an embedding or is part of a bigram that has an embedding.

    A vocabulary contains only hashes, so the strings must be recovered. Candidates are all characters below
    `_CODE_POINTS`, the single characters and white space in the pipeline's StringStore, and the characters in
    pretrained bigrams.

    RETURNS (tuple[Keys, dict[str, int], dict[int, int]]): Each string's hash, ordered by the strings' integers, which
        start at 1. Each string's integer. Each bigram's embedding row, by its `pair_number`.
    """
    normalizer, tables = vocabulary.normalizer, vocabulary.tables
    character_keys = _character_keys(normalizer)
    strings = [text for text in nlp.vocab.strings if len(text) == 1 or text.isspace()]
    strings += vocabulary.pair_characters
    string_keys, end_key = unigram_key_array(strings, normalizer), normalizer.key(END_MARK)
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
    """Recover the characters in bigrams by hashing all pairs of printable characters. Return the characters' hashes.

    This takes about a minute. It is only needed for pipelines with pretrained bigrams that were saved by versions
    without `CharVocabulary.pair_characters`.
    """
    printable = [text.isprintable() for text in _all_characters()[:_SEARCHED_CODES]]
    basic = np.unique(character_keys[:_SEARCHED_CODES][printable])
    found = np.array(list(_pairs(basic, end_key, table)), dtype=np.int64)
    keys = np.append(basic, np.uint64(end_key))[np.stack(pair_of(found, basic.size)) - 1].ravel()
    found_keys: Keys = keys[keys != end_key]
    return found_keys


def write_numbers(
    graph: Graph, codes: Value, units: UnitValues, number_of_text: dict[str, int], normalizer: Normalizer
) -> Value:
    """Add ONNX nodes that look up the integer for each token or character (unit). *Shape:* (units,)

    Unknown strings have the integer 0.

    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    number_of_text (dict[str, int]): Each string's integer, from `number_strings`.
    """
    number_of_code = {ord(text): number for text, number in number_of_text.items() if len(text) == 1}
    # ONNX cannot look up strings. White space tokens with several characters are therefore looked up by a linear hash.
    # Each character adds a random weight for its position, multiplied by its index in `digits`. Two strings have the
    # same hash with a probability of about 2 ** -40.
    spaces = {text: number for text, number in number_of_text.items() if len(text) > 1}
    longest = max(map(len, spaces), default=1)
    white = [code for code, kind in _unit_types().items() if kind in (SPACE, LINE_BREAK)]
    largest = (1 << _SUM_BITS) // ((len(white) + 1) * longest)
    weights = np.append(np.random.default_rng(0).integers(1, largest, longest), 0)
    digits = {code: white.index(ord(normalizer(chr(code)))) + 1 for code in white}
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
    """Return a single integer for a bigram, given the integers of its two strings.

    second (Any): The second string's integer, or `n_strings + 1` at the end of a text.
    n_strings (int): Number of strings.
    """
    return first * (n_strings + 2) + second


def pair_of(number: IntArray, n_strings: int) -> tuple[IntArray, IntArray]:
    """Split bigram ids into the ids of their two strings. This is the inverse of `pair_number`."""
    return np.divmod(number, n_strings + 2)


@lru_cache(maxsize=1)
def _all_characters() -> tuple[str, ...]:
    # Surrogates cannot be encoded as UTF-8, which spaCy requires to hash a string.
    surrogates = range(0xD800, 0xE000)
    return tuple(chr(code) for code in range(_CODE_POINTS) if code not in surrogates)


@lru_cache(maxsize=4)
def _character_keys(normalizer: Normalizer) -> Keys:
    return unigram_key_array(_all_characters(), normalizer)


def _pairs(keys: Keys, end_key: int, table: StringTable) -> dict[int, int]:
    """Find all bigrams that have an embedding. Return each bigram's embedding row, by its `pair_number`.

    keys (Keys): Hashes of the strings. The first string has the integer 1. *Shape:* (strings,)
    table (StringTable): The embedding row of each bigram's hash.
    """
    seconds = np.append(keys, np.uint64(end_key))
    # Nearly all string pairs have no embedding. A mask of the high bits of all bigram hashes (a Bloom filter with a
    # single hash function) excludes them faster than a binary search for each pair.
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
    """Return a boolean lookup table for the 22 high bits of keys. *Shape:* (2 ** 22,)"""
    mask = np.zeros(1 << (64 - int(_HIGH_BITS)), dtype=bool)
    mask[keys >> _HIGH_BITS] = True
    return mask
