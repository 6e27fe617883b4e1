"""The embedder of characters: from Docs to one row of floats per token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from spacy.tokens import Doc

from ...features.normalise import KeyCache, Normaliser, token_orths
from ...features.tables import END_MARK, bigram_key_array, pair_keys, unigram_key_array
from ...settings import Count, Probability, Settings, Size, check
from ..settings import expand_config
from ..shims.bridge import EmbedModel, token_counts
from .tables import build_tables, init_tables, load_vectors, table_embedder, table_rows
from .vocabulary import Reading, Vocabulary

UNIGRAM = "unigram"
BIGRAM = "bigram"


@dataclass(frozen=True, kw_only=True)
class CharEmbedConfig(Settings):
    """Settings of an embedder of tokens and of pairs of neighbours.

    width: Width of the tokens' rows.
    bigram_width: Width of the pairs' rows; 0 leaves pairs out.
    digits: Read every digit of a token as 0.
    lower: Read upper case as lower case.
    dropout: Dropout on the tokens' rows, joined with those of pairs.
    word_dropout: Probability that a token is read as unknown in training.
    bigram_dropout: The same for a pair.
    vectors: Pretrained rows for tokens: a word2vec or GloVe text file (plain, gz, bz2, xz) or a directory that `spacy
        init vectors` made. Read by `initialize` only, fine-tuned, saved with the model.
    bigram_vectors: The same for pairs, written as two characters.
    normalize_vectors: Scale pretrained rows to unit length, which random rows have on average.
    whiten_vectors: Before that, take off from pretrained rows what all of them have in common: their mean, and that
        they vary more in some directions than in others.
    """

    width: Size = 50
    bigram_width: Count = 50
    digits: bool = True
    lower: bool = False
    dropout: Probability = 0.3
    word_dropout: Probability = 0.01
    bigram_dropout: Probability = 0.02
    vectors: str | Path | None = None
    bigram_vectors: str | Path | None = None
    normalize_vectors: bool = True
    whiten_vectors: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.bigram_width > 0 or self.bigram_vectors is None
        check("bigram_width", self.bigram_width, fits, "above 0 where there are bigram_vectors")

    @property
    def widths(self) -> dict[str, int]:
        """The width of each table."""
        return {UNIGRAM: self.width, BIGRAM: self.bigram_width} if self.bigram_width else {UNIGRAM: self.width}


@expand_config()
def build_char_embed(*, config: CharEmbedConfig) -> EmbedModel:
    """Embed each token by its own row and the row of the pair that it makes with the next token.

    Registered as `spacy_tener.CharEmbed.v1`. Its tokens are the characters of a Chinese pipeline, or what a character
    view makes of one; any other tokens work the same way. A string gets a row of its own when it is first seen in
    training; every string that never was shares the unknown row, which word dropout trains.
    """
    return char_embed(config)


def char_embed(config: CharEmbedConfig) -> EmbedModel:
    widths, normaliser = config.widths, Normaliser(digits=config.digits, lower=config.lower)
    word_dropout = {UNIGRAM: config.word_dropout, BIGRAM: config.bigram_dropout}
    return table_embedder(
        "char_embed",
        CharVocabulary(normaliser, widths),
        partial(build_tables, widths=widths, word_dropout=word_dropout, dropout=config.dropout),
        partial(table_rows, widths),
        width=sum(widths.values()),
        init=partial(_init, config=config, normaliser=normaliser),
    )


class CharVocabulary(Vocabulary):
    """One table of keys for tokens, and one for pairs of neighbours unless pairs are not used.

    names: `unigram`, and `bigram` or not.
    """

    def __init__(self, normaliser: Normaliser, names: Iterable[str]) -> None:
        super().__init__(names)
        self._cache = KeyCache(normaliser)
        self._end_key = normaliser.key(END_MARK)

    def read(self, docs: list[Doc]) -> Reading:
        """The keys of all tokens of the docs joined, for each table. *Shape* [N]"""
        unigrams = self._cache(*token_orths(docs))
        keys = {UNIGRAM: unigrams}
        if BIGRAM in self.tables:
            keys[BIGRAM] = pair_keys(unigrams, np.asarray(token_counts(docs), dtype=np.int64), self._end_key)
        return Reading(keys)


def _init(
    model: EmbedModel, X: list[Doc] | None = None, Y: Any = None, *, config: CharEmbedConfig, normaliser: Normaliser
) -> None:
    init_tables(model)
    sources = (UNIGRAM, config.vectors, unigram_key_array), (BIGRAM, config.bigram_vectors, bigram_key_array)
    for name, path, to_keys in sources:
        load_vectors(
            model,
            name,
            path,
            to_keys=partial(to_keys, normaliser=normaliser),
            whiten=config.whiten_vectors,
            unit_length=config.normalize_vectors,
            normalise=normaliser,
        )
