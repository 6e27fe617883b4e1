"""The embedder of words as a segmenter sees them: from Docs to one row per token, for its place in its word."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.tokens import Doc

from ...features.characters import join_texts
from ...features.segmenter import (
    Segmenter,
    SegmenterSource,
    jieba_segmenter,
    keys_of_tag,
    token_keys,
    with_listed_words,
)
from ...features.word_lists import WordLists
from ...settings import Probability, Settings, Size
from ..bridge import EmbedModel
from ..settings import expand_config
from .tables import EmbedInput, Vocabulary, init_tables, table_embedder, table_shim

SEGMENT = "segment"
# jieba's and LTP's, names first; those of the Penn Chinese Treebank, which `zh_core_web_*` and CTB taggers give; UD's.
_TAGS = (
    "nr nrt nrfg ns nt nz n nh ni nl nd nw vn v a d m q r t eng x ad ag an b c dg df e f g h i j k l mg mq ng o p rg "
    "rr rz s tg u ud ug uj ul uv uz vd vg vi vq w wp ws y z zg "
    "NR NN NT VV VA VC VE AD AS BA CC CD CS DEC DEG DER DEV DT ETC FW IJ INF JJ LB LC M MSP OD ON P PN PU SB SP X "
    "PROPN NOUN VERB ADJ ADV NUM PRON DET ADP AUX PART CCONJ SCONJ INTJ SYM PUNCT"
)


@dataclass(frozen=True, kw_only=True)
class SegmentConfig(Settings):
    """Settings of the embedder of a segmenter's words.

    width: Width of the rows.
    dropout: Dropout on the rows.
    word_dropout: Probability that a token is read as unknown in training.
    """

    width: Size = 32
    dropout: Probability = 0.3
    word_dropout: Probability = 0.01


@expand_config()
def build_segment_embed(segmenter: SegmenterSource | None = None, *, config: SegmentConfig) -> EmbedModel:
    """Embed each token by its place in the word that a segmenter finds there, and by that word's part of speech.

    Registered as `spacy_tener.SegmentEmbed.v1`. Each character has the edge (B, I, E, S) of its word with the word's
    part of speech, `B-ns` where the name of a place begins, and a row for each of these some 200 combinations. Beside
    `spacy_tener.CharEmbed.v1` in `spacy_tener.JoinEmbed.v1` it serves every model for Chinese. A token of several
    characters is B where it begins a word and does not end one, E where it ends one only, S where it does both, as a
    token does that is a word or several, and I else; its part of speech is that of the word in which it begins.

    A pipeline is saved with how its segmenter reads, and warns when it is loaded where one reads otherwise.

    segmenter (Optional[Callable[[], Segmenter]]): Who divides the text: `spacy_tener.TokenSegmenter.v1`, or
        `spacy_tener.JiebaSegmenter.v1`, which it is if there is none.
    """
    vocabulary = SegmentVocabulary((segmenter or jieba_segmenter())())
    shim = table_shim({SEGMENT: config.width}, word_dropout={SEGMENT: config.word_dropout}, dropout=config.dropout)
    return table_embedder("segment_embed", vocabulary, shim, width=config.width, init=_init)


class SegmentVocabulary(Vocabulary):
    """The edges with parts of speech that training has shown."""

    def __init__(self, segmenter: Segmenter) -> None:
        super().__init__((SEGMENT,))
        self.segmenter = segmenter
        self.lists = WordLists()

    def read(self, docs: list[Doc]) -> EmbedInput:
        """*Shape* [N]"""
        text = join_texts(docs)
        division = self.segmenter.divide(docs, text)
        if lists := self.lists.active(docs):
            told, untold = (token_keys(text, each) for each in with_listed_words(text, division, lists))
            # A tag that training has not shown at such a place says nothing: the segmenter's stands.
            return EmbedInput({SEGMENT: np.where(self.tables[SEGMENT].rows(told), told, untold)})
        return EmbedInput({SEGMENT: token_keys(text, division)})

    @property
    def tag_names(self) -> list[str]:
        """The parts of speech that training has shown, of the usual ones."""
        return [tag for tag in _TAGS.split() if self.knows_tag(tag)]

    def knows_tag(self, tag: str) -> bool:
        return bool(self.tables[SEGMENT].rows(keys_of_tag(tag)).any())

    def to_parts(self) -> dict[str, Any]:
        own = {"segmenter": list(self.segmenter.identity), "lists": self.lists.to_message()}
        return {**super().to_parts(), **own}

    def from_parts(self, parts: dict[str, Any]) -> None:
        (taught, theirs), (reads, ours) = parts.pop("segmenter"), self.segmenter.identity
        lists = parts.pop("lists")
        super().from_parts(parts)
        self.lists.from_message(lists)
        if taught != reads:
            warnings.warn(
                f"The pipeline was trained with the words of {theirs} ({taught}), which {ours} ({reads}) reads "
                f"otherwise: expect more errors. Install {theirs}, or train again.",
                stacklevel=2,
            )


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    model.attrs["vocabulary"].segmenter.identity  # noqa: B018 - says now if a package is missing
    init_tables(model)
