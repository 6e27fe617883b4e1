"""The tokens of a batch of texts as arrays. A `TokenBatch` is the input of the embedders in this package.

Windows of long documents are slices of these arrays, which is much faster than creating a Doc for each window.
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
from .keys import Keys, Normaliser, texts_of

# The hash of each token's string (spaCy's `ORTH`), and 1 or 0 for tokens with or without a following space.
# *Shape:* (tokens, 2)
TokenColumns = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """The concatenated tokens of a batch of texts. A text is a Doc or a window over a Doc.

    All embedders of a model get the same object, so that properties which several embedders use are computed once. The
    features of a window are the same as the features of a separate Doc with its tokens. For example, a lexicon word
    that crosses the boundary of a window is not found.

    columns (TokenColumns): Hashes and following spaces of the tokens. *Shape:* (tokens, 2)
    lengths (IntArray): Number of tokens in each text. *Shape:* (texts,)
    sources (Sequence[Doc]): The Doc that contains each text.
    make_docs (Callable[[], list[Doc]]): Function that creates a Doc for each text, for layers that take Docs as input.
    """

    columns: TokenColumns
    lengths: IntArray
    sources: Sequence[Doc]
    make_docs: Callable[[], list[Doc]]

    @classmethod
    def of(cls, docs: Sequence[Doc]) -> TokenBatch:
        """Create a batch of complete Docs."""
        docs = list(docs)
        return cls(concatenate_columns([columns_of(doc) for doc in docs]), lengths_of(docs), docs, lambda: docs)

    def __len__(self) -> int:
        """Return the number of texts."""
        return self.lengths.size

    @cached_property
    def docs(self) -> list[Doc]:
        """A Doc for each text: the original Doc for a complete Doc, and a copy for a window, which is slow."""
        return self.make_docs()

    @cached_property
    def _distinct(self) -> tuple[Keys, IntArray]:
        return np.unique(self.columns[:, 0], return_inverse=True)

    @property
    def orths(self) -> Keys:
        """The sorted hashes of the distinct strings in the batch. *Shape:* (strings,)"""
        return self._distinct[0]

    @property
    def indices(self) -> IntArray:
        """The index of each token's string in `orths`. *Shape:* (tokens,)"""
        return self._distinct[1]

    @cached_property
    def stores(self) -> list[StringStore]:
        """The distinct string stores of the Docs, which usually share one."""
        return list({id(doc.vocab): doc.vocab.strings for doc in self.sources}.values())

    @cached_property
    def joined(self) -> JoinedText:
        """The characters of the texts, concatenated."""
        # Python code runs for each distinct string only, and NumPy copies the code points of the tokens. Calling
        # `doc.text` would run spaCy's code for each token.
        texts = texts_of(self.orths.tolist(), self.stores)
        # The distinct strings, with a space after each. A token with a following space is copied with this space.
        codes, sizes = code_points(" ".join([*texts, ""])), lengths_of(texts)
        begins = starts(sizes + 1)[self.indices]
        # For each token, `sizes` is the number of its characters, `widths` includes the following space, and
        # `separators` is the number of separators before the token.
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
        """Return a batch of selected texts.

        texts (IntArray): Indices of the texts. *Shape:* (selected texts,)
        """
        lengths = self.lengths[texts]
        columns = self.columns[ranges(starts(self.lengths)[texts], lengths)]
        chosen = texts.tolist()
        sources = [self.sources[text] for text in chosen]
        return TokenBatch(columns, lengths, sources, lambda: [self.docs[text] for text in chosen])


def columns_of(doc: Doc) -> TokenColumns:
    """Return the hashes and following spaces of a Doc's tokens. *Shape:* (tokens, 2)"""
    columns: Any = doc.to_array([ORTH, SPACY])
    token_columns: TokenColumns = columns.reshape(-1, 2)
    return token_columns


def concatenate_columns(parts: Sequence[TokenColumns]) -> TokenColumns:
    """Concatenate the columns of several texts. *Shape:* (tokens, 2)"""
    if not parts:
        return np.zeros((0, 2), dtype=np.uint64)
    return np.concatenate(parts)


def join_texts(docs: Sequence[Doc]) -> JoinedText:
    """Return the concatenated characters of Docs."""
    return TokenBatch.of(docs).joined


def spell(tokens: TokenBatch, normaliser: Normaliser) -> Spellings:
    """Return the normalized characters of the distinct tokens in a batch.

    tokens (TokenBatch): The tokens.
    normaliser (Normaliser): A normalizer that does not change the lengths of strings, thus without `lower`.
    """
    spellings = [truncate_middle(text) for text in texts_of(tokens.orths.tolist(), tokens.stores)]
    codes = code_points(normaliser("".join(spellings)))
    return Spellings(codes.astype(np.uint64), lengths_of(spellings), tokens.indices)
