"""What the recogniser reads of a Doc: its tokens, or its characters whatever the tokens are.

Both views say the same things about their units (`Units`), cut any stretch of them out as a Doc for the model, and
turn entities over units back into spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import DEP, ENT_IOB, ENT_TYPE, IDX, IS_SPACE, LEMMA, LENGTH, MORPH, NORM, ORTH, POS, SENT_START, TAG
from spacy.tokens import Doc

View = Literal["tokens", "characters"]
Alignment = Literal["expand", "contract", "strict"]

MISSING, INSIDE, OUTSIDE, BEGIN = 0, 1, 2, 3
"""The values of spaCy's `ent_iob`."""

_SENTENCE_ENDS = "。！？!?；;…\n"
_EMBEDDABLE = [NORM, LEMMA, POS, TAG, MORPH, DEP, ENT_TYPE]
"""What earlier components say about a token and a model may embed."""


@dataclass(frozen=True)
class Units:
    """What a Doc says about each unit. *Shape* of each: [n]

    space: whether it is white space.
    iob: its `ent_iob`.
    label: hash of its entity's type, 0 for none.
    sentence_start: whether a sentence is known to start with it.
    """

    space: NDArray[np.bool_]
    iob: NDArray[np.int64]
    label: NDArray[np.uint64]
    sentence_start: NDArray[np.bool_]


class DocView(Protocol):
    """A Doc as a sequence of units."""

    @property
    def doc(self) -> Doc: ...

    def __len__(self) -> int: ...

    def units(self) -> Units: ...

    def piece(self, start: int, end: int) -> Doc:
        """The units from `start` to `end` as a Doc with one token each."""

    def sentence_ends(self) -> NDArray[np.bool_]:
        """Which units look like the end of a sentence. *Shape* [n]"""

    def char_span(self, start: int, end: int) -> tuple[int, int]:
        """Character offsets of the units from `start` to `end`."""

    def token_span(self, start: int, end: int, alignment: Alignment) -> tuple[int, int]:
        """The tokens of the units from `start` to `end`; an empty range where `alignment` finds none."""


class TokenView:
    """A Doc's tokens as they are."""

    def __init__(self, doc: Doc) -> None:
        self.doc = doc

    def __len__(self) -> int:
        return len(self.doc)

    def units(self) -> Units:
        space, iob, label, sentence_start = self.doc.to_array([IS_SPACE, ENT_IOB, ENT_TYPE, SENT_START]).T
        return Units(space != 0, iob.astype(np.int64), label, sentence_start == 1)

    def piece(self, start: int, end: int) -> Doc:
        if end - start == len(self.doc):
            return self.doc
        # Not Span.as_doc(), which reads the whole Doc for every piece of it.
        span: Any = self.doc[start:end]
        spaces = [bool(token.whitespace_) for token in span]
        part = Doc(self.doc.vocab, words=[token.text for token in span], spaces=spaces)
        return part.from_array(_EMBEDDABLE, span.to_array(_EMBEDDABLE))

    def sentence_ends(self) -> NDArray[np.bool_]:
        strings = self.doc.vocab.strings
        closers = np.array([strings[mark] for mark in (*_SENTENCE_ENDS, ".")], dtype=np.uint64)
        ends: NDArray[np.bool_] = np.isin(self.doc.to_array(ORTH), closers)
        ends[:-1] |= self.doc.to_array(SENT_START)[1:] == 1
        return ends

    def char_span(self, start: int, end: int) -> tuple[int, int]:
        return self.doc[start].idx, self.doc[end - 1].idx + len(self.doc[end - 1])

    def token_span(self, start: int, end: int, alignment: Alignment) -> tuple[int, int]:
        return start, end


class CharacterView:
    """A Doc's characters, white space included, whatever its tokens are."""

    def __init__(self, doc: Doc) -> None:
        self.doc = doc
        self.text = doc.text
        self._codes = np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        self._starts, lengths, self._space = doc.to_array([IDX, LENGTH, IS_SPACE]).astype(np.int64).T
        self._ends = self._starts + lengths

    def __len__(self) -> int:
        return len(self.text)

    def units(self) -> Units:
        return self.spread(TokenView(self.doc).units())

    def spread(self, tokens: Units) -> Units:
        """What is said about the Doc's tokens, as said about their characters."""
        position = np.arange(len(self))
        owner = np.searchsorted(self._starts, position, side="right") - 1
        first = np.zeros(len(self), dtype=bool)
        first[self._starts] = True
        gap = position >= self._ends[owner]
        label = tokens.label[owner]
        # A token's first character has its tag; the others go on with its entity. A blocked token (B without a type)
        # blocks all its characters.
        iob = np.where(~first & (label != 0), INSIDE, tokens.iob[owner])
        # The space behind a token belongs to an entity if the next token goes on with it. Otherwise it is outside,
        # unless nothing is known about the token.
        goes_on = np.append(tokens.iob[1:], OUTSIDE)[owner] == INSIDE
        outside = np.where(tokens.iob[owner] == MISSING, MISSING, OUTSIDE)
        return Units(
            space=self._is_space(),
            iob=np.where(gap, np.where(goes_on, INSIDE, outside), iob),
            label=np.where(gap & ~goes_on, np.uint64(0), label),
            sentence_start=first & tokens.sentence_start[owner],
        )

    def _is_space(self) -> NDArray[np.bool_]:
        codes, places = np.unique(self._codes, return_inverse=True)
        return np.array([chr(code).isspace() for code in codes], dtype=bool)[places]

    def piece(self, start: int, end: int) -> Doc:
        characters = list(self.text[start:end])
        return Doc(self.doc.vocab, words=characters, spaces=[False] * len(characters))

    def sentence_ends(self) -> NDArray[np.bool_]:
        ends: NDArray[np.bool_] = np.isin(self._codes, [ord(mark) for mark in _SENTENCE_ENDS])
        starts = self._starts[self.doc.to_array(SENT_START) == 1]
        ends[starts[starts > 0] - 1] = True
        return ends

    def char_span(self, start: int, end: int) -> tuple[int, int]:
        return start, end

    def token_span(self, start: int, end: int, alignment: Alignment) -> tuple[int, int]:
        """The tokens of a stretch of characters; an empty range where `alignment` finds none.

        expand: every token that the stretch touches. contract: every token that lies wholly inside, but for white
        space at the edges. strict: the tokens whose edges are the stretch's own.
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


def view_of(doc: Doc, view: View) -> TokenView | CharacterView:
    """The view of a Doc. A Doc whose tokens are its characters is its own character view."""
    if view == "tokens" or len(doc) == 0 or len(doc.text) == len(doc):
        return TokenView(doc)
    return CharacterView(doc)
