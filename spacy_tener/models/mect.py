"""MECT (Wu et al., 2021): characters and words, the radicals of characters, and attention across the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.lattice import MectEncoder
from ..settings import MectConfig
from .embed.char import build_char_embed
from .embed.lexicon import LexiconModel
from .embed.radical import build_radical_embed
from .lattice import lattice_layer
from .settings import expand_config
from .shims.bridge import EmbedModel

if TYPE_CHECKING:
    from torch import nn


@expand_config()
def build_mect(
    embed: EmbedModel | None = None,
    words: LexiconModel | None = None,
    radicals: EmbedModel | None = None,
    *,
    config: MectConfig,
) -> EmbedModel:
    """MECT, whole: characters and words as one stream, the radicals of characters as another, attention in which each
    stream is asked by the other, both joined and characters kept.

    Registered as `spacy_tener.MECT.v1`. The defaults are the released code's for Weibo, in the paper's form.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    radicals (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of what characters are made of;
        `spacy_tener.RadicalEmbed.v1` if there is none.
    """
    streams = [embed or build_char_embed(), radicals or build_radical_embed()]
    return lattice_layer("mect", _encoder, MectEncoder, config, streams=streams, words=words)


def _encoder(config: MectConfig, *widths: int) -> nn.Module:
    from ..layers.lattice import MectEncoder

    return MectEncoder(config, *widths)
