"""Words of a lexicon and of the lists above it, found together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from spacy.tokens import Doc

from ...types import IntArray
from .lexicon import Lexicon, Match, are_longest
from .lists import Entry, WordList


@dataclass(frozen=True)
class LayeredMatch:
    """Words of several lexicons in a batch of Docs.

    match: where they are; its `words` are indices in the lexicon of each word's own layer.
    layers: 0 for the lexicon of the model, 1 for the first list above it, ... *Shape: [W]*
    """

    match: Match
    layers: IntArray

    def listed(self, lists: Sequence[WordList]) -> tuple[list[tuple[str, Entry]], IntArray]:
        """The distinct words of lists, and which of them each word of a list is. *Shape* [W with a layer above 0]"""
        places = np.flatnonzero(self.layers)
        pairs, which = np.unique(np.stack((self.layers[places], self.match.words[places])), axis=1, return_inverse=True)
        found = [(lists[layer - 1], index) for layer, index in pairs.T.tolist()]
        words = [(own, words.entries[own]) for words, index in found for own in [words.lexicon.words[index]]]
        return words, which.reshape(-1)


def find_layered(
    lexicon: Lexicon, docs: Sequence[Doc], lists: Sequence[tuple[WordList, IntArray]], max_words: int | None
) -> LayeredMatch:
    """As `Lexicon.find`, with the words of lists. What the highest of them says of a word counts: a word that it hides
    is not found.

    lists: each with the places of the Docs that it is for.
    """
    found = [(lexicon.find(docs, max_words), np.arange(len(docs)))]
    for words, places in lists:
        found.append((words.lexicon.find([docs[place] for place in places], max_words), places))
    table = np.concatenate([_columns(match, places, layer) for layer, (match, places) in enumerate(found)], axis=1)
    table = table[:, np.lexsort(table[3::-1])]
    highest = (np.diff(table[:3], axis=1, append=-1) != 0).any(axis=0)
    hidden = np.zeros(highest.size, dtype=bool)
    for layer, (words, _) in enumerate(lists, start=1):
        own = np.flatnonzero(table[3] == layer)
        hidden[own] = words.hidden[table[4, own]]
    table = table[:, highest & ~hidden]
    if max_words is not None:
        heads = (np.diff(table[:2], axis=1, prepend=-1) != 0).any(axis=0).cumsum()
        table = table[:, are_longest(heads, max_words)]
    counts = np.bincount(table[0], minlength=len(docs))
    return LayeredMatch(Match(words=table[4], heads=table[1], tails=table[2], counts=counts), layers=table[3])


def _columns(match: Match, places: IntArray, layer: int) -> IntArray:
    """Doc, head, tail, layer and index of each word. *Shape* [5, W]"""
    docs, layers = np.repeat(places, match.counts), np.full(match.words.size, layer)
    return np.stack((docs, match.heads, match.tails, layers, match.words))
