"""Subword tokenization for transformers: split texts into windows of subword tokens, and align these with spaCy tokens.

`OnnxEmbed` and `TransformerEmbed` use `SubwordTokenizer`. `TokenizerJson` loads a transformer's tokenizer. Encoders
whose input is characters use `Characters` in `onnx/encoder.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

from ..errors import UserError, check_package
from ..processes import cached_property
from ..sequences import starts as begins_of
from ..types import IntArray
from .characters import lengths_of

_MASK_TOKENS = "[MASK]", "<mask>"


@dataclass(frozen=True)
class SubwordBatch:
    """The subword tokens of a batch of texts, split into windows and aligned with spaCy tokens.

    The alignment contains all pairs of a token and a subword token that overlap. For the tokens `Leeds` and `U` and the
    subword tokens `[CLS] Lee ##ds U [SEP]`, the pairs are (0, 1), (0, 2) and (1, 3). If a subword token is in several
    windows, the window with the most context is used.

    ids (IntArray): Ids of the subword tokens in all windows, including special tokens. *Shape:* (subwords,)
    lengths (IntArray): Window lengths in subword tokens. *Shape:* (windows,)
    sizes (IntArray): Number of subword tokens in all windows of each text. *Shape:* (texts,)
    indices (IntArray): Index in `ids` of the subword token in each pair. *Shape:* (pairs,)
    tokens (IntArray): Index of the token in each pair, in ascending order. *Shape:* (pairs,)
    n_tokens (int): Number of tokens in the batch. Some tokens, such as white space, are not in any pair.
    """

    ids: IntArray
    lengths: IntArray
    sizes: IntArray
    indices: IntArray
    tokens: IntArray
    n_tokens: int

    def first_subwords(self) -> SubwordBatch:
        """Return a batch in which each token is aligned with its first subword token only."""
        pairs = np.flatnonzero(np.diff(self.tokens, prepend=-1))
        return replace(self, indices=self.indices[pairs], tokens=self.tokens[pairs])


# Ids and character offsets of the subword tokens in each text. *Shape:* (subwords,) and (subwords, 2)
SubwordsOfTexts = tuple[Sequence[IntArray], Sequence[IntArray]]


@dataclass(frozen=True)
class SubwordTokenizer:
    """A tokenizer that splits Docs into windows of subword tokens, and aligns the subword tokens with spaCy tokens.

    The tokenization does not depend on the Doc's tokens. For example, the subword token `2023` is aligned with four
    tokens if each character in the Doc is a token.

    encode (Callable[[list[str]], SubwordsOfTexts]): Function that splits texts into subword tokens.
    before, after (IntArray): Ids of the special tokens at the start and end of a window. *Shape:* (special tokens,)
    size (int): Maximum number of subword tokens in a window, without special tokens.
    overlap (int): Number of subword tokens on each side of a window that only serve as context.
    mask_token (str | None): The mask token, such as `[MASK]`, or None if the tokenizer has no mask token.
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
        """Split texts into windows of subword tokens, and align the subword tokens with tokens.

        texts (list[str]): The texts.
        starts, ends (IntArray): Character offsets of the tokens in the concatenated texts, which are separated by one
            character. *Shape:* (tokens,) each
        RETURNS (SubwordBatch): The windows and the alignment.
        """
        # The character between two texts ensures that tokens from different texts never touch.
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
        """Split a text's subword tokens into windows, and add special tokens.

        RETURNS (tuple[IntArray, IntArray]): The ids in each window, and the index of each subword token in the
            flattened windows. *Shape:* (windows, size) and (subwords,)
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
    """A tokenizer from the library `tokenizers`, which is loaded when it is first used.

    json (bytes): The file `tokenizer.json`.
    """

    json: bytes

    @cached_property
    def _tokenizer(self) -> Any:
        return self._load()

    def _load(self) -> Any:
        check_package(
            "tokenizers", "The tokenizer of this encoder requires", "Install it with `pip install tokenizers`."
        )
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer(self.json)
        except Exception as error:  # the library has no exception class
            raise UserError(
                f"The tokenizer's file cannot be read: {error}", "Use the tokenizer.json of the encoder."
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @property
    def size(self) -> int:
        """The vocabulary size, including added tokens. It is one more than the largest id."""
        return max(self._tokenizer.get_vocab().values(), default=0) + 1

    def encode(self, texts: list[str]) -> SubwordsOfTexts:
        """Split texts into subword tokens, without special tokens. Return their ids and character offsets."""
        try:
            # `encode_batch` starts threads. The library then prints a warning when the process is forked.
            encoded = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        except Exception as error:  # the library has no exception class
            raise UserError(
                f"The encoder's tokenizer cannot tokenize a text: {error}",
                "Repair the encoder's tokenizer.json, or use another encoder.",
            ) from error
        ids = [np.asarray(text.ids, np.int64) for text in encoded]
        return ids, [np.asarray(text.offsets, np.int64).reshape(-1, 2) for text in encoded]

    def subword_tokenizer(self, window: int, overlap: int) -> SubwordTokenizer:
        """Create a tokenizer for Docs.

        window (int): Maximum number of subword tokens in a window, including special tokens.
        overlap (int): Number of subword tokens on each side of a window that only serve as context.
        """
        before, after = self._special_tokens()
        mask_token = next((token for token in _MASK_TOKENS if self._tokenizer.token_to_id(token) is not None), None)
        return SubwordTokenizer(self.encode, before, after, window - len(before) - len(after), overlap, mask_token)

    def _special_tokens(self) -> tuple[IntArray, IntArray]:
        """Return the ids of the special tokens before and after a text. *Shape:* (special tokens,) each"""
        # The tokenizer has no attribute for special tokens, so they are found by encoding the word "a".
        tokenizer = self._tokenizer
        if tokenizer.token_to_id("a") is None:
            tokenizer = self._load()  # load it again, since `add_tokens` modifies it
            tokenizer.add_tokens(["a"])
        sample = tokenizer.encode("a")
        ids, text = np.asarray(sample.ids, np.int64), np.flatnonzero(np.asarray(sample.special_tokens_mask) == 0)
        return ids[: text[0]], ids[text[-1] + 1 :]


def overlapping_windows(n_subwords: int, *, size: int, overlap: int) -> tuple[IntArray, IntArray]:
    """Split a sequence of subword tokens into overlapping windows, and choose a window for each subword token.

    In the chosen window, a subword token has at least `overlap` subword tokens of context on both sides, except near
    the start and end of the sequence. For example, 14 subword tokens are split as follows with size 10 and overlap 3:

        0 1 2 3 4 5 6 7 8 9              window 0 for the positions 0 to 6
                4 5 6 7 8 9 10 11 12 13  window 1 for the positions 7 to 13

    n_subwords (int): Sequence length.
    size (int): Window length. A shorter sequence is a single window.
    overlap (int): Number of subword tokens on each side of a window that only serve as context.
    RETURNS (tuple[IntArray, IntArray]): The start of each window, and the index of the chosen window for each subword
        token. *Shape:* (windows,) and (subwords,)
    """
    step = size - 2 * overlap
    count = -(-(n_subwords - 2 * overlap) // step) if n_subwords > size else min(n_subwords, 1)
    starts = np.minimum(np.arange(count) * step, max(n_subwords - size, 0))
    return starts, np.searchsorted(starts[:-1] + size - overlap, np.arange(n_subwords), side="right")


def align(spans: IntArray, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    """Return all pairs of a subword token and a token that overlap, sorted by token.

    spans (IntArray): Subword token starts and ends. *Shape:* (subwords, 2)
    starts, ends (IntArray): Token starts and token ends, both in ascending order. *Shape:* (tokens,) each
    RETURNS (tuple[IntArray, IntArray]): Index of the subword token and of the token in each pair.
        *Shape:* (pairs,) each
    """
    # Tokens are sorted, so the tokens that overlap a subword token are consecutive. The first one is the first token
    # that ends after the subword token's start. The last one is before the first token that starts at or after the
    # subword token's end.
    first = np.searchsorted(ends, spans[:, 0], side="right")
    behind = np.searchsorted(starts, spans[:, 1], side="left")
    covered = np.where(spans[:, 1] > spans[:, 0], np.maximum(behind - first, 0), 0)
    subwords = np.repeat(np.arange(len(spans)), covered)
    tokens = np.arange(len(subwords)) + np.repeat(first - begins_of(covered), covered)
    order = np.argsort(tokens, kind="stable")
    return subwords[order], tokens[order]


def _joined(parts: Sequence[IntArray], begins: IntArray) -> IntArray:
    """Convert indices within each text to indices in the concatenated texts.

    parts (Sequence[IntArray]): Indices or character offsets within each text.
    begins (IntArray): Text starts in the concatenated texts. *Shape:* (texts,)
    """
    joined: IntArray = np.concatenate([part + begin for part, begin in zip(parts, begins.tolist(), strict=True)])
    return joined


def _token_spans(docs: Sequence[Doc], begins: IntArray) -> tuple[IntArray, IntArray]:
    """Return the character offsets of each token in the concatenated texts. *Shape:* (tokens,) each

    begins (IntArray): Text starts in the concatenated texts. *Shape:* (texts,)
    """
    spans = [doc.to_array([IDX, LENGTH]).astype(np.int64).reshape(-1, 2) for doc in docs]
    starts, lengths = np.concatenate(spans).T
    starts = starts + np.repeat(begins, [len(doc) for doc in docs])
    return starts, starts + lengths
