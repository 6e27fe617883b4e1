"""Embedders that compute a token's vector from its characters.

`spacy_tener.CharCNN.v1` is here. `spacy_tener.CharTransformer.v1` in `architectures/tener` and
`spacy_tener.RadicalEmbed.v1` share its vocabulary and its forward pass: a batch encodes each distinct token once. Use
them for the characters of `spacy_tener.WordCharEmbed.v1`, or alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ..features.characters import Spellings
from ..features.keys import Normaliser
from ..features.tokens import TokenBatch, spell
from ..nn.backends import Indices
from ..nn.layers_numpy import Weights
from ..nn.shim import EmbedModel, TorchShim
from ..validation import OddInt, Probability, validated
from .spelling_numpy import CNN, Encode
from .spelling_numpy import CharacterFeatures as FeaturesPredictor
from .tables import EmbedInput, Vocabulary, build_tables, table_embedder

if TYPE_CHECKING:
    from .spelling_torch import CharacterEncoder, CharacterFeatures

CHARACTER = "character"


@validated("spacy_tener.CharCNN.v1")
def build_char_cnn(
    filters: PositiveInt = 30,
    window: OddInt = 3,
    char_width: PositiveInt = 30,
    width: PositiveInt = 30,
    digits: bool = True,
    dropout: Probability = 0.3,
    char_dropout: Probability = 0.01,
) -> EmbedModel:
    """Embed each token with a CNN over its characters, followed by max pooling and a linear layer.

    Registered as `spacy_tener.CharCNN.v1`. This is the CNN that the TENER paper compares with its character encoder
    (Yan et al., 2019, section 4.4). With the defaults, which are the paper's, it has 3,660 parameters besides the
    character embeddings: 30 x (3 x 30) + 30 for the filters and 30 x 30 + 30 for the linear layer.

    A character gets an embedding when it first occurs in training; all others share the unknown embedding. Upper and
    lower case are distinguished. Of a token with more than 64 characters, the first and the last 32 are used.

    filters (int): Number of filters.
    window (int): Number of characters in the window of a filter. Must be odd.
    char_width (int): Width of the character embeddings.
    width (int): Width of the output.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate of the character embeddings and of the output. The default is the released code's.
    char_dropout (float): Probability that a character is replaced by the unknown character in training.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    return spelling_embedder(
        partial(_make_cnn, char_width=char_width, filters=filters, window=window, width=width),
        partial(CNN, window, filters),
        char_width=char_width,
        width=width,
        digits=digits,
        dropout=dropout,
        char_dropout=char_dropout,
    )


def _make_cnn(*, char_width: int, filters: int, window: int, width: int) -> CharacterEncoder:
    from .spelling_torch import char_cnn

    return char_cnn(char_width=char_width, filters=filters, window=window, width=width)


def spelling_embedder(
    make_encoder: Callable[[], CharacterEncoder],
    encode: Callable[[Weights], Encode],
    *,
    char_width: int,
    width: int,
    digits: bool,
    dropout: float,
    char_dropout: float,
) -> EmbedModel:
    """Create an embedder that encodes the characters of each token.

    make_encoder (Callable[[], CharacterEncoder]): Builds the torch module of the encoder.
    encode (Callable[[Weights], Encode]): Builds the predictor of the encoder's sequence part from its weights.
    char_width (int): Width of the character embeddings.
    width (int): Width of the output, which must be the encoder's.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate of the character embeddings and of the output.
    char_dropout (float): Probability that a character is replaced by the unknown character in training.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    build = partial(
        _build_features, make_encoder=make_encoder, char_width=char_width, dropout=dropout, char_dropout=char_dropout
    )
    predictor = partial(FeaturesPredictor, {CHARACTER: char_width}, encode, width)
    vocabulary = SpellingVocabulary(CHARACTER, Normaliser(digits=digits))
    return table_embedder("char_encoder", vocabulary, TorchShim(build, predictor), width=width)


def _build_features(
    *,
    make_encoder: Callable[[], CharacterEncoder],
    char_width: int,
    dropout: float,
    char_dropout: float,
    **heights: int,
) -> CharacterFeatures:
    from .spelling_torch import CharacterFeatures

    tables = build_tables(
        widths={CHARACTER: char_width}, word_dropout={CHARACTER: char_dropout}, dropout=dropout, **heights
    )
    return CharacterFeatures(tables, make_encoder(), dropout=dropout)


class SpellingVocabulary(Vocabulary):
    """A vocabulary of the characters of tokens. The key of a character is its code point.

    name (str): Name of the embedding table.
    normaliser (Normaliser): A normalizer that does not change the lengths of strings.
    """

    part = "tables"

    def __init__(self, name: str, normaliser: Normaliser) -> None:
        super().__init__((name,))
        self._normaliser = normaliser

    def spell(self, tokens: TokenBatch) -> Spellings:
        """Return the characters of the distinct tokens."""
        return spell(tokens, self._normaliser)

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return the characters of the distinct tokens, with the lengths of these and the index of each token's string.

        *Shape:* (characters,), (distinct tokens,) and (tokens,)
        """
        (name,) = self.tables
        spellings = self.spell(tokens)
        return EmbedInput({name: spellings.keys}, (spellings.lengths, Indices(spellings.words)))
