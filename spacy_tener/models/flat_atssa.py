"""FLAT-ATSSA (Hu et al., 2022): words fused into characters, then attention that selects its keys by a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.lattice import AtssaEncoder
from ..settings import AtssaConfig
from .embed.char import build_char_embed
from .embed.lexicon import LexiconModel
from .lattice import lattice_layer
from .settings import expand_config
from .shims.bridge import EmbedModel

if TYPE_CHECKING:
    from torch import nn


@expand_config()
def build_flat_atssa(
    embed: EmbedModel | None = None, words: LexiconModel | None = None, *, config: AtssaConfig
) -> EmbedModel:
    """FLAT-ATSSA, whole: characters and words embedded, words fused into the characters that they cover, and layers of
    selective self-attention over the characters.

    Registered as `spacy_tener.FLAT_ATSSA.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    """
    streams = [embed or build_char_embed()]
    return lattice_layer("flat_atssa", _encoder, AtssaEncoder, config, streams=streams, words=words)


def _encoder(config: AtssaConfig, *widths: int) -> nn.Module:
    from ..layers.lattice import AtssaEncoder

    return AtssaEncoder(config, *widths)
