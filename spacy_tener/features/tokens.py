"""Batches of tokenized texts, stored as NumPy arrays. All embedding layers take a `TokenBatch` as input.

Long documents are split into windows, and each window is a slice of these arrays. Slicing is much faster than creating
a spaCy Doc for each window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH, SPACY
from spacy.strings import StringStore
from spacy.tokens import Doc

from ..processes import cached_property
from ..sequences import ranges, starts
from ..types import IntArray
from .characters import CODE_POINT, CodePoints, JoinedText, Spellings, code_points, lengths_of, truncate_middle
from .keys import Keys, Normalizer, texts_of

# Two values for each token: the hash of the token's string (`ORTH` in spaCy), and 1 if a space follows the token,
# otherwise 0. *Shape:* (tokens, 2)
TokenColumns = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """A batch of tokenized texts, stored as concatenated arrays. Each text is a Doc or a window of a long Doc.

    All embedding layers in a model share the same batch object, which caches values such as the distinct strings. A
    window's features never depend on tokens outside the window.

    columns (TokenColumns): The hash of each token's string, and whether a space follows the token. *Shape:* (tokens, 2)
    lengths (IntArray): Text lengths in tokens. *Shape:* (texts,)
    sources (Sequence[Doc]): The original Doc of each text. For a window, this is the complete Doc.
    make_docs (Callable[[], list[Doc]]): Function that creates a Doc for each text, for layers that require Docs as
        input.
    """

    columns: TokenColumns
    lengths: IntArray
    sources: Sequence[Doc]
    make_docs: Callable[[], list[Doc]]

    @classmethod
    def of(cls, docs: Sequence[Doc]) -> TokenBatch:
        """Create a batch from complete Docs."""
        docs = list(docs)
        return cls(concatenate_columns([columns_of(doc) for doc in docs]), lengths_of(docs), docs, lambda: docs)

    def __len__(self) -> int:
        """Return the number of texts."""
        return self.lengths.size

    @cached_property
    def docs(self) -> list[Doc]:
        """A Doc for each text. If a text is a window, its tokens are copied to a new Doc, which is slow."""
        return self.make_docs()

    @cached_property
    def _distinct(self) -> tuple[Keys, IntArray]:
        return np.unique(self.columns[:, 0], return_inverse=True)

    @property
    def orths(self) -> Keys:
        """The sorted hashes of the distinct token strings. *Shape:* (strings,)"""
        return self._distinct[0]

    @property
    def indices(self) -> IntArray:
        """The index of each token's hash in `orths`. *Shape:* (tokens,)"""
        return self._distinct[1]

    @cached_property
    def stores(self) -> list[StringStore]:
        """The Docs' string stores, without duplicates. Docs from the same pipeline share a string store."""
        return list({id(doc.vocab): doc.vocab.strings for doc in self.sources}.values())

    @cached_property
    def joined(self) -> JoinedText:
        """The concatenated characters of all texts, with the character offsets of each token."""
        # Calling `doc.text` would be slow, since it loops over all tokens in Python. Here, the Python code loops over
        # distinct strings only, and NumPy copies each token's characters.
        texts = texts_of(self.orths.tolist(), self.stores)
        # Add a space after each distinct string, so that a token and the space that follows it are copied together.
        codes, sizes = code_points(" ".join([*texts, ""])), lengths_of(texts)
        begins = starts(sizes + 1)[self.indices]
        # For each token: `sizes` is the number of characters, `widths` adds 1 if a space follows, and `separators` is
        # the number of texts before the token, since a separator is inserted after each text.
        sizes = sizes[self.indices]
        widths = sizes + self.columns[:, 1].astype(np.int64)
        n_texts = len(self)
        separators = np.repeat(np.arange(n_texts), self.lengths)
        first_characters = starts(widths)
        positions = np.arange(int(widths.sum()))
        joined: CodePoints = np.zeros(positions.size + n_texts, dtype=CODE_POINT)
        # Copy all tokens with one gather and one scatter. `begins - first_characters` is the distance from a token's
        # position in `joined` to its string in `codes`.
        joined[positions + np.repeat(separators, widths)] = codes[
            positions + np.repeat(begins - first_characters, widths)
        ]
        first_characters += separators
        text_widths = np.bincount(separators, weights=widths, minlength=n_texts).astype(np.int64)
        stops = np.cumsum(text_widths) + np.arange(n_texts)
        return JoinedText(joined, first_characters, first_characters + sizes - 1, self.lengths, stops)

    def select(self, texts: IntArray) -> TokenBatch:
        """Return a batch that contains only the selected texts.

        texts (IntArray): Indices of the texts. *Shape:* (selected texts,)
        """
        lengths = self.lengths[texts]
        columns = self.columns[ranges(starts(self.lengths)[texts], lengths)]
        chosen = texts.tolist()
        sources = [self.sources[text] for text in chosen]
        return TokenBatch(columns, lengths, sources, lambda: [self.docs[text] for text in chosen])


def columns_of(doc: Doc) -> TokenColumns:
    """Return the hash of each token's string, and whether a space follows the token. *Shape:* (tokens, 2)"""
    columns: Any = doc.to_array([ORTH, SPACY])
    token_columns: TokenColumns = columns.reshape(-1, 2)
    return token_columns


def concatenate_columns(parts: Sequence[TokenColumns]) -> TokenColumns:
    """Concatenate the arrays that `columns_of` returned for several texts. *Shape:* (tokens, 2)"""
    if not parts:
        return np.zeros((0, 2), dtype=np.uint64)
    return np.concatenate(parts)


def join_texts(docs: Sequence[Doc]) -> JoinedText:
    """Return the concatenated characters of several Docs, with the character offsets of each token."""
    return TokenBatch.of(docs).joined


def spell(tokens: TokenBatch, normalizer: Normalizer) -> Spellings:
    """Return the normalized characters of each distinct token in a batch, for character-level features.

    tokens (TokenBatch): The tokens.
    normalizer (Normalizer): Function that normalizes a string without changing its length. Lowercasing is not
        supported, since it can change the length.
    """
    spellings = [truncate_middle(text) for text in texts_of(tokens.orths.tolist(), tokens.stores)]
    codes = code_points(normalizer("".join(spellings)))
    return Spellings(codes.astype(np.uint64), lengths_of(spellings), tokens.indices)
