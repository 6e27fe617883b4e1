"""Embedders with an embedding for each distinct token, and the concatenation of embedders.

`spacy_tener.CharEmbed.v1` is the default embedder of TENER, FLAT, FLAT-ATSSA and MECT, and
`spacy_tener.WordCharEmbed.v1` that of GRN. `spacy_tener.JoinEmbed.v1` concatenates two embedders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from spacy.tokens import Doc

from ..features.keys import END_MARK, KeyCache, Normaliser, bigram_key_array, pair_keys, unigram_key_array
from ..features.pretrained_vectors import VectorsSource
from ..features.tokens import TokenBatch
from ..nn.compose import chain_layers, join_embedders, projection
from ..nn.shim import EmbedModel
from ..validation import Probability, SettingError, validated
from .radical_embed import build_radical_embed
from .spelling import build_char_cnn
from .tables import EmbedInput, TableEmbedder, Vocabulary, init_tables, load_vectors, table_embedder, table_shim

UNIGRAM = "unigram"
BIGRAM = "bigram"
_PAIR_CHARACTERS = "pair_characters"


@validated("spacy_tener.CharEmbed.v1")
def build_char_embed(
    width: PositiveInt = 50,
    bigram_width: NonNegativeInt = 50,
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
    """Embed each token by its own embedding, concatenated with that of the bigram of the token and the next one.

    Registered as `spacy_tener.CharEmbed.v1`. It is meant for tokens that are characters: those of a Chinese pipeline,
    or of any pipeline with `view = "characters"`.

    width (int): Width of the token embeddings.
    bigram_width (int): Width of the bigram embeddings. 0 for no bigrams.
    digits (bool): Replace every digit by 0.
    lower (bool): Convert to lower case.
    dropout (float): Dropout rate of the concatenated embeddings.
    word_dropout (float): Probability that a token is replaced by the unknown token in training.
    bigram_dropout (float): Probability that a bigram is replaced by the unknown bigram in training.
    vectors (Optional[Union[str, Path]]): Pretrained token embeddings: a word2vec or GloVe text file (plain, gz, bz2,
        xz) or a directory written by `spacy init vectors`. They are read by `initialize` only, scaled to a norm of 1,
        which randomly initialized embeddings have on average, fine-tuned, and saved with the model.
    bigram_vectors (Optional[Union[str, Path]]): Pretrained bigram embeddings, for strings of two characters.
    whiten_vectors (bool): Whiten pretrained embeddings: subtract their mean, and scale all principal components to
        equal variance.
    simplify (bool): Convert traditional characters to simplified ones, and full-width letters to half-width ones.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width + bigram_width)
    """
    if bigram_vectors and not bigram_width:
        raise SettingError("bigram_width must be above 0 if there are bigram_vectors; got 0")
    widths = {UNIGRAM: width}
    if bigram_width:
        widths[BIGRAM] = bigram_width
    return _char_embed(
        Normaliser(digits=digits, lower=lower, simplify=simplify),
        widths=widths,
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
    """Create an embedder with a table for tokens, and a table for bigrams if `widths` contains a width for bigrams."""
    return table_embedder(
        "char_embed",
        CharVocabulary(normaliser, widths),
        table_shim(widths, word_dropout=word_dropout, dropout=dropout, half=half),
        width=sum(widths.values()),
        init=partial(_init, normaliser=normaliser, vectors=vectors, whiten=whiten, frequent=frequent),
    )


class CharVocabulary(Vocabulary):
    """A vocabulary of tokens and, optionally, of bigrams.

    normaliser (Normaliser): Normalizes the strings of tokens.
    names (Iterable[str]): Names of the embedding tables: `unigram`, and `bigram` if bigrams are used.
    """

    def __init__(self, normaliser: Normaliser, names: Iterable[str]) -> None:
        super().__init__(names)
        self.normaliser = normaliser
        self.pair_characters = ""
        self._cache = KeyCache(normaliser)
        self._end_key = normaliser.key(END_MARK)

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return the keys of the tokens and of the bigrams that start with them. *Shape:* (tokens,) each"""
        unigrams = self._cache(tokens.orths, tokens.stores)[tokens.indices]
        keys = {UNIGRAM: unigrams}
        if BIGRAM in self.tables:
            keys[BIGRAM] = pair_keys(unigrams, tokens.lengths, self._end_key)
        return EmbedInput(keys)

    def clear(self) -> None:
        super().clear()
        self.pair_characters = ""

    def to_parts(self) -> dict[str, Any]:
        parts = super().to_parts()
        if self.pair_characters:
            parts[_PAIR_CHARACTERS] = self.pair_characters.encode()
        return parts

    def from_parts(self, parts: dict[str, Any]) -> None:
        pair_characters = parts.pop(_PAIR_CHARACTERS, b"").decode()
        super().from_parts(parts)
        self.pair_characters = pair_characters


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
        strings = load_vectors(
            embedder,
            name,
            source,
            to_keys=partial(to_keys[name], normaliser=normaliser),
            whiten=whiten,
            frequent=frequent,
            normalise=normaliser,
        )
        if name == BIGRAM:
            embedder.vocabulary.pair_characters = "".join(sorted(set("".join(strings))))


@validated("spacy_tener.WordCharEmbed.v1")
def build_word_char_embed(
    chars: EmbedModel | Literal["cnn"] | None = "cnn",
    width: PositiveInt = 100,
    lower: bool = True,
    digits: bool = True,
    dropout: Probability = 0.5,
    word_dropout: Probability = 0.01,
    vectors: str | Path | VectorsSource | None = None,
    whiten_vectors: bool = False,
    project_to: PositiveInt | None = None,
    frequent: NonNegativeInt | None = None,
    half: bool = False,
) -> EmbedModel:
    """Embed each token by its own embedding, concatenated with an encoding of its characters.

    Registered as `spacy_tener.WordCharEmbed.v1`. A word gets an embedding when it first occurs in training, or if it
    has a pretrained one; all others share the unknown embedding, which word dropout trains. Unless `lower` is false,
    "London" and "LONDON" share the embedding, and the pretrained vector, of "london". The encoding of the characters
    distinguishes them, and has its own dropout.

    chars (Optional[Union[Model[List[Doc], List[Floats2d]], Literal["cnn"]]]): The embedder whose output is
        concatenated: `spacy_tener.CharCNN.v1`, `spacy_tener.CharTransformer.v1` or any other embedder. "cnn" for
        `spacy_tener.CharCNN.v1` with its defaults, None for no embedder.
    width (int): Width of the token embeddings.
    lower (bool): Convert to lower case.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate of the token embeddings.
    word_dropout (float): Probability that a token is replaced by the unknown token in training.
    vectors (Optional[Union[str, Path, VectorsSource]]): Pretrained token embeddings: a word2vec or GloVe text file
        (plain, gz, bz2, xz), a directory written by `spacy init vectors`, or `spacy_tener.GloVe.v1`. They are read by
        `initialize` only, scaled to a norm of 1, which randomly initialized embeddings have on average, fine-tuned,
        and saved with the model.
    whiten_vectors (bool): Whiten pretrained embeddings: subtract their mean, and scale all principal components to
        equal variance.
    project_to (Optional[int]): Output width of a linear layer on top, for encoders such as spaCy's, whose input must
        be as wide as their output. None for no such layer.
    frequent (Optional[int]): Number of pretrained embeddings that the model keeps although the training data lacks
        their words: the first ones, which in most files belong to the most frequent words. None for all.
    half (bool): Save the token embeddings as 16-bit floats.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width + width of `chars`), or (tokens,
        project_to)
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
    if chars == "cnn":
        chars = build_char_cnn()
    if chars is not None:
        embed = join_embedders(embed, chars)
    if project_to is None:
        return embed
    return chain_layers(embed, projection(project_to))


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Concatenate two embedders: of this package, of spaCy, or a listener to a transformer.

    Registered as `spacy_tener.JoinEmbed.v1`. Nest it to concatenate more than two.

    first (Optional[Model[List[Doc], List[Floats2d]]]): The first embedder. None for `spacy_tener.CharEmbed.v1` with its
        defaults.
    second (Optional[Model[List[Doc], List[Floats2d]]]): The second embedder. None for `spacy_tener.RadicalEmbed.v1`
        with its defaults.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, sum of the widths)
    """
    if first is None:
        first = build_char_embed()
    if second is None:
        second = build_radical_embed()
    return join_embedders(first, second)
