"""Embedders with lookup tables for tokens and bigrams, and an embedder that concatenates two others.

- `spacy_tener.CharEmbed.v1`: token and bigram embeddings, the default for TENER, FLAT, FLAT-ATSSA and MECT.
- `spacy_tener.WordCharEmbed.v1`: token embeddings and character features, the default for GRN.
- `spacy_tener.JoinEmbed.v1`: the concatenation of two embedders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from spacy.tokens import Doc

from ..features.keys import END_MARK, KeyCache, Normalizer, bigram_key_array, pair_keys, unigram_key_array
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
    """Create an embedder that concatenates token embeddings and bigram embeddings.

    Registered as `spacy_tener.CharEmbed.v1`. Use this embedder if the tokens are characters, as in a Chinese pipeline,
    or if the pipeline has `view = "characters"`. A bigram is a pair of adjacent tokens.

    width (int): Token embedding width.
    bigram_width (int): Bigram embedding width. 0 for no bigrams.
    digits (bool): Replace every digit by 0.
    lower (bool): Convert to lower case.
    dropout (float): Dropout rate for the concatenated embeddings.
    word_dropout (float): Probability that a token is replaced by the unknown token during training.
    bigram_dropout (float): Probability that a bigram is replaced by the unknown bigram during training.
    vectors (Optional[Union[str, Path]]): Pretrained token embeddings: a text file in word2vec or GloVe format (plain,
        gz, bz2, xz), or a directory created by `spacy init vectors`. The file is only used by `initialize`. The vectors
        are scaled to unit L2 norm, fine-tuned, and saved with the model.
    bigram_vectors (Optional[Union[str, Path]]): Pretrained bigram embeddings, for strings of two characters.
    whiten_vectors (bool): Whiten the pretrained embeddings: subtract the mean, and scale all principal components to
        equal variance.
    simplify (bool): Convert traditional characters to simplified characters, and full-width to half-width letters.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width + bigram_width)
    """
    if bigram_vectors and not bigram_width:
        raise SettingError("bigram_width must be above 0 if bigram_vectors is set; got 0")
    widths = {UNIGRAM: width}
    if bigram_width:
        widths[BIGRAM] = bigram_width
    return _char_embed(
        Normalizer(digits=digits, lower=lower, simplify=simplify),
        widths=widths,
        dropout=dropout,
        word_dropout={UNIGRAM: word_dropout, BIGRAM: bigram_dropout},
        vectors={UNIGRAM: vectors, BIGRAM: bigram_vectors},
        whiten=whiten_vectors,
    )


def _char_embed(
    normalizer: Normalizer,
    *,
    widths: Mapping[str, int],
    dropout: float,
    word_dropout: Mapping[str, float],
    vectors: Mapping[str, str | Path | VectorsSource | None],
    whiten: bool,
    frequent: int | None = None,
    half: bool = False,
) -> EmbedModel:
    """Create an embedder with a token table and, if `widths` contains `bigram`, a bigram table."""
    return table_embedder(
        "char_embed",
        CharVocabulary(normalizer, widths),
        table_shim(widths, word_dropout=word_dropout, dropout=dropout, half=half),
        width=sum(widths.values()),
        init=partial(_init, normalizer=normalizer, vectors=vectors, whiten=whiten, frequent=frequent),
    )


class CharVocabulary(Vocabulary):
    """Vocabulary of tokens and, optionally, bigrams.

    normalizer (Normalizer): Normalizes token strings.
    names (Iterable[str]): Embedding table names: `unigram`, and `bigram` if bigrams are used.
    """

    def __init__(self, normalizer: Normalizer, names: Iterable[str]) -> None:
        super().__init__(names)
        self.normalizer = normalizer
        self.pair_characters = ""
        self._cache = KeyCache(normalizer)
        self._end_key = normalizer.key(END_MARK)

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return the keys of the tokens and bigrams. *Shape:* (tokens,) each

        A key is a 64-bit hash. A bigram consists of a token and the next token.
        """
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


def embeds_bigrams(embedder: TableEmbedder) -> bool:
    """Return whether the embedder has a table for bigrams of tokens."""
    return BIGRAM in embedder.attrs["vocabulary"].tables


def _init(
    embedder: TableEmbedder,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    normalizer: Normalizer,
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
            to_keys=partial(to_keys[name], normalizer=normalizer),
            whiten=whiten,
            frequent=frequent,
            normalise=normalizer,
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
    """Create an embedder that concatenates token embeddings and features of the token's characters.

    Registered as `spacy_tener.WordCharEmbed.v1`. A token has its own embedding if it occurs in the training data or has
    a pretrained vector. All other tokens share the embedding for unknown tokens, which is trained by word dropout. By
    default, tokens are lowercased first, so "London" and "LONDON" share an embedding. The character features are
    case-sensitive.

    chars (Optional[Union[Model[List[Doc], List[Floats2d]], Literal["cnn"]]]): The embedder for the characters:
        `spacy_tener.CharCNN.v1`, `spacy_tener.CharTransformer.v1` or any other embedder. "cnn" for
        `spacy_tener.CharCNN.v1` with its defaults. None for no character features.
    width (int): Token embedding width.
    lower (bool): Convert tokens to lower case for their embedding.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate for the token embeddings. `chars` applies its own dropout.
    word_dropout (float): Probability that a token is replaced by the unknown token during training.
    vectors (Optional[Union[str, Path, VectorsSource]]): Pretrained token embeddings: a text file in word2vec or GloVe
        format (plain, gz, bz2, xz), a directory created by `spacy init vectors`, or `spacy_tener.GloVe.v1`. The source
        is only used by `initialize`. The vectors are scaled to unit L2 norm, fine-tuned, and saved with the model.
    whiten_vectors (bool): Whiten the pretrained embeddings: subtract the mean, and scale all principal components to
        equal variance.
    project_to (Optional[int]): Output width of an additional linear layer. Use it if the encoder requires a certain
        input width, as spaCy's encoders do. None for no linear layer.
    frequent (Optional[int]): Number of pretrained vectors to keep even if their words do not occur in the training
        data. The first vectors in the file are kept. In most files, they belong to the most frequent words. None to
        keep all vectors.
    half (bool): Save the token embeddings as 16-bit floats.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width + width of `chars`), or
        *Shape:* (tokens, project_to)
    """
    embed = _char_embed(
        Normalizer(digits=digits, lower=lower),
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
    """Create an embedder that concatenates the output of two embedders.

    Registered as `spacy_tener.JoinEmbed.v1`. The embedders can be from this package or from spaCy, including listeners
    such as `spacy-transformers.TransformerListener.v1`. Nest `JoinEmbed` to concatenate more than two embedders.

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
