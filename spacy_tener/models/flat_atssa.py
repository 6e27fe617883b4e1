"""FLAT-ATSSA (Hu et al., 2022): words fused into characters, then attention that selects its keys by a threshold."""

from __future__ import annotations

from functools import partial
from typing import Literal

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..layers.lattice.atssa import AtssaConfig, AtssaEncoder
from .embed.char import build_char_embed
from .embed.lexicon import LexiconModel, build_lexicon_embed
from .lattice import lattice_layer


def build_flat_atssa(
    embed: Model[list[Doc], list[Floats2d]] | None = None,
    words: LexiconModel | None = None,
    width: int = 128,
    layers: int = 1,
    heads: int = 8,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float = 0.0,
    selection: Literal["adaptive", "top_k", "none"] = "adaptive",
    k: int = 3,
    alpha: float = 50.0,
    tau: float = 1.0,
    penalty: float = 4e-6,
    threshold: Literal["adaptive", "fixed"] = "adaptive",
    fusion_width: int | None = None,
    norm: Literal["post", "pre"] = "post",
) -> Model[list[Doc], list[Floats2d]]:
    """FLAT-ATSSA, whole: characters and words embedded, words fused into the characters that they cover, and layers of
    selective self-attention over the characters.

    Registered as `spacy_tener.FLAT_ATSSA.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder of characters; `spacy_tener.CharEmbed.v1` if there
        is none.
    words (Optional[Model[List[Doc], LatticeWords]]): The embedder of words; `spacy_tener.LexiconEmbed.v1`, which has
        jieba's dictionary, if there is none.
    width (int): Width of the output; each head has its share of it.
    layers (int): Number of context layers.
    heads (int): Number of heads, of the context layers and of the fusion.
    ff_width (Optional[int]): Width inside the feed-forward; four times the width if there is none.
    dropout (float): Inside the feed-forward.
    attention_dropout (float): On the attention map.
    selection (str): Which keys a query keeps: those above its threshold (`adaptive`, ATSSA), the `k` largest (`top_k`,
        the explicit sparse transformer), or all (`none`, the paper's "-Selective SA").
    k (int): With a threshold, at least so many keys are kept; 0 for the paper's "-top-k". With `top_k`, just so
        many.
    alpha (float): How steep the step at the threshold is in training; 1 for the paper's "-AF".
    tau (float): Temperature of the Gumbel-softmax in training.
    penalty (float): Weight of the number of keys kept, a mean over the sentences, in the loss.
    threshold (str): Made for each query and head from the sentence (`adaptive`), or `fixed` at 0, the paper's "-DT".
    fusion_width (Optional[int]): Width of the words' part of a fused character; `width` if there is none.
    norm (str): Normalise after each sum (`post`, as the paper), or before each part (`pre`).
    """
    config = AtssaConfig(
        width=width,
        n_layers=layers,
        n_heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        selection=selection,
        k=k,
        alpha=alpha,
        tau=tau,
        penalty=penalty,
        threshold=threshold,
        fusion_width=fusion_width,
        norm=norm,
    )
    return lattice_layer(
        "flat_atssa",
        partial(_build, config=config),
        streams=[embed or build_char_embed()],
        words=words or build_lexicon_embed(),
        width=width,
    )


def _build(*, nI0: int, nW: int, nO: int, config: AtssaConfig) -> AtssaEncoder:
    return AtssaEncoder(config, char_width=nI0, word_width=nW)
