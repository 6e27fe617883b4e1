"""Views of a Doc as a sequence of units: of its tokens, or of its characters.

Both views have the same methods: they return attributes of the units (`Units`), the units as input of a model, and
convert spans of units to spans of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ENT_IOB, ENT_TYPE, IDS, IDX, IS_SPACE, LENGTH, SENT_START
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

MISSING, INSIDE, OUTSIDE, BEGIN = 0, 1, 2, 3
"""The values of spaCy's `ent_iob`."""

N_UNIT_TYPES = 4
TEXT, SPACE, LINE_BREAK, ORNAMENT = range(N_UNIT_TYPES)
"""Kinds of units. An ornament is an emoji, a control character or an invisible one."""

_LINE_BREAKS = np.array([ord(character) for character in LINE_BREAKS], dtype=np.uint32)
_HAS_BREAK = re.compile(f"[{LINE_BREAKS}]").search
_ORNAMENTS = (
    *((0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x180E, 0x180E)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x20E3, 0x20E3), (0x2300, 0x23FF), (0x25AA, 0x25AB)),
    *((0x25B6, 0x25B6), (0x25C0, 0x25C0), (0x25FB, 0x25FE), (0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x3030, 0x3030)),
    *((0x303D, 0x303D), (0x3164, 0x3164), (0x3297, 0x3297), (0x3299, 0x3299), (0xFE0E, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF9, 0xFFFC), (0x1F000, 0x1FAFF)),
)
"""First and last code points of emoji, control characters, and invisible ones."""
_LATIN = (
    *((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x24F), (0x300, 0x36F)),
    *((0x1E00, 0x1EFF), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
)
"""First and last code points of letters of Latin scripts, and of the accents that combine with them."""
SENTENCE_ENDS = "。！？!?；;…\n."
_SENTENCE_END_CODES = np.array(sorted(map(ord, SENTENCE_ENDS)), dtype=np.uint64)
_SENTENCE_END_ORTHS = np.array(sorted(map(get_string_id, SENTENCE_ENDS)), dtype=np.uint64)
_EMBEDDED = ("ENT_IOB", "NORM", "LEMMA", "POS", "TAG", "MORPH", "DEP", "ENT_TYPE", "ENT_ID", "ENT_KB_ID", "SENT_START")
_EMBEDDABLE = [IDS[name] for name in _EMBEDDED]
"""Attributes of a token that earlier components set and a model may embed. Not HEAD: it may lie outside of a window."""


@dataclass(frozen=True)
class Units:
    """Attributes of units. *Shape:* (units,) each

    unit_type (IntArray): `TEXT`, `SPACE`, `LINE_BREAK` or `ORNAMENT`.
    iob (IntArray): spaCy's `ent_iob`.
    label (NDArray[np.uint64]): Hash of the entity type; 0 for none.
    sentence_start (BoolArray): True for a known sentence start.
    """

    unit_type: IntArray
    iob: IntArray
    label: NDArray[np.uint64]
    sentence_start: BoolArray

    @property
    def space(self) -> BoolArray:
        """True for white space. *Shape:* (units,)"""
        is_white: BoolArray = (self.unit_type == SPACE) | (self.unit_type == LINE_BREAK)
        return is_white

    @property
    def preset(self) -> BoolArray:
        """True in entities that the Doc has, and for its blocked tokens. *Shape:* (units,)"""
        is_preset: BoolArray = (self.iob == BEGIN) | (self.iob == INSIDE)
        return is_preset

    def entities(self) -> list[tuple[int, int, int]]:
        """Return start, end and the label's hash of the Doc's entities."""
        first = np.flatnonzero((self.iob == BEGIN) & (self.label != 0))
        stops = np.append(np.flatnonzero(self.iob != INSIDE), len(self.iob))
        ends = stops[np.searchsorted(stops, first, side="right")]
        return list(zip(first.tolist(), ends.tolist(), self.label[first].tolist(), strict=True))


def user_data_of(doc: Doc) -> dict[Any, Any]:
    """Return the `user_data` of a Doc itself, without the extension attributes of its tokens and spans."""
    data: Any = doc.user_data
    return {
        key: value
        for key, value in data.items()
        if not (isinstance(key, tuple) and len(key) == 4 and key[0] == "._." and key[2] is not None)
    }


def is_space(codes: CodePoints) -> BoolArray:
    """Mark white space. *Shape:* (characters,)"""
    distinct, indices = np.unique(codes, return_inverse=True)
    return np.array([chr(code).isspace() for code in distinct.tolist()], dtype=bool)[indices]


def is_ornament(codes: CodePoints) -> BoolArray:
    """Mark characters that belong to no name: emoji, control characters and invisible ones. *Shape:* (characters,)"""
    return _is_within(codes, _ORNAMENTS)


def unit_types_of(codes: CodePoints) -> IntArray:
    """Return the type of each character. *Shape:* (characters,)"""
    kinds = np.where(is_ornament(codes), ORNAMENT, TEXT)
    kinds[is_space(codes)] = SPACE
    kinds[np.isin(codes, _LINE_BREAKS)] = LINE_BREAK
    return kinds


def is_latin_letter(codes: CodePoints) -> BoolArray:
    """Mark letters of Latin scripts, and the accents that combine with them. *Shape:* (characters,)"""
    return _is_within(codes, _LATIN)


def word_continuations(codes: CodePoints) -> BoolArray:
    """Mark each letter of a Latin word but its first one. *Shape:* (characters,)"""
    is_letter = is_latin_letter(codes)
    is_letter[1:] &= is_letter[:-1]
    is_letter[:1] = False
    return is_letter


def _is_within(codes: CodePoints, ranges: tuple[tuple[int, int], ...]) -> BoolArray:
    """Mark code points in ranges, which are in order. *Shape:* (characters,)"""
    bounds = np.array(ranges, dtype=np.uint32) + np.array([0, 1], dtype=np.uint32)
    is_within: BoolArray = np.searchsorted(bounds.reshape(-1), codes, side="right") % 2 == 1
    return is_within


@cache
def _hashes_of_characters(predicate: Callable[[CodePoints], BoolArray]) -> frozenset[int]:
    """The hashes of strings of one such character."""
    codes = np.flatnonzero(predicate(np.arange(0x20000, dtype=np.uint32))).tolist()
    return frozenset(get_string_id(chr(code)) for code in codes)


class _View:
    """Base of the views."""

    def __init__(self, doc: Doc) -> None:
        self.doc = doc

    @cached_property
    def _data(self) -> dict[Any, Any]:
        return user_data_of(self.doc)


class TokenView(_View):
    """A Doc as the sequence of its tokens."""

    def __len__(self) -> int:
        return len(self.doc)

    @cached_property
    def columns(self) -> TokenColumns:
        """The units as input of a model: their strings, and whether a space follows. *Shape:* (units, 2)"""
        return columns_of(self.doc)

    @cached_property
    def _attributes(self) -> NDArray[np.uint64]:
        """The attributes that a Doc of a window has. *Shape:* (tokens, attributes)"""
        # Of all tokens at once: Span.to_array() takes ten times as long for each token.
        attributes: Any = self.doc.to_array(_EMBEDDABLE)
        table: NDArray[np.uint64] = attributes
        return table

    @property
    def is_unrestricted(self) -> bool:
        """True only if nothing restricts the tags: no white space, ornament, annotation or known sentence start."""
        if any(map(self.doc.has_annotation, (IS_SPACE, ENT_IOB, SENT_START))):
            return False
        return _hashes_of_characters(is_ornament).isdisjoint(self._orths)

    @cached_property
    def _orths(self) -> list[int]:
        orths: list[int] = self.columns[:, 0].tolist()
        return orths

    @property
    def word_continuations(self) -> BoolArray | None:
        """True for each letter of a Latin word but its first one, where letters are tokens; None without letters.

        *Shape:* (units,)
        """
        letters, orths = _hashes_of_characters(is_latin_letter), self._orths
        if letters.isdisjoint(orths):
            return None
        is_letter = np.fromiter(map(letters.__contains__, orths), dtype=bool, count=len(orths))
        continues = is_letter.copy()
        continues[:1] = False
        continues[1:] &= is_letter[:-1] & (self.columns[:-1, 1] == 0)
        return continues

    def units(self) -> Units:
        space, iob, label, sentence_start = self.doc.to_array([IS_SPACE, ENT_IOB, ENT_TYPE, SENT_START]).T
        unit_type, ornaments = np.full(len(self), TEXT, dtype=np.int64), _hashes_of_characters(is_ornament)
        if not ornaments.isdisjoint(self._orths):
            unit_type[[orth in ornaments for orth in self._orths]] = ORNAMENT
        for i in np.flatnonzero(space).tolist():
            unit_type[i] = LINE_BREAK if _HAS_BREAK(self.doc[i].text) else SPACE
        return Units(unit_type, iob.astype(np.int64), label, sentence_start == 1)

    def slice_doc(self, start: int, end: int) -> Doc:
        """Return the units from `start` to `end` as a Doc with one token each, for layers that need Docs."""
        if end - start == len(self.doc):
            return self.doc
        # Span.as_doc() would convert the whole Doc for each window of it. Hashes of words are faster than strings.
        words: list[Any] = self.columns[start:end, 0].tolist()
        spaces: list[bool] = (self.columns[start:end, 1] == 1).tolist()
        part = Doc(self.doc.vocab, words=words, spaces=spaces)
        attributes: Any = self._attributes[start:end].copy()
        # As in Span.as_doc(), the rest of an entity that starts before the window becomes an entity.
        attributes[0, 0] = BEGIN if attributes[0, 0] == INSIDE else attributes[0, 0]
        part.from_array(_EMBEDDABLE, attributes)
        part.tensor = self.doc.tensor[start:end]
        part.user_data.update(self._data)
        return part

    def sentence_ends(self) -> BoolArray:
        """Return a mask of the units that look like the end of a sentence. *Shape:* (units,)"""
        _, ends = search(_SENTENCE_END_ORTHS, self.columns[:, 0])
        if self.doc.has_annotation(IS_SPACE):
            # White space that contains a line break is one token: an empty line, or the indentation of the next line.
            lengths, is_space = self.doc.to_array([LENGTH, IS_SPACE]).T
            for i in np.flatnonzero((lengths > 1) & (is_space == 1)).tolist():
                ends[i] = _HAS_BREAK(self.doc[i].text) is not None
        if self.doc.has_annotation(SENT_START):
            ends[:-1] |= self.doc.to_array(SENT_START)[1:] == 1
        return ends

    def char_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the character offsets of the units from `start` to `end`."""
        return self.doc[start].idx, self.doc[end - 1].idx + len(self.doc[end - 1])

    def char_extents(self) -> IntArray:
        """Return start and length in characters of each unit. *Shape:* (units, 2)"""
        return self.doc.to_array([IDX, LENGTH]).astype(np.int64).reshape(-1, 2)

    def unit_span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the units of the characters from `start` to `end`; None if these are not whole units."""
        span = self.doc.char_span(start, end)
        return (span.start, span.end) if span is not None else None

    def token_span(self, start: int, end: int, alignment: Alignment) -> tuple[int, int]:
        """Return the tokens of the units from `start` to `end`; an empty range if `alignment` finds none."""
        return start, end


class CharacterView(_View):
    """A Doc as the sequence of its characters, white space included."""

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
        """The units as input of a model: their strings, and 0, since a space is a unit. *Shape:* (units, 2)"""
        columns = np.zeros((len(self), 2), dtype=np.uint64)
        # The store must have each character, since embedders request the strings of hashes.
        columns[:, 0] = np.fromiter(map(self.doc.vocab.strings.add, self.text), dtype=np.uint64, count=len(self))
        return columns

    @property
    def is_unrestricted(self) -> bool:
        return False

    def units(self) -> Units:
        return self.to_characters(TokenView(self.doc).units())

    @property
    def word_continuations(self) -> BoolArray | None:
        """True for each letter of a Latin word but its first one. *Shape:* (units,)"""
        return word_continuations(self._codes)

    def to_characters(self, tokens: Units) -> Units:
        """Convert attributes of the Doc's tokens to attributes of its characters."""
        position = np.arange(len(self))
        token = np.searchsorted(self._starts, position, side="right") - 1
        first = np.zeros(len(self), dtype=bool)
        first[self._starts] = True
        gap = position >= self._ends[token]
        label = tokens.label[token]
        # A token's first character has its tag; the others are inside its entity. A blocked token (B without a type)
        # blocks all its characters.
        iob = np.where(~first & (label != 0), INSIDE, tokens.iob[token])
        # The space after a token is inside an entity if the next token is. Otherwise it is outside, or missing if the
        # token's annotation is.
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
        """Return the tokens of a character span; an empty range if `alignment` finds none.

        expand: all tokens that overlap the span. contract: all tokens within the span but white space at its edges.
        strict: the tokens that align with the span exactly.
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
    """Return the units of all texts, joined; None if each of them `is_unrestricted`."""
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
    """Return the letters of the same Latin word beside each unit of texts, joined: 1 for one before it, 2 for one
    behind it, 3 for both. None without such letters.

    *Shape:* (units,)
    """
    # Narrower than the rule of lists (`find_listed`): a model may learn that a name ends before a digit.
    parts = [view.word_continuations for view in views]
    if all(part is None for part in parts):
        return None
    continues = np.concatenate(
        [np.zeros(len(view), dtype=bool) if part is None else part for view, part in zip(views, parts, strict=True)]
    )
    neighbours = continues.astype(np.int64)
    neighbours[:-1] += 2 * continues[1:]
    return neighbours if continues.any() else None


def view_of(doc: Doc, view: View) -> DocView:
    """Return the view of a Doc: a `TokenView` for characters, too, if each token is one character."""
    if view == "tokens" or len(doc) == 0:
        return TokenView(doc)
    last = doc[-1]
    if last.idx + len(last.text_with_ws) == len(doc):
        return TokenView(doc)
    return CharacterView(doc)
