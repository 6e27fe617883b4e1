"""Views that represent a Doc as a sequence of units. A unit is a token, or a character with `view = "characters"`.

`TokenView` and `CharacterView` have the same methods. The methods return the unit attributes (`Units`) and the model
input, and convert between units, tokens and character offsets. The component's other modules use views, so they work
with tokens and with characters:

    text                       张三 在北京
    TokenView                  张三 | 在 | 北京              tokens from any tokenizer
    CharacterView              张 | 三 | ␠ | 在 | 北 | 京    all characters, including spaces
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import (
    DEP,
    ENT_ID,
    ENT_IOB,
    ENT_KB_ID,
    ENT_TYPE,
    IDX,
    IS_SPACE,
    LEMMA,
    LENGTH,
    MORPH,
    NORM,
    POS,
    SENT_START,
    TAG,
)
from spacy.strings import get_string_id
from spacy.tokens import Doc

from ..features.characters import LINE_BREAKS, CodePoints
from ..features.keys import search
from ..features.tokens import TokenColumns, columns_of
from ..processes import cached_property
from ..types import BoolArray, IntArray
from .tokenizer import doc_of_characters

View = Literal["tokens", "characters"]
Alignment = Literal["expand", "contract", "strict"]

# Values of `Token.ent_iob`.
MISSING, INSIDE, OUTSIDE, BEGIN = 0, 1, 2, 3

# Unit types. An ornament is an emoji, a control character or an invisible character.
N_UNIT_TYPES = 4
TEXT, SPACE, LINE_BREAK, ORNAMENT = range(N_UNIT_TYPES)

# Flags for the neighbours of a unit that are letters in the same Latin word, see `letter_neighbours`.
PREVIOUS_IN_WORD, NEXT_IN_WORD = 1, 2

_LINE_BREAKS = np.array([ord(character) for character in LINE_BREAKS], dtype=np.uint32)
_HAS_BREAK = re.compile(f"[{LINE_BREAKS}]").search
# Unicode ranges of emoji, control characters and invisible characters: first and last code points, sorted.
_ORNAMENTS = (
    *((0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x180E, 0x180E)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x20E3, 0x20E3), (0x2300, 0x23FF), (0x25AA, 0x25AB)),
    *((0x25B6, 0x25B6), (0x25C0, 0x25C0), (0x25FB, 0x25FE), (0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x3030, 0x3030)),
    *((0x303D, 0x303D), (0x3164, 0x3164), (0x3297, 0x3297), (0x3299, 0x3299), (0xFE0E, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF9, 0xFFFC), (0x1F000, 0x1FAFF)),
)
# Unicode ranges of Latin letters and combining accents: first and last code points, sorted.
_LATIN = (
    *((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x24F), (0x300, 0x36F)),
    *((0x1E00, 0x1EFF), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
)
_DIGITS = ((0x30, 0x39), (0xFF10, 0xFF19))
# Characters that may end a sentence. Long documents are split after these characters.
SENTENCE_ENDS = "。！？!?；;…\n."
_SENTENCE_END_CODES = np.array(sorted(map(ord, SENTENCE_ENDS)), dtype=np.uint64)
_SENTENCE_END_ORTHS = np.array(sorted(map(get_string_id, SENTENCE_ENDS)), dtype=np.uint64)
_FULL_STOP = "."
_FULL_STOP_ORTH = np.uint64(get_string_id(_FULL_STOP))
# Token attributes that `slice_doc` copies, because earlier components may set them and layers may embed them. HEAD is
# excluded, because a token's head can be outside the window.
_COPIED_ATTRIBUTES = [ENT_IOB, NORM, LEMMA, POS, TAG, MORPH, DEP, ENT_TYPE, ENT_ID, ENT_KB_ID, SENT_START]
_ENT_IOB_COLUMN = _COPIED_ATTRIBUTES.index(ENT_IOB)


@dataclass(frozen=True)
class Units:
    """Attributes of the tokens or characters in one or more texts. *Shape:* (units,) for each attribute

    unit_type (IntArray): `TEXT`, `SPACE`, `LINE_BREAK` or `ORNAMENT`.
    iob (IntArray): The value of `Token.ent_iob`.
    label (NDArray[np.uint64]): Hash of the entity label, or 0.
    sentence_start (BoolArray): Whether a sentence is known to start here.
    """

    unit_type: IntArray
    iob: IntArray
    label: NDArray[np.uint64]
    sentence_start: BoolArray

    @property
    def space(self) -> BoolArray:
        """Mask of the units that are white space. *Shape:* (units,)"""
        is_white: BoolArray = (self.unit_type == SPACE) | (self.unit_type == LINE_BREAK)
        return is_white

    @property
    def preset(self) -> BoolArray:
        """Mask of the units in existing entities, and of blocked units. *Shape:* (units,)"""
        is_preset: BoolArray = (self.iob == BEGIN) | (self.iob == INSIDE)
        return is_preset

    def entities(self) -> list[tuple[int, int, int]]:
        """Return the start, end and label hash of each entity. Start and end are unit indices."""
        first = np.flatnonzero((self.iob == BEGIN) & (self.label != 0))
        # An entity ends before the next unit that is not inside an entity.
        stops = np.append(np.flatnonzero(self.iob != INSIDE), len(self.iob))
        ends = stops[np.searchsorted(stops, first, side="right")]
        return list(zip(first.tolist(), ends.tolist(), self.label[first].tolist(), strict=True))


def user_data_of(doc: Doc) -> dict[Any, Any]:
    """Return a Doc's `user_data` without the extension attributes of tokens and spans.

    These attributes are stored with character offsets, which are not valid in a window.
    """
    # spaCy's keys for extension attributes are ("._.", name, start, end). For a Doc attribute, `start` is None.
    data: Any = doc.user_data
    return {
        key: value
        for key, value in data.items()
        if not (isinstance(key, tuple) and len(key) == 4 and key[0] == "._." and key[2] is not None)
    }


def is_space(codes: CodePoints) -> BoolArray:
    """Return a mask of the characters that are white space. *Shape:* (characters,)"""
    distinct, indices = np.unique(codes, return_inverse=True)
    return np.array([chr(code).isspace() for code in distinct.tolist()], dtype=bool)[indices]


def is_ornament(codes: CodePoints) -> BoolArray:
    """Return a mask of emoji, control characters and invisible characters, which are usually not part of a name.

    *Shape:* (characters,)
    """
    return _is_within(codes, _ORNAMENTS)


def unit_types_of(codes: CodePoints) -> IntArray:
    """Return the type of each character: `TEXT`, `SPACE`, `LINE_BREAK` or `ORNAMENT`. *Shape:* (characters,)"""
    kinds = np.where(is_ornament(codes), ORNAMENT, TEXT)
    kinds[is_space(codes)] = SPACE
    kinds[np.isin(codes, _LINE_BREAKS)] = LINE_BREAK
    return kinds


def is_latin_letter(codes: CodePoints) -> BoolArray:
    """Return a mask of Latin letters, including combining accents. *Shape:* (characters,)"""
    return _is_within(codes, _LATIN)


def is_letter_or_digit(codes: CodePoints) -> BoolArray:
    """Return a mask of Latin letters and digits. *Shape:* (characters,)

    A full stop directly before one of these characters does not end a sentence, as in "3.14" or "U.S.".
    """
    return is_latin_letter(codes) | _is_within(codes, _DIGITS)


def word_continuations(codes: CodePoints) -> BoolArray:
    """Return a mask of the letters in Latin words, except for the first letter of each word. *Shape:* (characters,)"""
    is_letter = is_latin_letter(codes)
    is_letter[1:] &= is_letter[:-1]
    is_letter[:1] = False
    return is_letter


def _is_within(codes: CodePoints, ranges: tuple[tuple[int, int], ...]) -> BoolArray:
    """Return a mask of the code points that are in one of the ranges. *Shape:* (characters,)

    ranges (tuple[tuple[int, int], ...]): First and last code point of each range, sorted.
    """
    bounds = np.array(ranges, dtype=np.uint32) + np.array([0, 1], dtype=np.uint32)
    # `bounds` alternates between the first code point of a range and the first code point after it. So a code point is
    # in a range if an odd number of bounds is less than or equal to the code point.
    is_within: BoolArray = np.searchsorted(bounds.reshape(-1), codes, side="right") % 2 == 1
    return is_within


@cache
def _hashes_of_characters(predicate: Callable[[CodePoints], BoolArray]) -> frozenset[int]:
    """Return spaCy's hashes of all characters for which the predicate is True.

    predicate (Callable[[CodePoints], BoolArray]): Function that returns a mask of characters, for example
        `is_ornament`.
    """
    codes = np.flatnonzero(predicate(np.arange(0x20000, dtype=np.uint32))).tolist()
    return frozenset(get_string_id(chr(code)) for code in codes)


class _View:
    """Base class of `TokenView` and `CharacterView`."""

    def __init__(self, doc: Doc) -> None:
        self.doc = doc

    @cached_property
    def _data(self) -> dict[Any, Any]:
        return user_data_of(self.doc)


class TokenView(_View):
    """View that represents a Doc as a sequence of tokens."""

    def __len__(self) -> int:
        return len(self.doc)

    @cached_property
    def columns(self) -> TokenColumns:
        """The model input for each token: the hash of its string, and 1 if a space follows, otherwise 0. *Shape:*
        (units, 2)"""
        return columns_of(self.doc)

    @cached_property
    def _attributes(self) -> NDArray[np.uint64]:
        """The attributes in `_COPIED_ATTRIBUTES` for each token. *Shape:* (units, attributes)"""
        # Convert all tokens at once. Per token, Span.to_array() would take ten times as long.
        attributes: Any = self.doc.to_array(_COPIED_ATTRIBUTES)
        table: NDArray[np.uint64] = attributes
        return table

    @property
    def is_unrestricted(self) -> bool:
        """Whether all tags are allowed for all tokens.

        This is the case if there are no white space tokens, ornaments, existing entities or known sentence starts.
        `join_units` does not compute attributes for such texts, which saves time.
        """
        if any(map(self.doc.has_annotation, (IS_SPACE, ENT_IOB, SENT_START))):
            return False
        return _hashes_of_characters(is_ornament).isdisjoint(self._orths)

    @cached_property
    def _orths(self) -> list[int]:
        orths: list[int] = self.columns[:, 0].tolist()
        return orths

    @property
    def word_continuations(self) -> BoolArray | None:
        """Mask of the tokens that continue a Latin word, if each letter is a token. *Shape:* (units,)

        None if no token is a single Latin letter.
        """
        letters, orths = _hashes_of_characters(is_latin_letter), self._orths
        if letters.isdisjoint(orths):
            return None
        # A letter continues a word if the previous token is also a letter and is not followed by a space.
        is_letter = np.fromiter(map(letters.__contains__, orths), dtype=bool, count=len(orths))
        continues = is_letter.copy()
        continues[:1] = False
        continues[1:] &= is_letter[:-1] & (self.columns[:-1, 1] == 0)
        return continues

    def units(self) -> Units:
        """Return the attributes of all units."""
        space, iob, label, sentence_start = self.doc.to_array([IS_SPACE, ENT_IOB, ENT_TYPE, SENT_START]).T
        unit_type, ornaments = np.full(len(self), TEXT, dtype=np.int64), _hashes_of_characters(is_ornament)
        if not ornaments.isdisjoint(self._orths):
            unit_type[[orth in ornaments for orth in self._orths]] = ORNAMENT
        for i in np.flatnonzero(space).tolist():
            unit_type[i] = LINE_BREAK if _HAS_BREAK(self.doc[i].text) else SPACE
        return Units(unit_type, iob.astype(np.int64), label, sentence_start == 1)

    def slice_doc(self, start: int, end: int) -> Doc:
        """Convert a range of units (tokens or characters) to a Doc with one token for each unit.

        This method is slow. Only call it for layers that require Docs.
        """
        if end - start == len(self.doc):
            return self.doc
        # Span.as_doc() is slow, because it converts the complete Doc for each window. Creating a Doc from hashes is
        # faster than from strings.
        words: list[Any] = self.columns[start:end, 0].tolist()
        spaces: list[bool] = (self.columns[start:end, 1] == 1).tolist()
        part = Doc(self.doc.vocab, words=words, spaces=spaces)
        attributes: Any = self._attributes[start:end].copy()
        # If the window starts inside an entity, its first token becomes the start of an entity, as in Span.as_doc().
        if attributes[0, _ENT_IOB_COLUMN] == INSIDE:
            attributes[0, _ENT_IOB_COLUMN] = BEGIN
        part.from_array(_COPIED_ATTRIBUTES, attributes)
        part.tensor = self.doc.tensor[start:end]
        part.user_data.update(self._data)
        return part

    def sentence_ends(self) -> BoolArray:
        """Return a mask of the tokens or characters after which a sentence may end. *Shape:* (units,)"""
        _, ends = search(_SENTENCE_END_ORTHS, self.columns[:, 0])
        stops = (self.columns[:, 0] == _FULL_STOP_ORTH) & (self.columns[:, 1] == 0)
        for i in np.flatnonzero(stops[:-1]).tolist():
            next_code = np.array([ord(self.doc[i + 1].text[0])])
            ends[i] = not is_letter_or_digit(next_code)[0]
        if self.doc.has_annotation(IS_SPACE):
            # An empty line, or a line break with the following indentation, is a single white space token.
            lengths, is_space = self.doc.to_array([LENGTH, IS_SPACE]).T
            for i in np.flatnonzero((lengths > 1) & (is_space == 1)).tolist():
                ends[i] = _HAS_BREAK(self.doc[i].text) is not None
        if self.doc.has_annotation(SENT_START):
            ends[:-1] |= self.doc.to_array(SENT_START)[1:] == 1
        return ends

    def char_span(self, start: int, end: int) -> tuple[int, int]:
        """Convert a range of units (tokens or characters) to character offsets."""
        return self.doc[start].idx, self.doc[end - 1].idx + len(self.doc[end - 1])

    def char_extents(self) -> IntArray:
        """Return the character offset and the length of each unit (token or character). *Shape:* (units, 2)"""
        return self.doc.to_array([IDX, LENGTH]).astype(np.int64).reshape(-1, 2)

    def unit_span(self, start: int, end: int) -> tuple[int, int] | None:
        """Convert character offsets to a range of units (tokens or characters).

        Return None if the offsets are not at unit boundaries.
        """
        span = self.doc.char_span(start, end)
        return (span.start, span.end) if span is not None else None

    def token_span(self, start: int, end: int, alignment: Alignment) -> tuple[int, int]:
        """Convert a range of units (tokens or characters) to a range of tokens.

        The range is empty if `alignment` discards it.
        """
        return start, end


class CharacterView(_View):
    """View that represents a Doc as a sequence of characters, including white space."""

    def __init__(self, doc: Doc) -> None:
        super().__init__(doc)
        self.text = doc.text
        self._codes = np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        self._starts, lengths, self._space = doc.to_array([IDX, LENGTH, IS_SPACE]).astype(np.int64).T
        self._ends = self._starts + lengths

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def columns(self) -> TokenColumns:
        """The model input for each character: its hash, and 0, since a following space is a separate unit. *Shape:*
        (units, 2)"""
        columns = np.zeros((len(self), 2), dtype=np.uint64)
        # Add the characters to the string store, because embedders convert hashes to strings.
        columns[:, 0] = np.fromiter(map(self.doc.vocab.strings.add, self.text), dtype=np.uint64, count=len(self))
        return columns

    @property
    def is_unrestricted(self) -> bool:
        return False

    def units(self) -> Units:
        return self.to_characters(TokenView(self.doc).units())

    @property
    def word_continuations(self) -> BoolArray | None:
        """Mask of the characters that continue a Latin word. *Shape:* (units,)"""
        return word_continuations(self._codes)

    def to_characters(self, tokens: Units) -> Units:
        """Expand token attributes to characters. Each character gets the attributes of its token."""
        position = np.arange(len(self))
        token = np.searchsorted(self._starts, position, side="right") - 1
        first = np.zeros(len(self), dtype=bool)
        first[self._starts] = True
        gap = position >= self._ends[token]
        label = tokens.label[token]
        # In an entity, the first character has the IOB value of its token, and the others are inside the entity. In a
        # blocked token (B without a label), all characters have the same value.
        iob = np.where(~first & (label != 0), INSIDE, tokens.iob[token])
        # A space between two tokens is inside an entity if the next token continues the entity. Otherwise, the space is
        # outside. If the previous token has missing annotation, the space also has missing annotation.
        continues = np.append(tokens.iob[1:], OUTSIDE)[token] == INSIDE
        outside = np.where(tokens.iob[token] == MISSING, MISSING, OUTSIDE)
        return Units(
            unit_type=unit_types_of(self._codes),
            iob=np.where(gap, np.where(continues, INSIDE, outside), iob),
            label=np.where(gap & ~continues, np.uint64(0), label),
            sentence_start=first & tokens.sentence_start[token],
        )

    def slice_doc(self, start: int, end: int) -> Doc:
        characters = list(self.text[start:end])
        part = doc_of_characters(self.doc.vocab, characters, [False] * len(characters))
        part.user_data.update(self._data)
        return part

    def sentence_ends(self) -> BoolArray:
        _, ends = search(_SENTENCE_END_CODES, self._codes)
        ends[:-1] &= (self._codes[:-1] != ord(_FULL_STOP)) | ~is_letter_or_digit(self._codes[1:])
        starts = self._starts[self.doc.to_array(SENT_START) == 1]
        ends[starts[starts > 0] - 1] = True
        return ends

    def char_span(self, start: int, end: int) -> tuple[int, int]:
        return start, end

    def char_extents(self) -> IntArray:
        return np.stack([np.arange(len(self)), np.ones(len(self), dtype=np.int64)], axis=1)

    def unit_span(self, start: int, end: int) -> tuple[int, int] | None:
        return start, end

    def token_span(self, start: int, end: int, alignment: Alignment) -> tuple[int, int]:
        """Convert a range of characters to a range of tokens. The range is empty if `alignment` discards it.

        `expand` returns the tokens that overlap the span. `contract` returns the tokens inside the span, without white
        space at its ends. `strict` returns the tokens if the span aligns with token boundaries.
        """
        if alignment == "contract":
            first = int(np.searchsorted(self._starts, start, side="left"))
            last = int(np.searchsorted(self._ends, end, side="right"))
            text = np.flatnonzero(self._space[first:last] == 0) + first
            return (int(text[0]), int(text[-1]) + 1) if text.size else (first, first)
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._starts, end, side="left"))
        exact = self._starts[first] == start and self._ends[last - 1] == end
        return (first, last) if exact or alignment == "expand" else (first, first)


DocView = TokenView | CharacterView


def join_units(views: Sequence[DocView]) -> Units | None:
    """Concatenate the attributes of the tokens or characters in all texts. Return None if all tags are allowed
    everywhere.

    To save time, attributes are not computed for texts that do not restrict the tags, see `TokenView.is_unrestricted`.
    """
    is_skipped = [view.is_unrestricted for view in views]
    if all(is_skipped):
        return None
    parts = [
        _unrestricted_units(len(view)) if skip else view.units() for view, skip in zip(views, is_skipped, strict=True)
    ]
    return Units(*(np.concatenate(columns) for columns in zip(*(vars(part).values() for part in parts), strict=True)))


def _unrestricted_units(length: int) -> Units:
    zeros = np.zeros(length, dtype=np.int64)
    return Units(zeros, zeros, zeros.astype(np.uint64), zeros.astype(bool))


def letter_neighbours(views: Sequence[DocView]) -> IntArray | None:
    """Return for each token or character which of its neighbours are letters in the same Latin word.

    The value is a sum of the flags `PREVIOUS_IN_WORD` and `NEXT_IN_WORD`. All texts are concatenated.
    Return None if each Latin word is a single token. *Shape:* (units,)
    """
    # For words in lists, `find_list_words` uses a stricter rule, which includes digits and other scripts. Here, the
    # rule is limited to letters, because a model can learn from context that a name ends before a digit.
    parts = [view.word_continuations for view in views]
    if all(part is None for part in parts):
        return None
    continues = np.concatenate(
        [np.zeros(len(view), dtype=bool) if part is None else part for view, part in zip(views, parts, strict=True)]
    )
    neighbours = PREVIOUS_IN_WORD * continues.astype(np.int64)
    neighbours[:-1] += NEXT_IN_WORD * continues[1:]
    return neighbours if continues.any() else None


def view_of(doc: Doc, view: View) -> DocView:
    """Create a view that represents a Doc as a sequence of tokens or characters.

    If every token is a single character, a `TokenView` is returned in both cases, because it is faster.
    """
    if view == "tokens" or len(doc) == 0:
        return TokenView(doc)
    last = doc[-1]
    if last.idx + len(last.text_with_ws) == len(doc):
        return TokenView(doc)
    return CharacterView(doc)
