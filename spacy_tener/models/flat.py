"""FLAT (Li et al., 2020): characters and the words of a lexicon in one sequence of spans."""

from __future__ import annotations

from functools import partial
from typing import Literal

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..layers.lattice.flat import FlatConfig, FlatEncoder
from .embed.char import build_char_embed
from .embed.lexicon import LexiconModel, build_lexicon_embed
from .lattice import lattice_layer


def build_flat(
    embed: Model[list[Doc], list[Floats2d]] | None = None,
    words: LexiconModel | None = None,
    width: int = 128,
    layers: int = 1,
    heads: int = 8,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float = 0.0,
    distances: list[Literal["hh", "ht", "th", "tt"]] | None = None,
    scaled: bool = False,
    norm: Literal["post", "pre"] = "post",
) -> Model[list[Doc], list[Floats2d]]:
    """FLAT, whole: characters and words embedded, one transformer over both with positions of spans, characters kept.

    Registered as `spacy_tener.FLAT.v1`. The defaults are the released code's for Weibo, in the paper's form: with
    residuals, and with all four distances.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    width (int): Width of the output; each head has its share of it.
    layers (int): Number of layers.
    heads (int): Number of heads.
    ff_width (Optional[int]): Width inside the feed-forward; three times the width if there is none.
    dropout (float): Inside the feed-forward.
    attention_dropout (float): On the attention map.
    distances (Optional[List[str]]): Which distances between two spans the attention knows, of `hh`, `ht`, `th` and `tt`
        (head to head, head to tail, ..); all if there is none. The released code uses `hh` and `tt`.
    scaled (bool): Divide attention scores by the root of the head's width.
    norm (str): Normalise after each sum (`post`, as the paper), or before each part (`pre`).
    """
    config = FlatConfig(
        width=width,
        n_layers=layers,
        n_heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        distances=tuple(distances or ("hh", "ht", "th", "tt")),
        scaled=scaled,
        norm=norm,
    )
    return lattice_layer(
        "flat",
        partial(_build, config=config),
        streams=[embed or build_char_embed()],
        words=words or build_lexicon_embed(),
        width=width,
    )


def _build(*, nI0: int, nW: int, nO: int, config: FlatConfig) -> FlatEncoder:
    return FlatEncoder(config, char_width=nI0, word_width=nW)
