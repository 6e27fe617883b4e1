"""The embedder `spacy_tener.SegmentEmbed.v1`, which embeds word boundaries and parts of speech from a word segmenter.

Use `spacy_tener.JoinEmbed.v1` to combine it with `spacy_tener.CharEmbed.v1` in a Chinese pipeline.
"""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
from pydantic import PositiveInt
from spacy.tokens import Doc

from ..features.segmenter import apply_word_lists, jieba_version, keys_of_tag, segment, token_keys
from ..features.tokens import TokenBatch
from ..features.word_lists import WordLists
from ..nn.shim import EmbedModel
from ..validation import Probability, validated
from .tables import EmbedInput, TableEmbedder, Vocabulary, init_tables, table_embedder, table_shim

SEGMENT = "segment"
# The parts of speech in jieba's dictionary, with the tags for proper names first.
_PARTS_OF_SPEECH = (
    "nr nrt nrfg ns nt nz n vn v a d m q r t eng x ad ag an b c dg df e f g h i j k l mg mq ng o p rg "
    "rr rz s tg u ud ug uj ul uv uz vd vg vi vq w y z zg"
)


@validated("spacy_tener.SegmentEmbed.v1")
def build_segment_embed(
    width: PositiveInt = 32, dropout: Probability = 0.3, word_dropout: Probability = 0.01
) -> EmbedModel:
    """Create an embedder for the word boundaries and part-of-speech tags that the segmenter jieba assigns.

    Registered as `spacy_tener.SegmentEmbed.v1`. A token's feature consists of its position in the word (B, I, E, S) and
    the word's part of speech. For example, the first character of a place name has the feature `B-ns`. There are about
    200 features, each with its own embedding. Use `spacy_tener.JoinEmbed.v1` to combine it with
    `spacy_tener.CharEmbed.v1` in a Chinese pipeline.

    If a token has several characters, its position is B if a word starts at its first character, E if a word ends at
    its last character, S if both are true, and I if neither is true. Its part of speech is that of the word at its
    first character.

    The segmenter is the package rjieba, which is included in the extra `zh`. It processes about two million characters
    per second. If the installed version of rjieba segments a sample differently than the version used in training, a
    warning is issued when the pipeline is loaded.

    width (int): Embedding width.
    dropout (float): Dropout rate for the embeddings.
    word_dropout (float): Probability that a token's feature is replaced by the unknown feature during training.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    shim = table_shim({SEGMENT: width}, word_dropout={SEGMENT: word_dropout}, dropout=dropout)
    return table_embedder("segment_embed", SegmentVocabulary(), shim, width=width, init=_init)


class SegmentVocabulary(Vocabulary):
    """Vocabulary of the segmentation features in the training data.

    A feature is a token's position in the word (B, I, E, S), combined with the word's part of speech.
    """

    def __init__(self) -> None:
        super().__init__((SEGMENT,))
        self.lists = WordLists()

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return an embedding key for each token. *Shape:* (tokens,)

        The key combines the token's position in the word and the word's part of speech.
        """
        text = tokens.joined
        segmentation = segment(text)
        lists = self.lists.active(tokens.sources)
        if lists:
            tagged, untagged = (token_keys(text, words) for words in apply_word_lists(text, segmentation, lists))
            # If a word list's tag did not occur at this position in training, use the segmenter's tag instead.
            return EmbedInput({SEGMENT: np.where(self.tables[SEGMENT].rows(tagged), tagged, untagged)})
        return EmbedInput({SEGMENT: token_keys(text, segmentation)})

    @property
    def packages(self) -> list[str]:
        return [f"rjieba>={version('rjieba')}"]

    @property
    def tag_names(self) -> list[str]:
        """The parts of speech that occur in the training data, limited to those in `_PARTS_OF_SPEECH`."""
        return [tag for tag in _PARTS_OF_SPEECH.split() if self.has_tag(tag)]

    def has_tag(self, tag: str) -> bool:
        return bool(self.tables[SEGMENT].rows(keys_of_tag(tag)).any())

    def to_parts(self) -> dict[str, Any]:
        return {**super().to_parts(), "segmenter": list(jieba_version()), "lists": self.lists.to_message()}

    def from_parts(self, parts: dict[str, Any]) -> None:
        trained_digest, trained = parts.pop("segmenter")
        digest, installed = jieba_version()
        lists = parts.pop("lists")
        super().from_parts(parts)
        self.lists.from_message(lists)
        if digest != trained_digest:
            warnings.warn(
                f"The pipeline was trained with the segmenter {trained} ({trained_digest}), but {installed} "
                f"({digest}) segments differently: expect more errors. Install {trained}, or train the pipeline again.",
                stacklevel=2,
            )


def _init(embedder: TableEmbedder, X: list[Doc] | None = None, Y: Any = None) -> None:
    jieba_version()  # raises an error if rjieba is not installed
    init_tables(embedder)
