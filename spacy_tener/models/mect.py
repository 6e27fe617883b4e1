"""MECT (Wu et al., 2021): characters and words, the components of characters, and attention across the two."""

from __future__ import annotations

from functools import partial
from typing import Literal

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..layers.lattice.mect import MectConfig, MectEncoder
from .embed.char import build_char_embed
from .embed.component import build_component_embed
from .embed.lexicon import LexiconModel, build_lexicon_embed
from .lattice import lattice_layer


def build_mect(
    embed: Model[list[Doc], list[Floats2d]] | None = None,
    words: LexiconModel | None = None,
    components: Model[list[Doc], list[Floats2d]] | None = None,
    width: int = 128,
    layers: int = 1,
    heads: int = 8,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float = 0.0,
    streams: Literal["cross", "parallel", "single"] = "cross",
    random_attention: int = 320,
    norm: Literal["post", "pre"] = "post",
) -> Model[list[Doc], list[Floats2d]]:
    """MECT, whole: characters and words as one stream, the components of characters as another, attention in which each
    stream is asked by the other, both joined and characters kept.

    Registered as `spacy_tener.MECT.v1`. The defaults are the released code's for Weibo, in the paper's form.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    components (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of what characters are made of;
        `spacy_tener.ComponentEmbed.v1` if there is none.
    width (int): Width of each stream and of the output; each head has its share of it.
    layers (int): Number of layers.
    heads (int): Number of heads.
    ff_width (Optional[int]): Width inside the feed-forwards; three times the width if there is none.
    dropout (float): Inside the feed-forwards.
    attention_dropout (float): On the attention maps.
    streams (str): Two streams, each asked by the other (`cross`, MECT) or each by itself (`parallel`, the paper's
        experiment B); or one, of characters joined with their components (`single`, experiment A).
    random_attention (int): How many places of a sentence, its characters' and then its words', have learned numbers
        added to attention scores for each pair of them; 0 for none, the paper's "- RA". Places behind these have
        nothing added, so that sentences may be longer.
    norm (str): Normalise after each sum (`post`, as the paper), or before each part (`pre`).
    """
    config = MectConfig(
        width=width,
        n_layers=layers,
        n_heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        streams=streams,
        random_attention=random_attention,
        norm=norm,
    )
    return lattice_layer(
        "mect",
        partial(_build, config=config),
        streams=[embed or build_char_embed(), components or build_component_embed()],
        words=words or build_lexicon_embed(),
        width=width,
    )


def _build(*, nI0: int, nI1: int, nW: int, nO: int, config: MectConfig) -> MectEncoder:
    return MectEncoder(config, char_width=nI0, component_width=nI1, word_width=nW)
