"""The embedder `spacy_tener.LexiconEmbed.v1`, which finds lexicon words in a Doc and embeds them.

FLAT, FLAT-ATSSA and MECT use it as the embedder for words. After training, users can add word lists to the lexicon.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import NonNegativeInt, PositiveInt
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model

from ..features.keys import Keys, StringTable
from ..features.lexicon import Lexicon, Match
from ..features.lexicon_sources import jieba_lexicon
from ..features.similar_words import SimilarWords, WordIndex, find_similar_words
from ..features.tokens import TokenBatch
from ..features.word_lists import LayeredMatch, WordList, WordLists, find_layered
from ..nn.backends import Backend, Rows
from ..nn.run import forward
from ..types import IntArray
from ..validation import Probability, validated
from .lattice import Lattice
from .tables import EmbedInput, TableEmbedder, Vocabulary, init_tables, load_vectors, table_shim

WORD = "word"
TAG = "tag"


@dataclass(frozen=True)
class LatticeWords:
    """The lexicon words in a batch of texts, with their embeddings.

    lattice (Lattice): The word positions.
    floats (Rows): The word embeddings. *Shape:* (words, width)
    """

    lattice: Lattice
    floats: Rows


LexiconModel = Model[list[Doc], LatticeWords]


@validated("spacy_tener.LexiconEmbed.v1")
def build_lexicon_embed(
    lexicon: Callable[[], Lexicon] | None = None,
    width: PositiveInt = 50,
    tag_width: NonNegativeInt = 0,
    max_words: PositiveInt | None = 5,
    dropout: Probability = 0.3,
    word_dropout: Probability = 0.01,
    vectors: str | Path | None = None,
    whiten_vectors: bool = False,
) -> LexiconModel:
    """Create an embedder that finds all lexicon words in a Doc, and returns their embeddings.

    Registered as `spacy_tener.LexiconEmbed.v1`. The matches include overlapping and nested words. A word has its own
    embedding if it occurs in the training data or has a pretrained vector. All other words share the embedding of the
    unknown word, which is trained by word dropout. The lexicon size therefore doesn't affect the training speed.

    lexicon (Optional[Callable[[], Lexicon]]): Function that loads the lexicon. It is called by `initialize`, and the
        lexicon is saved with the model. None for `spacy_tener.JiebaLexicon.v1` with its defaults.
    width (int): Word embedding width.
    tag_width (int): Width of the tag embeddings, which are concatenated with the word embeddings. A word's tag is its
        part of speech in jieba's dictionary, or the name of its word list. Tags help with words that do not occur in
        the training data. 0 for no tags, as in the papers.
    max_words (Optional[int]): Maximum number of words that start with the same token, which limits the memory for texts
        with many nested words. The longest words are used. None for no limit.
    dropout (float): Dropout rate for the embeddings.
    word_dropout (float): Probability that a word is replaced by the unknown word during training.
    vectors (Optional[Union[str, Path]]): Pretrained word embeddings, as for `spacy_tener.CharEmbed.v1`.
    whiten_vectors (bool): Whiten the pretrained embeddings, as for `spacy_tener.CharEmbed.v1`.
    RETURNS (Model[List[Doc], LatticeWords]): The embedder. It returns the word positions and the word embeddings,
        *Shape:* (words, width + tag_width).
    """
    if lexicon is None:
        lexicon = jieba_lexicon()
    widths = {WORD: width}
    if tag_width:
        widths[TAG] = tag_width
    # No dropout for tags, because unknown words have tags at inference, too.
    dropped = {WORD: word_dropout, TAG: 0.0}
    return LexiconEmbedder(
        "lexicon_embed",
        forward,
        init=partial(
            _init,
            source=lexicon,
            vectors=vectors,
            whiten=whiten_vectors,
        ),
        dims={"nO": sum(widths.values())},
        attrs={"vocabulary": LexiconVocabulary(widths, max_words)},
        shims=[table_shim(widths, word_dropout=dropped, dropout=dropout)],
    )


class LexiconEmbedder(TableEmbedder):
    """The layer of `spacy_tener.LexiconEmbed.v1`.

    Users can add word lists to a trained model. A word from such a list has no trained embedding. Its embedding is the
    mean embedding of similar lexicon words (see `features.similar_words`). No gradient is computed for the mean.
    """

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> LatticeWords:
        vocabulary: LexiconVocabulary = self.vocabulary
        lists = vocabulary.lists.active(inputs.sources)
        if not lists:
            match = vocabulary.match(inputs)
            rows = backend.call(self, *self.find_rows(vocabulary.keys(match.words), backend))
            return LatticeWords(_lattice(inputs, match), rows)
        found = find_layered(vocabulary.lexicon, inputs, lists, vocabulary.max_words)
        in_lexicon, in_list = np.flatnonzero(found.layers == 0), np.flatnonzero(found.layers)
        similar = vocabulary.similar_words(found, [words for words, _ in lists])
        keys = vocabulary.keys(found.match.words[in_lexicon])
        appended = {WORD: similar.words, TAG: similar.tags}
        rows = backend.call(self, *self.find_rows(keys, backend, appended=appended))
        if in_list.size:
            # `rows` has the rows of the lexicon words first, then those of the words in the user's word lists. `order`
            # restores the order of `found.match`.
            order = np.empty(found.layers.size, dtype=np.int64)
            order[in_lexicon], order[in_list] = np.arange(len(in_lexicon)), len(in_lexicon) + similar.word_indices
            rows = backend.replace_by_means(rows, len(in_lexicon), similar.sizes, order)
        return LatticeWords(_lattice(inputs, found.match), rows)


def _lattice(tokens: TokenBatch, match: Match) -> Lattice:
    return Lattice(lengths=tokens.lengths, counts=match.counts, heads=match.heads, tails=match.tails)


class LexiconVocabulary(Vocabulary):
    """Vocabulary of the words and tags that have an embedding, with the lexicon and additional word lists.

    A word's key is its index in the lexicon. A tag's key is its index in `lexicon.tag_names`.

    names (Iterable[str]): Embedding table names: `word`, and `tag` if tags are used.
    max_words (int | None): Maximum number of words that start with the same token. The longest words are used. None for
        no limit.
    """

    def __init__(self, names: Iterable[str], max_words: int | None) -> None:
        super().__init__(names)
        self.max_words = max_words
        self.lexicon = Lexicon(())
        self.lists = WordLists()
        self._index: tuple[StringTable, int, WordIndex] | None = None

    @property
    def tag_names(self) -> list[str]:
        """All tag names in the lexicon."""
        return [name for name in self.lexicon.tag_names if name]

    def has_tag(self, tag: str) -> bool:
        return tag in self.tag_names

    def to_parts(self) -> dict[str, Any]:
        return {**super().to_parts(), "lexicon": self.lexicon.to_bytes(), "lists": self.lists.to_message()}

    def from_parts(self, parts: dict[str, Any]) -> None:
        lexicon, lists = Lexicon.from_bytes(parts.pop("lexicon")), parts.pop("lists")
        super().from_parts(parts)
        lexicon.prepare()
        self.lexicon = lexicon
        self.lists.from_message(lists)

    def match(self, tokens: TokenBatch) -> Match:
        """Find all lexicon words in a batch of texts. Words from additional word lists are not included."""
        return self.lexicon.find(tokens.joined, max_words=self.max_words)

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        lists = self.lists.active(tokens.sources)
        if not lists:
            return EmbedInput(self.keys(self.match(tokens).words))
        found = find_layered(self.lexicon, tokens, lists, self.max_words)
        keys = self.keys(found.match.words[found.layers == 0])
        # Words from word lists use the embeddings of similar lexicon words, so add the keys of these similar words.
        # They are repeated for each occurrence in the texts.
        similar = self.similar_words(found, [words for words, _ in lists])
        times = np.bincount(similar.word_indices, minlength=similar.sizes.size)
        rows = np.repeat(similar.words, np.repeat(times, similar.sizes))
        keys[WORD] = np.append(keys[WORD], self.tables[WORD].keys[rows[rows > 0] - 1])
        return EmbedInput(keys)

    def keys(self, words: IntArray) -> dict[str, Keys]:
        """Return the keys of lexicon words in the word table and, if there is one, in the tag table.

        words (IntArray): Indices of the words in the lexicon. *Shape:* (words,)
        RETURNS (dict[str, Keys]): The keys for each table. *Shape:* (words,) each
        """
        keys = {WORD: words.astype(np.uint64)}
        if TAG in self.tables:
            keys[TAG] = self.lexicon.tags[words].astype(np.uint64)
        return keys

    def similar_words(self, found: LayeredMatch, lists: Sequence[WordList]) -> SimilarWords:
        """Find similar lexicon words for all matched words from word lists.

        found (LayeredMatch): The words that occur in the texts, from the lexicon and from word lists.
        lists (Sequence[WordList]): The word lists.
        RETURNS (SimilarWords): The embedding rows of the similar words.
        """
        table, index = self.tables[WORD], self._index
        # Rebuild the index if the table has changed. Training adds rows to the table. Initialization, loading and
        # trimming replace the table.
        if index is None or index[0] is not table or index[1] != len(table):
            index = self._index = table, len(table), WordIndex(self.lexicon, table.keys)
        tag_rows: dict[str, int] = {}
        if TAG in self.tables:
            names = self.lexicon.tag_names
            tag_rows = {names[int(key)]: row for row, key in enumerate(self.tables[TAG].keys.tolist(), start=1)}
        return find_similar_words(index[2], tag_rows, found, lists)

    def word_keys(self, words: Sequence[str]) -> Keys:
        return self.lexicon.index(words).astype(np.uint64)


def _init(
    embedder: LexiconEmbedder,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    source: Callable[[], Lexicon],
    vectors: str | Path | None,
    whiten: bool,
) -> None:
    vocabulary: LexiconVocabulary = embedder.vocabulary
    lexicon = vocabulary.lexicon = source()
    lexicon.prepare()
    if not len(lexicon):
        warnings.warn(
            "The lexicon of spacy_tener.LexiconEmbed.v1 is empty, so no words will be found in texts. Check the "
            "lexicon's source in the config, and its limits on frequency and length.",
            stacklevel=2,
        )
    init_tables(embedder)
    load_vectors(
        embedder,
        WORD,
        vectors,
        to_keys=vocabulary.word_keys,
        whiten=whiten,
        keep=lexicon.__contains__,
    )
    if vectors is not None:
        covered = vocabulary.pretrained[WORD] - 1
        logger.info("Pretrained word vectors: %d of the lexicon's %d words have one", covered, len(lexicon))
