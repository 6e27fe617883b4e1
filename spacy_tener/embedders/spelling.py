"""Embedders of tokens by their characters: the CNN of the TENER paper (sections 3.1 and 4.4), and what others share.

Each is `Model[List[Doc], List[Floats2d]]`, for use in `spacy_tener.WordCharEmbed.v1` or alone. Each distinct word of a
batch is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass
from spacy.tokens import Doc

from ..features.characters import Spellings, spell
from ..features.keys import Normaliser
from ..nn.backends import Indices
from ..nn.layers_numpy import Weights
from ..nn.shim import EmbedModel, TorchShim
from ..validation import STRICT, OddInt, Probability, configured
from .spelling_numpy import CNN, Encode
from .spelling_numpy import CharacterFeatures as FeaturesPredictor
from .tables import EmbedInput, Vocabulary, build_tables, table_embedder

if TYPE_CHECKING:
    from .spelling_torch import CharacterEncoder, CharacterFeatures

CHARACTER = "character"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SpellingConfig:
    """Settings that the embedders of tokens by their characters share.

    char_width (int): Width of the characters' rows.
    width (int): Width of the output.
    digits (bool): Read every digit as 0.
    dropout (float): Dropout on the characters' rows and, again, on the output. The 0.3 is the released code's.
    char_dropout (float): Probability that a character is read as unknown in training.
    """

    char_width: PositiveInt = 30
    width: PositiveInt = 30
    digits: bool = True
    dropout: Probability = 0.3
    char_dropout: Probability = 0.01


@configured("spacy_tener.CharCNN.v1", SpellingConfig)
def build_char_cnn(filters: PositiveInt = 30, window: OddInt = 3, *, config: SpellingConfig) -> EmbedModel:
    """Embed each token by a CNN over its characters, with max pooling.

    Registered as `spacy_tener.CharCNN.v1`. The defaults are the TENER paper's, with its 3,660 parameters beside the
    characters' rows: 30 x (3 x 30) + 30 of the filters, 30 x 30 + 30 of the linear layer after the maximum. A
    character gets a row when it is first seen in training; all others share the unknown row. Case is kept. Tokens of
    more than 64 characters are cut to the first and the last 32.

    filters (int): Number of filters.
    window (int): Width of the filters in characters; an odd number.
    """
    sizes = {"char_width": config.char_width, "filters": filters, "window": window, "width": config.width}
    return spelling_embedder(partial(_make_cnn, sizes), partial(CNN, window, filters), config)


def _make_cnn(sizes: Mapping[str, int]) -> CharacterEncoder:
    from .spelling_torch import char_cnn

    return char_cnn(**sizes)


def spelling_embedder(
    make_encoder: Callable[[], CharacterEncoder], encode: Callable[[Weights], Encode], config: SpellingConfig
) -> EmbedModel:
    """Return an embedder with an encoder of characters.

    make_encoder (Callable): Makes the encoder as a torch module.
    encode (Callable): Makes its form in NumPy from its weights.
    """
    vocabulary = SpellingVocabulary(CHARACTER, Normaliser(digits=config.digits))
    predictor = partial(FeaturesPredictor, {CHARACTER: config.char_width}, encode, config.width)
    shim = TorchShim(partial(_build, make_encoder=make_encoder, config=config), predictor)
    return table_embedder("char_encoder", vocabulary, shim, width=config.width)


def _build(
    *, make_encoder: Callable[[], CharacterEncoder], config: SpellingConfig, **heights: int
) -> CharacterFeatures:
    from .spelling_torch import CharacterFeatures

    widths, dropped = {CHARACTER: config.char_width}, {CHARACTER: config.char_dropout}
    tables = build_tables(widths=widths, word_dropout=dropped, dropout=config.dropout, **heights)
    return CharacterFeatures(tables, make_encoder(), dropout=config.dropout)


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
        among them.

        *Shape:* (characters,), (distinct tokens,) and (tokens,)
        """
        (name,) = self.tables
        spellings = self.spell(docs)
        return EmbedInput({name: spellings.keys}, (spellings.lengths, Indices(spellings.words)))
