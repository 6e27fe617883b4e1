"""Embedders with a row for each token, and concatenation of embedders: `CharEmbed`, `WordCharEmbed`, `JoinEmbed`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass
from spacy.tokens import Doc

from ..features.characters import lengths_of
from ..features.keys import END_MARK, KeyCache, Normaliser, bigram_key_array, pair_keys, token_orths, unigram_key_array
from ..features.pretrained_vectors import VectorsSource
from ..nn.compose import chain_layers, join_embedders, projection
from ..nn.shim import EmbedModel
from ..validation import STRICT, Probability, SettingError, configured
from .radical_embed import build_radical_embed
from .spelling import build_char_cnn
from .tables import EmbedInput, TableEmbedder, Vocabulary, init_tables, load_vectors, table_embedder, table_shim

UNIGRAM = "unigram"
BIGRAM = "bigram"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CharEmbedConfig:
    """Settings of rows for tokens, and for the pairs that they make with the next token.

    width (int): Width of the tokens' rows.
    bigram_width (int): Width of the pairs' rows; 0 leaves pairs out.
    digits (bool): Read every digit of a token as 0.
    lower (bool): Read upper case as lower case.
    dropout (float): Dropout on the joined rows of tokens and pairs.
    word_dropout (float): Probability that a token is read as unknown in training.
    bigram_dropout (float): The same for a pair.
    vectors (Optional[Union[str, Path]]): Pretrained rows for tokens: a word2vec or GloVe text file (plain, gz, bz2, xz)
        or a directory that `spacy init vectors` made. Read by `initialize` only, scaled to unit length, which random
        rows have on average, fine-tuned, saved with the model.
    bigram_vectors (Optional[Union[str, Path]]): The same for pairs, written as two characters.
    whiten_vectors (bool): Whiten pretrained rows first: subtract their mean, and scale them to equal variance in all
        directions.
    simplify (bool): Read each character in its form: the simplified one of a traditional character, and the half-width
        one of a full-width letter.
    """

    width: PositiveInt = 50
    bigram_width: NonNegativeInt = 50
    digits: bool = True
    lower: bool = False
    dropout: Probability = 0.3
    word_dropout: Probability = 0.01
    bigram_dropout: Probability = 0.02
    vectors: str | Path | None = None
    bigram_vectors: str | Path | None = None
    whiten_vectors: bool = False
    simplify: bool = False

    def __post_init__(self) -> None:
        if self.bigram_vectors and not self.bigram_width:
            raise SettingError("bigram_width must be above 0 if there are bigram_vectors; got 0")


@configured("spacy_tener.CharEmbed.v1", CharEmbedConfig)
def build_char_embed(config: CharEmbedConfig) -> EmbedModel:
    """Embed each token by its own row and the row of the pair that it makes with the next token.

    Registered as `spacy_tener.CharEmbed.v1`. Its tokens are usually characters: those of a Chinese pipeline, or of the
    view `characters`.
    """
    widths = {UNIGRAM: config.width, BIGRAM: config.bigram_width}
    return _char_embed(
        Normaliser(digits=config.digits, lower=config.lower, simplify=config.simplify),
        widths={name: width for name, width in widths.items() if width},
        dropout=config.dropout,
        word_dropout={UNIGRAM: config.word_dropout, BIGRAM: config.bigram_dropout},
        vectors={UNIGRAM: config.vectors, BIGRAM: config.bigram_vectors},
        whiten=config.whiten_vectors,
    )


def _char_embed(
    normaliser: Normaliser,
    *,
    widths: Mapping[str, int],
    dropout: float,
    word_dropout: Mapping[str, float],
    vectors: Mapping[str, str | Path | VectorsSource | None],
    whiten: bool,
    frequent: int | None = None,
    half: bool = False,
) -> EmbedModel:
    """Return an embedder of tokens, and of pairs if these have a width."""
    return table_embedder(
        "char_embed",
        CharVocabulary(normaliser, widths),
        table_shim(widths, word_dropout=word_dropout, dropout=dropout, half=half),
        width=sum(widths.values()),
        init=partial(_init, normaliser=normaliser, vectors=vectors, whiten=whiten, frequent=frequent),
    )


class CharVocabulary(Vocabulary):
    """One table of keys for tokens, and one for pairs of neighbours unless pairs are not used.

    names (Iterable[str]): `unigram`, and `bigram` or not.
    """

    def __init__(self, normaliser: Normaliser, names: Iterable[str]) -> None:
        super().__init__(names)
        self.normaliser = normaliser
        self._cache = KeyCache(normaliser)
        self._end_key = normaliser.key(END_MARK)

    def read(self, docs: list[Doc]) -> EmbedInput:
        """Return the keys of all tokens of the docs joined, for each table. *Shape:* (tokens,)"""
        unigrams = self._cache(*token_orths(docs))
        keys = {UNIGRAM: unigrams}
        if BIGRAM in self.tables:
            keys[BIGRAM] = pair_keys(unigrams, lengths_of(docs), self._end_key)
        return EmbedInput(keys)


def _init(
    embedder: TableEmbedder,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    normaliser: Normaliser,
    vectors: Mapping[str, str | Path | VectorsSource | None],
    whiten: bool,
    frequent: int | None,
) -> None:
    init_tables(embedder)
    to_keys = {UNIGRAM: unigram_key_array, BIGRAM: bigram_key_array}
    for name, source in vectors.items():
        load_vectors(
            embedder,
            name,
            source,
            to_keys=partial(to_keys[name], normaliser=normaliser),
            whiten=whiten,
            frequent=frequent,
            normalise=normaliser,
        )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WordEmbedConfig:
    """Settings of rows for words.

    width (int): Width of the tokens' rows.
    lower (bool): Read upper case as lower case.
    digits (bool): Read every digit of a token as 0.
    dropout (float): Dropout on the joined rows of tokens and pairs.
    word_dropout (float): Probability that a token is read as unknown in training.
    vectors (Optional[Union[str, Path, VectorsSource]]): Pretrained rows for tokens: a word2vec or GloVe text file
        (plain, gz, bz2, xz), a directory that `spacy init vectors` made, or `spacy_tener.GloVe.v1`. Read by
        `initialize` only, scaled to unit length, which random rows have on average, fine-tuned, saved with the model.
    whiten_vectors (bool): Whiten pretrained rows first: subtract their mean, and scale them to equal variance in all
        directions.
    project_to (Optional[int]): Output width of a linear layer on top, for encoders whose input must be as wide as their
        output, such as spaCy's; None for no such layer.
    frequent (Optional[int]): Number of pretrained rows that the model keeps beside those of the training data: the
        first ones, which are the most frequent words in most files. None for all.
    half (bool): Save the rows as 16-bit floats.
    """

    width: PositiveInt = 100
    lower: bool = True
    digits: bool = True
    dropout: Probability = 0.5
    word_dropout: Probability = 0.01
    vectors: str | Path | VectorsSource | None = None
    whiten_vectors: bool = False
    project_to: PositiveInt | None = None
    frequent: NonNegativeInt | None = None
    half: bool = False


@configured("spacy_tener.WordCharEmbed.v1", WordEmbedConfig)
def build_word_char_embed(chars: EmbedModel | Literal["cnn"] | None = "cnn", *, config: WordEmbedConfig) -> EmbedModel:
    """Embed each token by its own row, joined with an encoding of its characters.

    Registered as `spacy_tener.WordCharEmbed.v1`. A word gets a row of its own when it is first seen in training, or
    if it has a pretrained vector; all others share the unknown row, which word dropout trains. Words are read in
    lower case unless `lower` is false: "London" and "LONDON" share the row, and the vector, of "london". Characters
    keep their case, and have a dropout of their own.

    chars (Optional[Union[Model[List[Doc], List[Floats2d]], str]]): Embedder whose output is joined: an encoder of
        characters (`spacy_tener.CharCNN.v1`, `spacy_tener.CharTransformer.v1`), or any
        other embedder; "cnn" for the first of them with its defaults; None for nothing.
    """
    embed = _char_embed(
        Normaliser(digits=config.digits, lower=config.lower),
        widths={UNIGRAM: config.width},
        dropout=config.dropout,
        word_dropout={UNIGRAM: config.word_dropout},
        vectors={UNIGRAM: config.vectors},
        whiten=config.whiten_vectors,
        frequent=config.frequent,
        half=config.half,
    )
    if chars is not None:
        embed = join_embedders(embed, build_char_cnn() if chars == "cnn" else chars)
    if config.project_to is None:
        return embed
    return chain_layers(embed, projection(config.project_to))


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Concatenate two embedders: of this package, of spaCy, or a transformer's listener.

    Registered as `spacy_tener.JoinEmbed.v1`. Nest it for more than two.

    first (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.CharEmbed.v1` if there is none.
    second (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.RadicalEmbed.v1` if there is none.
    """
    return join_embedders(first or build_char_embed(), second or build_radical_embed())
