"""Alignment of tokens with a transformer's subword tokens, in windows that it can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

from ..errors import RemedyError, check_package
from ..processes import cached_property
from ..sequences import starts as begins_of
from ..types import IntArray
from .characters import lengths_of

_MASK_TOKENS = "[MASK]", "<mask>"


@dataclass(frozen=True)
class SubwordBatch:
    """The subword tokens of a batch in windows, with special subwords around each window, and pairs of tokens and subwords.

    ids (IntArray): SubwordBatch of all windows, joined. *Shape:* (subwords,)
    lengths (IntArray): Lengths of the windows, with special subwords. *Shape:* (windows,)
    sizes (IntArray): Number of subwords in the windows of each text. *Shape:* (texts,)
    indices (IntArray): Index in `ids` of the subword, for each pair of a token and a subword that overlap. *Shape:* (pairs,)
    tokens (IntArray): The token of each pair, in ascending order. *Shape:* (pairs,)
    n_tokens (int): Number of tokens in the batch; some may have no subword.
    """

    ids: IntArray
    lengths: IntArray
    sizes: IntArray
    indices: IntArray
    tokens: IntArray
    n_tokens: int

    def first_subwords(self) -> SubwordBatch:
        """Return a copy with only the first subword of each token."""
        pairs = np.flatnonzero(np.diff(self.tokens, prepend=-1))
        return replace(self, indices=self.indices[pairs], tokens=self.tokens[pairs])


SubwordsOfTexts = tuple[Sequence[IntArray], Sequence[IntArray]]
"""For each text, its subwords, *Shape:* (subwords,), and the begin and end of each in the text, *Shape:* (subwords, 2)."""


@dataclass(frozen=True)
class SubwordTokenizer:
    """Reader of the subword tokens of Docs.

    The text is tokenized independently of the Doc's tokens: `2023` is split into the subwords that the transformer was
    trained with, and if its four characters are tokens, each has the subwords that overlap it.

    encode (Callable[[list[str]], SubwordsOfTexts]): Splits texts into subwords.
    before, after (IntArray): Special subwords around a text.
    size (int): Maximum length of a window, without special subwords.
    overlap (int): SubwordBatch of context on each side of a window's core.
    mask_token (str | None): The string that the tokenizer reads as a masked subword; None if it has none.
    """

    encode: Callable[[list[str]], SubwordsOfTexts]
    before: IntArray
    after: IntArray
    size: int
    overlap: int
    mask_token: str | None = None

    def __call__(self, docs: Sequence[Doc]) -> SubwordBatch:
        texts = [doc.text for doc in docs]
        return self.tokenize(texts, *_token_spans(docs, begins_of(lengths_of(texts) + 1)))

    def tokenize(self, texts: list[str], starts: IntArray, ends: IntArray) -> SubwordBatch:
        """Return the subwords of texts and of their tokens.

        starts, ends (IntArray): Of all tokens, in the texts joined with one character after each. *Shape:* (tokens,)
            each
        """
        encoded, spans = self.encode(texts)
        begins = begins_of(lengths_of(texts) + 1)
        subwords, tokens = align(_joined(spans, begins), starts, ends)
        windows, indices = zip(*map(self._windows, encoded), strict=True)
        sizes = np.array([window.size for window in windows])
        return SubwordBatch(
            ids=np.concatenate([window.ravel() for window in windows]),
            lengths=np.concatenate([np.full(*window.shape) for window in windows]),
            sizes=sizes,
            indices=_joined(indices, begins_of(sizes))[subwords],
            tokens=tokens,
            n_tokens=len(starts),
        )

    def _windows(self, ids: IntArray) -> tuple[IntArray, IntArray]:
        """Return the windows of one text, and the index of each subword of the text in the joined windows.

        *Shape:* (windows, size) and (subwords,)
        """
        starts, window_indices = overlapping_windows(len(ids), size=self.size, overlap=self.overlap)
        text = ids[starts[:, None] + np.arange(min(len(ids), self.size))]
        before, after = (np.tile(special, (len(starts), 1)) for special in (self.before, self.after))
        windows = np.hstack([before, text, after])
        return windows, window_indices * windows.shape[1] + len(self.before) + np.arange(len(ids)) - starts[
            window_indices
        ]


@dataclass(frozen=True)
class TokenizerJson:
    """The tokenizer of a `tokenizer.json`.

    json (bytes): The file.
    """

    json: bytes

    @cached_property
    def _tokenizer(self) -> Any:
        return self._load()

    def _load(self) -> Any:
        check_package("tokenizers", "This encoder's texts are split by", "Install it by `pip install tokenizers`.")
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer(self.json)
        except Exception as error:  # The library has no class of errors.
            raise RemedyError(
                f"The tokenizer's file cannot be read: {error}", "Name the tokenizer.json of the encoder."
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self._tokenizer.get_vocab().values(), default=0) + 1

    def encode(self, texts: list[str]) -> SubwordsOfTexts:
        """Return the ids of each text's subwords, and their offsets."""
        try:
            # Not as a batch, which takes threads of its own and warns in each process that is forked afterwards.
            encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        except Exception as error:  # as above
            raise RemedyError(
                f"The tokenizer cannot split a text: {error}", "Repair its tokenizer.json, or name another encoder."
            ) from error
        ids = [np.asarray(text.ids, np.int64) for text in encoded]
        return ids, [np.asarray(text.offsets, np.int64).reshape(-1, 2) for text in encoded]

    def subword_tokenizer(self, window: int, overlap: int) -> SubwordTokenizer:
        """Make a reader with windows of at most `window` subwords, special ones included."""
        before, after = self._special_tokens()
        mask_token = next((token for token in _MASK_TOKENS if self._tokenizer.token_to_id(token) is not None), None)
        return SubwordTokenizer(self.encode, before, after, window - len(before) - len(after), overlap, mask_token)

    def _special_tokens(self) -> tuple[IntArray, IntArray]:
        """Return the special subwords before and after a text. *Shape:* (subwords,) each"""
        tokenizer = self._tokenizer
        if tokenizer.token_to_id("a") is None:
            tokenizer = self._load()  # another one, as this one stays as it is
            tokenizer.add_tokens(["a"])
        sample = tokenizer.encode("a")
        ids, text = np.asarray(sample.ids, np.int64), np.flatnonzero(np.asarray(sample.special_tokens_mask) == 0)
        return ids[: text[0]], ids[text[-1] + 1 :]


def overlapping_windows(n_subwords: int, *, size: int, overlap: int) -> tuple[IntArray, IntArray]:
    """Return the starts of windows of `size` subwords, and the window whose features each subword gets.

    In that window it has `overlap` subwords on both sides, or as many as the text has. A shorter text is one window.

    *Shape:* (windows,) and (subwords,)
    """
    step = size - 2 * overlap
    count = -(-(n_subwords - 2 * overlap) // step) if n_subwords > size else min(n_subwords, 1)
    starts = np.minimum(np.arange(count) * step, max(n_subwords - size, 0))
    return starts, np.searchsorted(starts[:-1] + size - overlap, np.arange(n_subwords), side="right")


def align(spans: IntArray, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    """Return all pairs of a subword and a token that overlap, sorted by token: the subwords, and the tokens.

    A subword may overlap several tokens or none, and a token several subwords or none.

    spans (IntArray): Of subwords. *Shape:* (subwords, 2)
    starts, ends (IntArray): Of tokens, both ascending. *Shape:* (tokens,) each
    RETURNS (tuple[IntArray, IntArray]): *Shape:* (pairs,) each
    """
    first = np.searchsorted(ends, spans[:, 0], side="right")
    behind = np.searchsorted(starts, spans[:, 1], side="left")
    covered = np.where(spans[:, 1] > spans[:, 0], np.maximum(behind - first, 0), 0)
    subwords = np.repeat(np.arange(len(spans)), covered)
    tokens = np.arange(len(subwords)) + np.repeat(first - begins_of(covered), covered)
    order = np.argsort(tokens, kind="stable")
    return subwords[order], tokens[order]


def _joined(parts: Sequence[IntArray], begins: IntArray) -> IntArray:
    """Convert indices in each part to indices in the joined parts."""
    joined: IntArray = np.concatenate([part + begin for part, begin in zip(parts, begins.tolist(), strict=True)])
    return joined


def _token_spans(docs: Sequence[Doc], begins: IntArray) -> tuple[IntArray, IntArray]:
    """Return the starts and ends of all tokens in the joined texts. *Shape:* (tokens,) each"""
    spans = [doc.to_array([IDX, LENGTH]).astype(np.int64).reshape(-1, 2) for doc in docs]
    starts, lengths = np.concatenate(spans).T
    starts = starts + np.repeat(begins, [len(doc) for doc in docs])
    return starts, starts + lengths
