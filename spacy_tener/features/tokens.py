"""The tokens of a batch of texts as arrays, which this package's embedders take as input instead of Docs."""

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
from .keys import Keys, Normaliser, texts_of

TokenColumns = NDArray[np.uint64]
"""The hash of each token's string (spaCy's `ORTH`), and 1 if a space follows the token, otherwise 0.
*Shape:* (tokens, 2)"""


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """The tokens of a batch of texts, concatenated. A text is a Doc, or a window of a Doc.

    All embedders of a model get the same batch, so that what several of them need is computed once. A window has the
    same features as a Doc of its tokens alone would have: a word of a lexicon that crosses its boundary is not found.

    columns (TokenColumns): Strings and spaces of the tokens. *Shape:* (tokens, 2)
    lengths (IntArray): Number of tokens of each text. *Shape:* (texts,)
    sources (Sequence[Doc]): The Doc that each text is a part of.
    make_docs (Callable[[], list[Doc]]): Makes a Doc of each text, for layers that need Docs.
    """

    columns: TokenColumns
    lengths: IntArray
    sources: Sequence[Doc]
    make_docs: Callable[[], list[Doc]]

    @classmethod
    def of(cls, docs: Sequence[Doc]) -> TokenBatch:
        """Return the tokens of whole Docs."""
        docs = list(docs)
        return cls(concatenate_columns([columns_of(doc) for doc in docs]), lengths_of(docs), docs, lambda: docs)

    def __len__(self) -> int:
        """Return the number of texts."""
        return self.lengths.size

    @cached_property
    def docs(self) -> list[Doc]:
        """A Doc of each text. The Doc itself where a text is a whole Doc; otherwise a copy of a part, which is slow."""
        return self.make_docs()

    @cached_property
    def _distinct(self) -> tuple[Keys, IntArray]:
        return np.unique(self.columns[:, 0], return_inverse=True)

    @property
    def orths(self) -> Keys:
        """The hashes of the distinct strings in the batch, in ascending order. *Shape:* (strings,)"""
        return self._distinct[0]

    @property
    def indices(self) -> IntArray:
        """The index in `orths` of each token's string. *Shape:* (tokens,)"""
        return self._distinct[1]

    @cached_property
    def stores(self) -> list[StringStore]:
        """The string stores of the Docs, usually one."""
        return list({id(doc.vocab): doc.vocab.strings for doc in self.sources}.values())

    @cached_property
    def joined(self) -> JoinedText:
        """The characters of the texts. No Python code runs for each token, only for each distinct string."""
        texts = texts_of(self.orths.tolist(), self.stores)
        # Each distinct string, with a space after it.
        codes, sizes = code_points(" ".join([*texts, ""])), lengths_of(texts)
        begins = starts(sizes + 1)[self.indices]
        # For each token: its number of characters, the same with a following space, and the number of separators
        # before it.
        sizes = sizes[self.indices]
        widths = sizes + self.columns[:, 1].astype(np.int64)
        n_texts = len(self)
        separators = np.repeat(np.arange(n_texts), self.lengths)
        first_characters = starts(widths)
        positions = np.arange(int(widths.sum()))
        joined: CodePoints = np.zeros(positions.size + n_texts, dtype=CODE_POINT)
        joined[positions + np.repeat(separators, widths)] = codes[
            positions + np.repeat(begins - first_characters, widths)
        ]
        first_characters += separators
        text_widths = np.bincount(separators, weights=widths, minlength=n_texts).astype(np.int64)
        stops = np.cumsum(text_widths) + np.arange(n_texts)
        return JoinedText(joined, first_characters, first_characters + sizes - 1, self.lengths, stops)

    def select(self, texts: IntArray) -> TokenBatch:
        """Return the batch of some of the texts.

        texts (IntArray): Their indices. *Shape:* (selected texts,)
        """
        lengths = self.lengths[texts]
        columns = self.columns[ranges(starts(self.lengths)[texts], lengths)]
        chosen = texts.tolist()
        sources = [self.sources[text] for text in chosen]
        return TokenBatch(columns, lengths, sources, lambda: [self.docs[text] for text in chosen])


def columns_of(doc: Doc) -> TokenColumns:
    """Return the strings and spaces of a Doc's tokens. *Shape:* (tokens, 2)"""
    columns: Any = doc.to_array([ORTH, SPACY])
    token_columns: TokenColumns = columns.reshape(-1, 2)
    return token_columns


def concatenate_columns(parts: Sequence[TokenColumns]) -> TokenColumns:
    """Return the tokens of several texts as one array. *Shape:* (tokens, 2)"""
    if not parts:
        return np.zeros((0, 2), dtype=np.uint64)
    return np.concatenate(parts)


def join_texts(docs: Sequence[Doc]) -> JoinedText:
    """Return the characters of Docs."""
    return TokenBatch.of(docs).joined


def spell(tokens: TokenBatch, normaliser: Normaliser) -> Spellings:
    """Return the characters of each distinct string of a batch.

    normaliser (Normaliser): One that keeps the lengths of strings: it does not convert to lower case.
    """
    spellings = [truncate_middle(text) for text in texts_of(tokens.orths.tolist(), tokens.stores)]
    codes = code_points(normaliser("".join(spellings)))
    return Spellings(codes.astype(np.uint64), lengths_of(spellings), tokens.indices)
