"""Embedders that compute a token's vector from its characters, such as `spacy_tener.CharCNN.v1`.

They can be used alone, or as the argument `chars` of `spacy_tener.WordCharEmbed.v1`. `spacy_tener.CharTransformer.v1`
(in `architectures.tener`) and `spacy_tener.RadicalEmbed.v1` are based on this module, too. Each distinct token in a
batch is encoded only once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ..features.characters import Spellings
from ..features.keys import Normalizer
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
    """Create an embedder with a CNN over a token's characters, followed by max pooling and a linear layer.

    Registered as `spacy_tener.CharCNN.v1`. The TENER paper (Yan et al., 2019, section 4.4) compares this CNN with
    TENER's own character encoder. The defaults are from the paper. With these defaults, the CNN and the linear layer
    have 3,660 parameters.

    A character has its own embedding if it occurs in the training data. All other characters share the embedding of the
    unknown character. Characters are case-sensitive. If a token has more than 64 characters, only the first 32 and the
    last 32 are used.

    filters (int): Number of convolution filters.
    window (int): Convolution window size, in characters. Must be odd.
    char_width (int): Character embedding width.
    width (int): Output width.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate for the character embeddings and the output. The default is from the released code.
    char_dropout (float): Probability that a character is replaced by the unknown character during training.
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
    """Create an embedder that applies a sequence encoder, such as a CNN, to each token's characters.

    make_encoder (Callable[[], CharacterEncoder]): Creates the torch module.
    encode (Callable[[Weights], Encode]): Creates the NumPy implementation of the sequence encoder from its weights.
    char_width (int): Character embedding width.
    width (int): The torch module's output width.
    digits (bool): Replace every digit by 0.
    dropout (float): Dropout rate for the character embeddings and the output.
    char_dropout (float): Probability that a character is replaced by the unknown character during training.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    build = partial(
        _build_features, make_encoder=make_encoder, char_width=char_width, dropout=dropout, char_dropout=char_dropout
    )
    predictor = partial(FeaturesPredictor, {CHARACTER: char_width}, encode, width)
    vocabulary = SpellingVocabulary(CHARACTER, Normalizer(digits=digits))
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
    """Vocabulary of the characters that tokens consist of. The key of a character is its code point.

    name (str): The embedding table's name.
    normalizer (Normalizer): Normalizes tokens, without changing their length.
    """

    part = "tables"

    def __init__(self, name: str, normalizer: Normalizer) -> None:
        super().__init__((name,))
        self._normalizer = normalizer

    def spell(self, tokens: TokenBatch) -> Spellings:
        """Return the characters of each distinct token in a batch."""
        return spell(tokens, self._normalizer)

    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return the characters of all distinct tokens, and the arguments for the forward pass of `CharacterFeatures`.

        The arguments are the number of characters in each distinct token, and the index of the distinct token for each
        token in the batch.
        """
        (name,) = self.tables
        spellings = self.spell(tokens)
        return EmbedInput({name: spellings.keys}, (spellings.lengths, Indices(spellings.words)))
