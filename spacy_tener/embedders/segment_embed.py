"""The embedder `spacy_tener.SegmentEmbed.v1`: the position of a token in the word that a segmenter puts it in.

`spacy_tener.JoinEmbed.v1` concatenates it with `spacy_tener.CharEmbed.v1`, for any architecture for Chinese.
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
# The parts of speech in jieba's dictionary. The tags of names come first.
_PARTS_OF_SPEECH = (
    "nr nrt nrfg ns nt nz n vn v a d m q r t eng x ad ag an b c dg df e f g h i j k l mg mq ng o p rg "
    "rr rz s tg u ud ug uj ul uv uz vd vg vi vq w y z zg"
)


@validated("spacy_tener.SegmentEmbed.v1")
def build_segment_embed(
    width: PositiveInt = 32, dropout: Probability = 0.3, word_dropout: Probability = 0.01
) -> EmbedModel:
    """Embed each token by its position in its word, as jieba segments the text, and by the word's part of speech.

    Registered as `spacy_tener.SegmentEmbed.v1`. There is an embedding for each combination of a character's position in
    its word (B, I, E, S) and the word's part of speech, such as `B-ns` for the first character of a place name, about
    200 in all. `spacy_tener.JoinEmbed.v1` concatenates it with `spacy_tener.CharEmbed.v1` for any architecture for
    Chinese.

    A token of several characters is B if it starts a word and does not end one, E if it ends a word and does not start
    one, S if it does both, and I otherwise. Its part of speech is that of the word in which it starts.

    The segmenter is the package rjieba of the extra `zh`. It segments about two million characters per second, and uses
    jieba's HMM for words that its dictionary lacks. A digest of its output on a sample is saved with the pipeline,
    which warns if the digest differs when it is loaded.

    width (int): Width of the embeddings.
    dropout (float): Dropout rate of the embeddings.
    word_dropout (float): Probability that a token is replaced by the unknown token in training.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    shim = table_shim({SEGMENT: width}, word_dropout={SEGMENT: word_dropout}, dropout=dropout)
    return table_embedder("segment_embed", SegmentVocabulary(), shim, width=width, init=_init)


class SegmentVocabulary(Vocabulary):
    """A vocabulary of the combinations of position and part of speech that occur in training."""

    def __init__(self) -> None:
        super().__init__((SEGMENT,))
        self.lists = WordLists()

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return the key of each token's position and part of speech. *Shape:* (tokens,)"""
        text = tokens.joined
        segmentation = segment(text)
        lists = self.lists.active(tokens.sources)
        if lists:
            tagged, untagged = (token_keys(text, words) for words in apply_word_lists(text, segmentation, lists))
            # If a tag of a list has no embedding at this position, the segmenter's tag is used.
            return EmbedInput({SEGMENT: np.where(self.tables[SEGMENT].rows(tagged), tagged, untagged)})
        return EmbedInput({SEGMENT: token_keys(text, segmentation)})

    @property
    def packages(self) -> list[str]:
        return [f"rjieba>={version('rjieba')}"]

    @property
    def tag_names(self) -> list[str]:
        """The parts of speech that occur in training, without jieba's rare ones."""
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
                f"({digest}) segments differently: expect more errors. Install {trained}, or train again.",
                stacklevel=2,
            )


def _init(embedder: TableEmbedder, X: list[Doc] | None = None, Y: Any = None) -> None:
    jieba_version()  # This raises an error if the package is missing.
    init_tables(embedder)
