"""Embedders with a row for each token, and concatenation of embedders: `CharEmbed`, `WordCharEmbed`, `JoinEmbed`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from spacy.tokens import Doc

from ..features.characters import lengths_of
from ..features.keys import END_MARK, KeyCache, Normaliser, bigram_key_array, pair_keys, token_orths, unigram_key_array
from ..features.vectors import VectorsSource
from ..nn.compose import chain_layers, join_embedders, projection
from ..nn.shim import EmbedModel
from ..validation import Count, Probability, SettingError, Size, validated
from .radical_embed import build_radical_embed
from .spelling import build_char_cnn
from .tables import EmbedInput, TableEmbedder, Vocabulary, init_tables, load_vectors, table_embedder, table_shim

UNIGRAM = "unigram"
BIGRAM = "bigram"


@validated("spacy_tener.CharEmbed.v1")
def build_char_embed(
    width: Size = 50,
    bigram_width: Count = 50,
    digits: bool = True,
    lower: bool = False,
    dropout: Probability = 0.3,
    word_dropout: Probability = 0.01,
    bigram_dropout: Probability = 0.02,
    vectors: str | Path | None = None,
    bigram_vectors: str | Path | None = None,
    whiten_vectors: bool = False,
    simplify: bool = False,
) -> EmbedModel:
    """Embed each token by its own row and the row of the pair that it makes with the next token.

    Registered as `spacy_tener.CharEmbed.v1`. Its tokens are usually characters: those of a Chinese pipeline, or of the
    view `characters`.

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
    if bigram_vectors and not bigram_width:
        raise SettingError("bigram_width must be above 0 if there are bigram_vectors; got 0")
    return _char_embed(
        Normaliser(digits=digits, lower=lower, simplify=simplify),
        widths={UNIGRAM: width, BIGRAM: bigram_width} if bigram_width else {UNIGRAM: width},
        dropout=dropout,
        word_dropout={UNIGRAM: word_dropout, BIGRAM: bigram_dropout},
        vectors={UNIGRAM: vectors, BIGRAM: bigram_vectors},
        whiten=whiten_vectors,
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


@validated("spacy_tener.WordCharEmbed.v1")
def build_word_char_embed(
    width: Size = 100,
    lower: bool = True,
    digits: bool = True,
    dropout: Probability = 0.5,
    word_dropout: Probability = 0.01,
    vectors: str | Path | VectorsSource | None = None,
    whiten_vectors: bool = False,
    chars: EmbedModel | Literal["cnn"] | None = "cnn",
    project_to: Size | None = None,
    frequent: Count | None = None,
    half: bool = False,
) -> EmbedModel:
    """Embed each token by its own row, joined with an encoding of its characters.

    Registered as `spacy_tener.WordCharEmbed.v1`. A word gets a row of its own when it is first seen in training, or
    if it has a pretrained vector; all others share the unknown row, which word dropout trains. Words are read in
    lower case unless `lower` is false: "London" and "LONDON" share the row, and the vector, of "london". Characters
    keep their case, and have a dropout of their own.

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
    chars (Optional[Union[Model[List[Doc], List[Floats2d]], str]]): Embedder whose output is joined: an encoder of
        characters (`spacy_tener.CharCNN.v1`, `spacy_tener.CharTransformer.v1`), or any
        other embedder; "cnn" for the first of them with its defaults; None for nothing.
    project_to (Optional[int]): Output width of a linear layer on top, for encoders whose input must be as wide as their
        output, such as spaCy's; None for no such layer.
    frequent (Optional[int]): Number of pretrained rows that the model keeps beside those of the training data: the
        first ones, which are the most frequent words in most files. None for all.
    half (bool): Save the rows as 16-bit floats.
    """
    embed = _char_embed(
        Normaliser(digits=digits, lower=lower),
        widths={UNIGRAM: width},
        dropout=dropout,
        word_dropout={UNIGRAM: word_dropout},
        vectors={UNIGRAM: vectors},
        whiten=whiten_vectors,
        frequent=frequent,
        half=half,
    )
    if chars is not None:
        embed = join_embedders(embed, build_char_cnn() if chars == "cnn" else chars)
    if project_to is None:
        return embed
    return chain_layers(embed, projection(project_to))


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Concatenate two embedders: of this package, of spaCy, or a transformer's listener.

    Registered as `spacy_tener.JoinEmbed.v1`. Nest it for more than two.

    first (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.CharEmbed.v1` if there is none.
    second (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.RadicalEmbed.v1` if there is none.
    """
    return join_embedders(first or build_char_embed(), second or build_radical_embed())
