"""The embedder of characters: from Docs to one row of floats per token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ...features.keys import Keys
from ...features.normalise import KeyCache, Normaliser, token_orths
from ...features.tables import END_MARK, bigram_key_array, pair_keys, unigram_key_array
from ...features.vectors.forms import prepared
from ...layers.embedding import EmbeddingTables
from ...types import FloatArray
from ..bridge import EmbedModel, TorchShim, token_counts, torch_shim
from .vocabulary import Vocabulary, add_keys, check_rates, load_vectors, rows_of, run_module

UNIGRAM = "unigram"
BIGRAM = "bigram"


class CharVocabulary(Vocabulary):
    """One table of keys for tokens, and one for pairs of neighbours unless pairs are not used.

    names: `unigram`, and `bigram` or not.
    """

    def __init__(self, normaliser: Normaliser, names: Iterable[str]) -> None:
        super().__init__(names)
        self._cache = KeyCache(normaliser)
        self._end_key = normaliser.key(END_MARK)

    def keys(self, docs: list[Doc]) -> dict[str, Keys]:
        """The keys of all tokens of the docs joined, for each table. *Shape* [N]"""
        unigrams = self._cache(*token_orths(docs))
        keys = {UNIGRAM: unigrams}
        if BIGRAM in self.tables:
            keys[BIGRAM] = pair_keys(unigrams, np.asarray(token_counts(docs), dtype=np.int64), self._end_key)
        return keys


def build_char_embed(
    width: int = 50,
    bigram_width: int = 50,
    digits: bool = True,
    lower: bool = False,
    dropout: float = 0.3,
    word_dropout: float = 0.01,
    bigram_dropout: float = 0.02,
    vectors: str | Path | None = None,
    bigram_vectors: str | Path | None = None,
    normalize_vectors: bool = True,
    whiten_vectors: bool = False,
) -> EmbedModel:
    """Embed each token by its own row and the row of the pair that it makes with the next token.

    Registered as `spacy_tener.CharEmbed.v1`. Its tokens are the characters of a Chinese pipeline, or what a character
    view makes of one; any other tokens work the same way. A string gets a row of its own when it is first seen in
    training; every string that never was shares the unknown row, which word dropout trains.

    width (int): Width of the tokens' rows.
    bigram_width (int): Width of the pairs' rows; 0 leaves pairs out.
    digits (bool): Read every digit as 0.
    lower (bool): Read upper case as lower case.
    dropout (float): Dropout on the joined rows.
    word_dropout (float): Probability that a token is read as unknown in training.
    bigram_dropout (float): The same for a pair.
    vectors (Optional[Union[str, Path]]): Pretrained rows for tokens: a word2vec or GloVe text file (plain, gz, bz2, xz)
        or a directory that `spacy init vectors` made. Read by `initialize` only, fine-tuned, saved with the model.
    bigram_vectors (Optional[Union[str, Path]]): The same for pairs, written as two characters.
    normalize_vectors (bool): Scale pretrained rows to unit length, which random rows have on average.
    whiten_vectors (bool): Before that, take off from pretrained rows what all of them have in common: their mean, and
        that they vary more in some directions than in others.
    """
    if width < 1 or bigram_width < 0:
        raise ValueError(f"CharEmbed needs width >= 1 and bigram_width >= 0, but got {width} and {bigram_width}.")
    if bigram_vectors is not None and bigram_width == 0:
        raise ValueError("CharEmbed was given bigram_vectors but bigram_width = 0. Set a width, or remove the vectors.")
    check_rates("CharEmbed", dropout=dropout, word_dropout=word_dropout, bigram_dropout=bigram_dropout)
    widths = {UNIGRAM: width, BIGRAM: bigram_width} if bigram_width else {UNIGRAM: width}
    normaliser = Normaliser(digits=digits, lower=lower)
    build = partial(
        _build_tables,
        widths=widths,
        word_dropout={UNIGRAM: word_dropout, BIGRAM: bigram_dropout},
        dropout=dropout,
    )
    sources = {UNIGRAM: vectors, BIGRAM: bigram_vectors}
    return Model(
        "char_embed",
        _forward,
        init=partial(
            _init,
            normaliser=normaliser,
            sources={name: path for name, path in sources.items() if path is not None},
            prepare=partial(prepared, whiten=whiten_vectors, unit_length=normalize_vectors),
        ),
        dims={"nO": sum(widths.values())},
        attrs={"vocabulary": CharVocabulary(normaliser, widths), "widths": widths},
        shims=[TorchShim(build)],
    )


def _build_tables(
    *, widths: dict[str, int], word_dropout: dict[str, float], dropout: float, **rows: int
) -> EmbeddingTables:
    return EmbeddingTables(rows=rows, widths=widths, word_dropout=word_dropout, dropout=dropout)


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    normaliser: Normaliser,
    sources: dict[str, str | Path],
    prepare: Callable[[FloatArray], FloatArray],
) -> None:
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    torch_shim(model).build(**vocabulary.heights())
    for name, path in sources.items():
        to_keys = unigram_key_array if name == UNIGRAM else bigram_key_array
        load_vectors(
            model,
            name,
            path,
            width=model.attrs["widths"][name],
            normaliser=normaliser,
            to_keys=partial(to_keys, normaliser=normaliser),
            prepare=prepare,
        )


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    keys = model.attrs["vocabulary"].keys(docs)
    if is_train:
        add_keys(model, keys)
    outputs, learn = run_module(model, is_train, token_counts(docs), rows_of(model, keys))

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        learn(dY)
        return docs

    return outputs, backprop
