"""FLAT (Li et al., 2020): characters and the words of a lexicon in one sequence of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.lattice import FlatEncoder
from ..settings import FlatConfig
from .embed.char import build_char_embed
from .embed.lexicon import LexiconModel
from .lattice import lattice_layer
from .settings import expand_config
from .shims.bridge import EmbedModel

if TYPE_CHECKING:
    from torch import nn


@expand_config()
def build_flat(embed: EmbedModel | None = None, words: LexiconModel | None = None, *, config: FlatConfig) -> EmbedModel:
    """FLAT, whole: characters and words embedded, one transformer over both with positions of spans, characters kept.

    Registered as `spacy_tener.FLAT.v1`. The defaults are the released code's for Weibo, in the paper's form: with
    residuals, and with all four distances.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    """
    streams = [embed or build_char_embed()]
    return lattice_layer("flat", _encoder, FlatEncoder, config, streams=streams, words=words)


def _encoder(config: FlatConfig, *widths: int) -> nn.Module:
    from ..layers.lattice import FlatEncoder

    return FlatEncoder(config, *widths)
