"""Embedders that read a token by its characters: by a CNN, a BiLSTM or a transformer (TENER, sections 3.1 and 4.4).

Each is `Model[List[Doc], List[Floats2d]]`, to stand beside the rows of words in `spacy_tener.WordCharEmbed.v1`, or
alone. The distinct words of a batch are encoded once, however many tokens they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spacy.tokens import Doc

from ...features.characters import Spellings, spell
from ...runtime import characters, transformer
from ...runtime.weights import Weights
from ...settings import Probability, Settings, Size, TransformerConfig, check, check_window
from ..batches import Indices
from ..bridge import EmbedModel, TorchShim
from ..settings import expand_config
from .tables import EmbedInput, Vocabulary, build_tables, table_embedder

if TYPE_CHECKING:
    from ...layers.characters import CharacterFeatures

CHARACTER = "character"


@dataclass(frozen=True, kw_only=True)
class SpellingConfig(Settings):
    """Settings of embedders that read a token by its characters.

    char_width: Width of the characters' rows.
    width: Width of the output.
    digits: Read every digit as 0.
    dropout: Dropout on the characters' rows and, again, on the output. The 0.3 is the released code's.
    char_dropout: Probability that a character is read as unknown in training.
    """

    char_width: Size = 30
    width: Size = 30
    digits: bool = True
    dropout: Probability = 0.3
    char_dropout: Probability = 0.01


@expand_config()
def build_char_cnn(filters: int = 30, window: int = 3, *, config: SpellingConfig) -> EmbedModel:
    """Read each token by filters over its characters and their maximum over the token.

    Registered as `spacy_tener.CharCNN.v1`. The defaults are the TENER paper's, with its 3,660 parameters beside the
    characters' rows: 30 x (3 x 30) + 30 of the filters, 30 x 30 + 30 of the linear layer behind the maximum. A
    character gets a row when it is first seen in training; all others share the unknown row. Case is kept. Of a token
    of more than 64 characters the first and the last 32 are read.

    filters (int): Number of filters.
    window (int): How many characters each filter sees; an odd number.
    """
    check("filters", filters, filters >= 1, "at least 1")
    check_window(window)
    sizes = {"char_width": config.char_width, "filters": filters, "window": window}
    return _char_embed("char_cnn", sizes, partial(characters.CNN, window, filters), config)


@expand_config()
def build_char_bilstm(hidden: int = 50, *, config: SpellingConfig) -> EmbedModel:
    """Read each token by an LSTM over its characters in either direction.

    Registered as `spacy_tener.CharBiLSTM.v1`. The defaults are the TENER paper's, with its 35,830 parameters beside the
    characters' rows: twice 4 x 50 x (30 + 50 + 2) of the LSTMs, which have two biases in torch, and 100 x 30 + 30 of
    the linear layer. As in its released code, that layer reads the maximum over all characters, where Lample et al.
    have the last state of each direction. Characters get rows, and long tokens are cut, as by `spacy_tener.CharCNN.v1`.

    hidden (int): Width of each direction.
    """
    check("hidden", hidden, hidden >= 1, "at least 1")
    sizes = {"char_width": config.char_width, "hidden": hidden}
    return _char_embed("char_bilstm", sizes, partial(characters.BiLSTM, hidden), config)


@expand_config()
def build_char_transformer(
    adapted: bool = True, heads: int = 3, ff_width: int = 60, inner_dropout: float = 0.15, *, config: SpellingConfig
) -> EmbedModel:
    """Read each token by one transformer layer over its characters.

    Registered as `spacy_tener.CharTransformer.v1`. The defaults are the TENER paper's, with its 6,600 parameters beside
    the characters' rows (8,460 where `adapted` is false): 2 x 30 x 30 of queries and values and 60 of u and v (vanilla:
    4 x (30 x 30 + 30) of queries, keys, values and output), 3,690 of the feed-forward, 120 of the norms, 930 of the
    linear layer behind the maximum. Characters get rows, and long tokens are cut, as by `spacy_tener.CharCNN.v1`.

    adapted (bool): TENER's attention; else the vanilla one.
    heads (int): Number of heads, which share the width of the characters' rows.
    ff_width (int): Width inside the feed-forward.
    inner_dropout (float): Dropout inside the transformer.
    """
    layer = TransformerConfig(
        width=config.char_width, heads=heads, ff_width=ff_width, dropout=inner_dropout, adapted=adapted
    )
    encode = partial(transformer.TransformerEncoder, layer)
    return _char_embed("char_transformer", {"config": layer}, encode, config)


def _char_embed(
    name: str,
    sizes: Mapping[str, Any],
    encode: Callable[[Weights], characters.Encode],
    config: SpellingConfig,
) -> EmbedModel:
    """Return an embedder by an encoder of characters.

    name: Of the function in `layers.characters` that makes the encoder from its sizes.
    encode: Makes the encoder as it predicts from its weights.
    """
    vocabulary = SpellingVocabulary(CHARACTER, digits=config.digits)
    predictor = partial(characters.CharacterFeatures, {CHARACTER: config.char_width}, encode, config.width)
    shim = TorchShim(partial(_build, name=name, sizes=sizes, config=config), predictor)
    return table_embedder("char_encoder", vocabulary, shim, width=config.width)


def _build(*, name: str, sizes: Mapping[str, Any], config: SpellingConfig, **heights: int) -> CharacterFeatures:
    from ...layers import characters as layers

    widths, dropped = {CHARACTER: config.char_width}, {CHARACTER: config.char_dropout}
    tables = build_tables(widths=widths, word_dropout=dropped, dropout=config.dropout, **heights)
    encoder = getattr(layers, name)(**sizes, width=config.width)
    return layers.CharacterFeatures(tables, encoder, dropout=config.dropout)


class SpellingVocabulary(Vocabulary):
    """The characters that tokens are made of. A key is a code point.

    name: The table.
    digits: Read every digit as 0.
    """

    def __init__(self, name: str, *, digits: bool) -> None:
        super().__init__((name,))
        self._digits = digits

    def spell(self, docs: list[Doc]) -> Spellings:
        """Spell the distinct tokens of the docs."""
        return spell(docs, digits=self._digits)

    def read(self, docs: list[Doc]) -> EmbedInput:
        """Return the keys of the characters of the distinct tokens, *Shape* [C], how many each has, and which each
        token is."""
        (name,) = self.tables
        spelled = self.spell(docs)
        return EmbedInput({name: spelled.keys}, (spelled.lengths, Indices(spelled.words)))
