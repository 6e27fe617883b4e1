"""Gazetteer embedder: features of how often words were entities in training, and of which label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.api import Model

from ...batching.sequences import ranges, starts
from ...features.characters import JoinedText, join_texts
from ...features.entity_counts import EntityCounts, place_keys
from ...features.keys import MULTIPLIER, Keys, search
from ...features.lexicon import Lexicon
from ...features.lexicon_sources import jieba_lexicon
from ...features.word_lists import ListedWord, find_layered
from ...settings import Probability, Size, check_each, named
from ...types import BoolArray, IntArray
from ..bridge import EmbedModel
from .lexicon import WordVocabulary
from .tables import EmbedInput, init_tables, table_embedder, table_shim

MATCH = "match"
_NO_WORD = np.uint64(2**64 - 1)


@named("spacy_tener.GazetteerEmbed.v1")
def build_gazetteer_embed(
    lexicon: Callable[[], Lexicon] | None = None,
    width: int = 24,
    max_words: int | None = 5,
    dropout: float = 0.3,
    word_dropout: float = 0.01,
) -> EmbedModel:
    """Embed each token by how often the longest word that covers it was an entity in training.

    Registered as `spacy_tener.GazetteerEmbed.v1`. There is a row for each combination of the frequency (never, seldom,
    often, nearly always, or unknown, because the word is nowhere else in training), the word's most frequent label, the
    word's tag, and the token's position in the word (B, I, E, S); one row is for tokens without a word. An occurrence
    in training is not counted for itself. So the model learns how reliable unknown words of a list are from other
    words. The words are read and counted once, by `initialize`, and saved with the counts in the model.

    lexicon (Optional[Callable[[], Lexicon]]): The words, with their kinds as tags, such as `spacy_tener.WordList.v1`
        over a directory of lists; `spacy_tener.JiebaLexicon.v1` if there is none.
    width (int): Width of the rows.
    max_words (Optional[int]): Maximum number of words that begin with the same token, the longest first; None for no
        limit.
    dropout (float): Dropout on the rows.
    word_dropout (float): Probability that a token is read as unknown in training.
    """
    check_each(Size, width=width, max_words=max_words)
    check_each(Probability, dropout=dropout, word_dropout=word_dropout)
    vocabulary = GazetteerVocabulary(max_words)
    shim = table_shim({MATCH: width}, word_dropout={MATCH: word_dropout}, dropout=dropout)
    init = partial(_init, source=lexicon or jieba_lexicon())
    return table_embedder("gazetteer_embed", vocabulary, shim, width=width, init=init)


@dataclass(frozen=True)
class Annotation:
    """The entities of a Doc in the model's input, in tokens. *Shape* [E] each; known: [tokens]

    known: True for annotated tokens.
    """

    starts: IntArray
    ends: IntArray
    labels: IntArray
    known: BoolArray


@dataclass(frozen=True)
class _Matches:
    """Words found in the joined text of Docs, in tokens of that text. *Shape* [W] each"""

    text: JoinedText
    words: Keys
    tags: Keys
    docs: IntArray
    heads: IntArray
    tails: IntArray

    @property
    def places(self) -> Keys:
        return place_keys(self.text, self.words, self.docs, self.text.firsts[self.heads], self.text.lasts[self.tails])


class GazetteerVocabulary(WordVocabulary):
    """The words, their counts as entities, and the combinations seen in training."""

    def __init__(self, max_words: int | None) -> None:
        super().__init__((MATCH,), max_words)
        self.counts = _no_counts()

    def read(self, docs: list[Doc]) -> EmbedInput:
        """Return the key of each token's combination. *Shape* [N]"""
        found = self._find(docs)
        level, label = self.counts.judge(found.words, found.places)
        kinds = found.tags ^ ((label * 8 + level + 1).astype(np.uint64) * MULTIPLIER)
        keys = np.zeros(found.text.firsts.size, dtype=np.uint64)
        # The longest last, to overwrite shorter ones.
        order = np.argsort(found.tails - found.heads, kind="stable")
        heads, sizes = found.heads[order], (found.tails - found.heads)[order] + 1
        tokens = ranges(heads, sizes)
        edges = (tokens == np.repeat(heads, sizes)) + 2 * (tokens == np.repeat(found.tails[order], sizes))
        keys[tokens] = np.repeat(kinds[order], sizes) + edges.astype(np.uint64)
        return EmbedInput({MATCH: keys})

    def _find(self, docs: list[Doc]) -> _Matches:
        lists = self.lists.active(docs)
        found = find_layered(self.lexicon, docs, lists, self.max_words)
        match, own = found.match, found.layers == 0
        words, tags = match.words.copy(), np.zeros(match.words.size, dtype=np.int64)
        if not own.all():
            listed, which = found.listed([words for words, _ in lists])
            words[~own], tags[~own] = np.array([self._of_list(*each) for each in listed], dtype=np.int64)[which].T
        own = words >= 0
        tags[own] = self.lexicon.tags[words[own]]
        text = join_texts(docs)
        places = np.repeat(np.arange(len(docs)), match.counts)
        first_tokens = starts(text.lengths)[places]
        heads, tails = match.heads + first_tokens, match.tails + first_tokens
        names = [get_string_id(name) if name else 0 for name in self.lexicon.tag_names]
        read = tags >= 0
        hashes = np.array(names, dtype=np.uint64)[tags[read]]
        # -1, a new word, becomes _NO_WORD.
        return _Matches(text, words[read].astype(np.uint64), hashes, places[read], heads[read], tails[read])

    def _of_list(self, word: str, entry: ListedWord) -> tuple[int, int]:
        """Return the index of a listed word, -1 for a new one, and of its tag, -1 for one that was not in training.

        A word with counts from training keeps them, unless its tag in the list differs.
        """
        (index,), names = self.lexicon.index([word]).tolist(), self.lexicon.tag_names
        tag = names.index(entry.tag) if entry.tag in self.lexicon.kinds else -1
        if index >= 0 and (not entry.tag or tag in (-1, self.lexicon.tags[index])):
            return index, int(self.lexicon.tags[index])
        return -1, tag

    def count(self, batches: Iterable[Sequence[tuple[Doc, Annotation]]], n_labels: int) -> None:
        """Count how often the words are entities."""
        empty = np.zeros(0, dtype=np.uint64)
        parts = [(empty, empty, np.zeros(0, dtype=np.int64)), *(self._occurrences(batch) for batch in batches)]
        words, places, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.counts = EntityCounts.of(words, places, columns, n_labels)

    def _occurrences(self, batch: Sequence[tuple[Doc, Annotation]]) -> tuple[Keys, Keys, IntArray]:
        """Return words, places and columns of the words whose tokens are all annotated."""
        docs, annotations = [doc for doc, _ in batch], [annotation for _, annotation in batch]
        found = self._find(docs)
        lengths = found.text.lengths
        offsets = np.repeat(np.cumsum(lengths) - lengths, [annotation.starts.size for annotation in annotations])
        starts = np.concatenate([annotation.starts for annotation in annotations]) + offsets
        ends = np.concatenate([annotation.ends for annotation in annotations]) + offsets
        labels = np.concatenate([annotation.labels for annotation in annotations])
        n_tokens = int(lengths.sum())
        spans, order = np.unique((starts * n_tokens + ends - 1).astype(np.uint64), return_index=True)
        places, is_entity = search(spans, (found.heads * n_tokens + found.tails).astype(np.uint64))
        columns = np.zeros(is_entity.size, dtype=np.int64)
        columns[is_entity] = labels[order][places[is_entity]] + 1
        unknown = np.append(0, np.cumsum(~np.concatenate([annotation.known for annotation in annotations])))
        whole = (unknown[found.tails + 1] == unknown[found.heads]) & (found.words != _NO_WORD)
        return found.words[whole], found.places[whole], columns[whole]

    def to_parts(self) -> dict[str, Any]:
        return {**super().to_parts(), **vars(self.counts)}

    def from_parts(self, parts: dict[str, Any]) -> None:
        counts = EntityCounts(*(parts.pop(field.name) for field in fields(EntityCounts)))
        super().from_parts(parts)
        self.counts = counts


def gazetteers(model: Model[Any, Any]) -> list[GazetteerVocabulary]:
    """Return the gazetteers in a model, which count entities before training."""
    vocabularies = (node.attrs.get("vocabulary") for node in model.walk())
    return [each for each in vocabularies if isinstance(each, GazetteerVocabulary)]


def _no_counts() -> EntityCounts:
    empty = np.zeros(0, dtype=np.uint64)
    return EntityCounts.of(empty, empty, np.zeros(0, dtype=np.int64), 0)


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None, *, source: Callable[[], Lexicon]) -> None:
    vocabulary: GazetteerVocabulary = model.attrs["vocabulary"]
    vocabulary.counts = _no_counts()
    vocabulary.take(source(), "spacy_tener.GazetteerEmbed.v1")
    init_tables(model)
