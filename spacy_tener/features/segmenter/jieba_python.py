"""What rjieba reads, read by jieba: for machines that rjieba has no wheel for.

The two share dictionary and models. jieba's own `posseg` divides a text otherwise than its `cut` and than rjieba, and
both read ASCII and rare characters otherwise than rjieba. Here rjieba is followed, which is a hundred times as fast: of
18,651 posts, sentences of CVs and of laws, two came out otherwise, by one word each, where two readings are equally
likely.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..lexicon.files import read_dictionary

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
_BLOCK = re.compile(f"([{_CJK}a-zA-Z0-9+#&._%\\-]+)")
_HMM_BLOCK = re.compile("([\u4e00-\u9fd5]+)")
_LATIN = re.compile(r"([a-zA-Z0-9]+(?:[._-][a-zA-Z0-9]+)*%?)")
_SINGLE = re.compile(r"\r\n|.", re.DOTALL)
_HAS_CJK = re.compile(f"[{_CJK}]")
_UNKNOWN = "x"
_IMPOSSIBLE = -3.14e100
"""jieba's logarithm of zero."""


class JiebaTagger:
    """Words with their parts of speech, by jieba."""

    def __init__(self) -> None:
        jieba = importlib.import_module("jieba")
        self._tokenizer = jieba.Tokenizer()
        self._tokenizer.initialize()
        self._divide = importlib.import_module("jieba.finalseg").cut
        dictionary = Path(str(jieba.__file__)).parent / "dict.txt"
        self._tags = {entry.word: entry.tag for entry in read_dictionary(dictionary)}
        self._guess = lru_cache(maxsize=100_000)(self._guess_tag)

    def tag(self, text: str) -> list[tuple[str, str]]:
        return [(word, self._tags.get(word) or self._guess(word)) for word in self._cut(text)]

    def _cut(self, text: str) -> Iterator[str]:
        for index, block in enumerate(_BLOCK.split(text)):
            yield from self._cut_block(block) if index % 2 else _SINGLE.findall(block)

    def _cut_block(self, block: str) -> Iterator[str]:
        """The likeliest words of the dictionary; where only single characters are left, the HMM's."""
        route: dict[int, tuple[float, int]] = {}
        self._tokenizer.calc(block, self._tokenizer.get_DAG(block), route)
        start = singles = 0
        while start < len(block):
            end = route[start][1] + 1
            if end - start > 1:
                yield from self._cut_singles(block[singles:start])
                yield block[start:end]
                singles = end
            start = end
        yield from self._cut_singles(block[singles:])

    def _cut_singles(self, text: str) -> Iterator[str]:
        if len(text) < 2 or text in self._tags:
            yield from text
            return
        for index, block in enumerate(_HMM_BLOCK.split(text)):
            yield from self._divide(block) if index % 2 else filter(None, _LATIN.split(block))

    def _guess_tag(self, word: str) -> str:
        """The part of speech of a word that is not in the dictionary."""
        if latin := [char for char in word if char.isascii() and char.isalnum()]:
            return "m" if all(char.isdigit() for char in latin) else "eng"
        if not _HAS_CJK.search(word):
            return _UNKNOWN
        parts = _hmm().tag(word)
        longest = max(len(part.encode()) for part, _ in parts)
        return [tag for part, tag in parts if len(part.encode()) == longest][-1]


@lru_cache(maxsize=1)
def _hmm() -> _TagHMM:
    return _TagHMM(importlib.import_module("jieba.posseg"))


class _TagHMM:
    """jieba's hidden Markov model of edges and parts of speech together."""

    def __init__(self, posseg: Any) -> None:
        self._states = sorted(posseg.start_P)
        self._index = {state: i for i, state in enumerate(self._states)}
        self._start = _log_probabilities(posseg.start_P, self._index)
        self._transitions = np.stack([_log_probabilities(posseg.trans_P[state], self._index) for state in self._states])
        self._emissions = posseg.emit_P
        self._states_of = posseg.char_state_tab_P
        self._edges = np.array([edge for edge, _ in self._states])

    def tag(self, word: str) -> list[tuple[str, str]]:
        """The parts of a word as the model divides it, each with its part of speech."""
        scores = self._start + self._emission(word[0])
        if len(word) == 1:
            single = np.where(self._edges == "S", scores, -np.inf)
            best = int(single.argmax())
            return [(word, self._states[best][1] if np.isfinite(single[best]) else _UNKNOWN)]
        before = []
        for char in word[1:]:
            paths = scores[:, None] + self._transitions
            before.append(paths.argmax(axis=0))
            scores = paths.max(axis=0) + self._emission(char)
        ends = np.where(np.isin(self._edges, ["E", "S"]), scores, -np.inf)
        state = int(ends.argmax())
        if not np.isfinite(ends[state]):
            return [(word, _UNKNOWN)]
        path = [state]
        for best_before in reversed(before):
            path.append(int(best_before[path[-1]]))
        return list(self._parts(word, path[::-1]))

    def _parts(self, word: str, path: list[int]) -> Iterator[tuple[str, str]]:
        start = 0
        for place, state in enumerate(path):
            edge, tag = self._states[state]
            if edge in "ES":
                yield word[start : place + 1], tag
                start = place + 1

    def _emission(self, char: str) -> Any:
        """*Shape* [states]"""
        allowed = self._states_of.get(char, self._states)
        table = {state: self._emissions[state].get(char, _IMPOSSIBLE) for state in allowed}
        return _log_probabilities(table, self._index)


def _log_probabilities(table: dict[Any, float], index: dict[Any, int]) -> Any:
    """*Shape* [states]"""
    row = np.full(len(index), -np.inf)
    for state, value in table.items():
        if value > _IMPOSSIBLE:
            row[index[state]] = value
    return row
