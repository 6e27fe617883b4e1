"""The embedder of a lexicon's words: from Docs to the words found in them, each with a row of floats."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import srsly
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.types import Floats2d

from ...features.keys import Keys
from ...features.lexicon.lexicon import Lexicon, Match
from ...features.lexicon.sources import jieba_lexicon
from ...features.vectors.forms import prepared
from ...layers.embedding import EmbeddingTables
from ...layers.lattice.lattice import Lattice
from ...types import FloatArray
from ..bridge import TorchShim, token_counts, torch_shim
from .vocabulary import Vocabulary, add_keys, check_rates, load_vectors, rows_of, run_module

WORD = "word"
TAG = "tag"


@dataclass(frozen=True)
class LatticeWords:
    """The words found in a batch of Docs: where they lie, and what they mean to the model.

    *Shape* floats: [W, width]
    """

    lattice: Lattice
    floats: Floats2d


LexiconModel = Model[list[Doc], LatticeWords]


class LexiconVocabulary(Vocabulary):
    """A lexicon, with a row for each of its words that training has shown or that has a vector.

    A word's key is its index in the lexicon, and a tag's key its index among the lexicon's tags.

    names: `word`, and `tag` or not.
    """

    def __init__(self, names: Sequence[str], max_words: int | None) -> None:
        super().__init__(names)
        self.lexicon = Lexicon(())
        self.max_words = max_words

    def match(self, docs: list[Doc]) -> Match:
        return self.lexicon.find(docs, max_words=self.max_words)

    def keys(self, docs: list[Doc]) -> dict[str, Keys]:
        return self.keys_of(self.match(docs))

    def keys_of(self, match: Match) -> dict[str, Keys]:
        """*Shape* [W] for each table"""
        keys = {WORD: match.words.astype(np.uint64)}
        if TAG in self.tables:
            keys[TAG] = self.lexicon.tags[match.words].astype(np.uint64)
        return keys

    def word_keys(self, words: Sequence[str]) -> Keys:
        return self.lexicon.index(words).astype(np.uint64)

    def to_bytes(self) -> bytes:
        return cast(bytes, srsly.msgpack_dumps({"tables": super().to_bytes(), "lexicon": self.lexicon.to_bytes()}))

    def from_bytes(self, data: bytes) -> LexiconVocabulary:
        saved = srsly.msgpack_loads(data)
        super().from_bytes(saved["tables"])
        self.lexicon = Lexicon.from_bytes(saved["lexicon"])
        return self


def build_lexicon_embed(
    lexicon: Callable[[], Lexicon] | None = None,
    width: int = 50,
    tag_width: int = 0,
    max_words: int | None = 5,
    dropout: float = 0.3,
    word_dropout: float = 0.01,
    vectors: str | Path | None = None,
    normalize_vectors: bool = True,
    whiten_vectors: bool = False,
) -> LexiconModel:
    """Find the words of a lexicon in each Doc, overlapping and nested ones too, and embed each by its own row.

    Registered as `spacy_tener.LexiconEmbed.v1`. The lexicon is read once, by `initialize`, and saved with the model. A
    word gets a row when it is first seen in training, or where it has a pretrained vector; all others share the unknown
    row, which word dropout trains. So a step takes no longer with a larger lexicon.

    lexicon (Optional[Callable[[], Lexicon]]): Where the words come from; `spacy_tener.JiebaLexicon.v1` if there is
        none.
    width (int): Width of the words' rows.
    tag_width (int): Width of a row for the word's tag beside it (a part of speech in jieba's dictionary, the list's
        name in word lists), which says something about words that training never showed; 0 leaves tags out, as the
        papers do.
    max_words (Optional[int]): At most so many words beginning with the same token, the longest first, which bounds
        memory on text made of nested words; None for no limit.
    dropout (float): Dropout on the rows.
    word_dropout (float): Probability that a word is read as unknown in training.
    vectors (Optional[Union[str, Path]]): Pretrained rows for words, as for `spacy_tener.CharEmbed.v1`.
    normalize_vectors (bool): Scale pretrained rows to unit length, as for `spacy_tener.CharEmbed.v1`.
    whiten_vectors (bool): Before that, take off what they have in common, as for `spacy_tener.CharEmbed.v1`.
    """
    if width < 1 or tag_width < 0 or (max_words is not None and max_words < 1):
        raise ValueError(
            f"LexiconEmbed needs width >= 1, tag_width >= 0 and max_words >= 1 or None, but got {width}, {tag_width} "
            f"and {max_words}."
        )
    check_rates("LexiconEmbed", dropout=dropout, word_dropout=word_dropout)
    widths = {WORD: width, TAG: tag_width} if tag_width else {WORD: width}
    build = partial(_build_tables, widths=widths, word_dropout=word_dropout, dropout=dropout)
    prepare = partial(prepared, whiten=whiten_vectors, unit_length=normalize_vectors)
    init = partial(_init, source=lexicon or jieba_lexicon(), vectors=vectors, prepare=prepare)
    return Model(
        "lexicon_embed",
        _forward,
        init=init,
        dims={"nO": sum(widths.values())},
        attrs={"vocabulary": LexiconVocabulary(tuple(widths), max_words), "widths": widths},
        shims=[TorchShim(build)],
    )


def _build_tables(*, widths: dict[str, int], word_dropout: float, dropout: float, **rows: int) -> EmbeddingTables:
    # A word that is read as unknown keeps its tag, as an unknown word in a text does.
    rates = {name: word_dropout if name == WORD else 0.0 for name in widths}
    return EmbeddingTables(rows=rows, widths=widths, word_dropout=rates, dropout=dropout)


def _init(
    model: LexiconModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    source: Callable[[], Lexicon],
    vectors: str | Path | None,
    prepare: Callable[[FloatArray], FloatArray],
) -> None:
    vocabulary: LexiconVocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    vocabulary.lexicon = source()
    if not len(vocabulary.lexicon):
        warnings.warn(
            "The lexicon of spacy_tener.LexiconEmbed.v1 is empty: no word will be found in any text. Check its source "
            "in the config, and its limits on frequency and length.",
            stacklevel=2,
        )
    torch_shim(model).build(**vocabulary.heights())
    if vectors is not None:
        _load_vectors(model, vectors, prepare)


def _load_vectors(model: LexiconModel, path: str | Path, prepare: Callable[[FloatArray], FloatArray]) -> None:
    vocabulary: LexiconVocabulary = model.attrs["vocabulary"]
    load_vectors(
        model,
        WORD,
        path,
        width=model.attrs["widths"][WORD],
        normaliser=None,
        to_keys=vocabulary.word_keys,
        prepare=prepare,
        keep=vocabulary.lexicon.__contains__,
        strings=vocabulary.lexicon.words,
    )
    covered = vocabulary.pretrained[WORD] - 1
    logger.info("Pretrained word vectors: %d of the lexicon's %d words have one", covered, len(vocabulary.lexicon))


def _forward(
    model: LexiconModel, docs: list[Doc], is_train: bool
) -> tuple[LatticeWords, Callable[[LatticeWords], list[Doc]]]:
    device = torch_shim(model).device
    vocabulary: LexiconVocabulary = model.attrs["vocabulary"]
    match = vocabulary.match(docs)
    keys = vocabulary.keys_of(match)
    if is_train:
        add_keys(model, keys)
    rows = [part.to(device) for part in rows_of(model, keys)]
    (floats,), learn = run_module(model, is_train, [len(match.words)], rows)
    lengths = np.asarray(token_counts(docs), dtype=np.int64)
    lattice = Lattice(lengths=lengths, counts=match.counts, heads=match.heads, tails=match.tails)

    def backprop(d_words: LatticeWords) -> list[Doc]:
        learn([d_words.floats])
        return docs

    return LatticeWords(lattice, floats), backprop
