"""Embedders with a row for each token, and concatenation of embedders: `CharEmbed`, `WordCharEmbed`, `JoinEmbed`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from spacy.tokens import Doc

from ...features.keys import END_MARK, KeyCache, Normaliser, bigram_key_array, pair_keys, token_orths, unigram_key_array
from ...runtime.dense import Projection as Projecting
from ...settings import Count, Probability, Settings, Size, check
from ..batches import token_counts
from ..bridge import EmbedModel
from ..parts import chain_layers, own_layer, ragged_layer
from ..run import HostRun, Rows
from ..settings import expand_config
from .characters import build_char_cnn, build_radical_embed
from .tables import EmbedInput, Vocabulary, init_tables, load_vectors, table_embedder, table_shim

if TYPE_CHECKING:
    from torch import nn

UNIGRAM = "unigram"
BIGRAM = "bigram"


@dataclass(frozen=True, kw_only=True)
class CharEmbedConfig(Settings):
    """Settings of an embedder of tokens and of pairs of adjacent tokens.

    width: Width of the tokens' rows.
    bigram_width: Width of the pairs' rows; 0 leaves pairs out.
    digits: Read every digit of a token as 0.
    lower: Read upper case as lower case.
    dropout: Dropout on the joined rows of tokens and pairs.
    word_dropout: Probability that a token is read as unknown in training.
    bigram_dropout: The same for a pair.
    vectors: Pretrained rows for tokens: a word2vec or GloVe text file (plain, gz, bz2, xz) or a directory that `spacy
        init vectors` made. Read by `initialize` only, fine-tuned, saved with the model.
    bigram_vectors: The same for pairs, written as two characters.
    normalize_vectors: Scale pretrained rows to unit length, which random rows have on average.
    whiten_vectors: Before that, whiten pretrained rows: subtract their mean, and scale them to equal variance in all
        directions.
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
        check("bigram_width", self.bigram_width, fits, "above 0 if there are bigram_vectors")

    @property
    def widths(self) -> dict[str, int]:
        """The width of each table."""
        return {UNIGRAM: self.width, BIGRAM: self.bigram_width} if self.bigram_width else {UNIGRAM: self.width}


@expand_config()
def build_char_embed(*, config: CharEmbedConfig) -> EmbedModel:
    """Embed each token by its own row and the row of the pair that it makes with the next token.

    Registered as `spacy_tener.CharEmbed.v1`. Its tokens are usually characters: those of a Chinese pipeline, or of the
    view `characters`. A string gets a row of its own when it is first seen in training; all others share the unknown
    row, which word dropout trains.
    """
    return char_embed(config)


def char_embed(config: CharEmbedConfig) -> EmbedModel:
    """Return `spacy_tener.CharEmbed.v1` of this config."""
    normaliser = Normaliser(digits=config.digits, lower=config.lower)
    word_dropout = {UNIGRAM: config.word_dropout, BIGRAM: config.bigram_dropout}
    return table_embedder(
        "char_embed",
        CharVocabulary(normaliser, config.widths),
        table_shim(config.widths, word_dropout=word_dropout, dropout=config.dropout),
        width=sum(config.widths.values()),
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

    def read(self, docs: list[Doc]) -> EmbedInput:
        """Return the keys of all tokens of the docs joined, for each table. *Shape* [N]"""
        unigrams = self._cache(*token_orths(docs))
        keys = {UNIGRAM: unigrams}
        if BIGRAM in self.tables:
            keys[BIGRAM] = pair_keys(unigrams, np.asarray(token_counts(docs), dtype=np.int64), self._end_key)
        return EmbedInput(keys)


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


@expand_config(
    fixed={"bigram_width": 0, "bigram_dropout": 0.0, "bigram_vectors": None},
    width=100,
    lower=True,
    digits=True,
    dropout=0.5,
)
def build_word_char_embed(
    config: CharEmbedConfig, chars: EmbedModel | Literal["cnn"] | None = "cnn", project_to: int | None = None
) -> EmbedModel:
    """Embed each token by its own row, joined with an encoding of its characters.

    Registered as `spacy_tener.WordCharEmbed.v1`. A word gets a row of its own when it is first seen in training, or
    if it has a pretrained vector; all others share the unknown row, which word dropout trains. Words are read in
    lower case unless `lower` is false: "London" and "LONDON" share the row, and the vector, of "london". Characters
    keep their case, and have a dropout of their own.

    chars (Optional[Union[Model[List[Doc], List[Floats2d]], str]]): Embedder whose output is joined: an encoder of
        characters (`spacy_tener.CharCNN.v1`, `spacy_tener.CharBiLSTM.v1`, `spacy_tener.CharTransformer.v1`), or any
        other embedder; "cnn" for the first of them with its defaults; None for nothing.
    project_to (Optional[int]): Output width of a linear layer on top, for encoders whose input must be as wide as their
        output, such as spaCy's; None for no such layer.
    """
    check("project_to", project_to, project_to is None or project_to >= 1, "at least 1")
    embed = char_embed(config)
    if chars is not None:
        embed = join_embedders(embed, build_char_cnn() if chars == "cnn" else chars)
    if project_to is None:
        return embed
    return chain_layers(embed, ragged_layer("project", _build_projection, Projecting, width_out=project_to))


def _build_projection(*, nI: int, nO: int) -> nn.Module:
    from ...layers.dense import Projection

    return Projection(width_in=nI, width_out=nO)


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Concatenate two embedders: of this package, of spaCy, or a transformer's listener.

    Registered as `spacy_tener.JoinEmbed.v1`. Nest it for more than two.

    first (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.CharEmbed.v1` if there is none.
    second (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.RadicalEmbed.v1` if there is none.
    """
    return join_embedders(first or build_char_embed(), second or build_radical_embed())


def join_embedders(*embedders: EmbedModel) -> EmbedModel:
    """Concatenate embedders."""
    name, layers = "|".join(embedder.name for embedder in embedders), list(embedders)
    model: EmbedModel = own_layer(name, _compute_join, init=_init_join, dims={"nO": None}, layers=layers)
    _sum_widths(model)
    return model


def _compute_join(model: EmbedModel, run: HostRun, docs: list[Doc]) -> Rows:
    return run.beside([run(embedder, docs) for embedder in model.layers])


def _init_join(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    for embedder in model.layers:
        embedder.initialize(X)
    _sum_widths(model)


def _sum_widths(model: EmbedModel) -> None:
    if all(embedder.has_dim("nO") for embedder in model.layers):
        model.set_dim("nO", sum(embedder.get_dim("nO") for embedder in model.layers))
