"""What an entity rests on: how much less likely it is where one unit of the text is masked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IS_SPACE, LEMMA, MORPH, NORM, POS, SENT_START, TAG
from spacy.tokens import Doc
from thinc.api import Model

from ..models.bridge import torch_shim
from ..models.embed.tables import Vocabulary

UNKNOWN = "\U0010fffd"
"""The last code point for private use: a string that no table has a row for, and no lexicon a word with."""
REACH = 20
"""In a Doc longer than a window, how many units on each side of an entity are masked, one at a time."""
_LEAST = 1e-9
"""Probabilities closer than this to 0 or 1 count as this, so that a ratio of them is a number."""
_KEPT = [NORM, LEMMA, POS, TAG, MORPH, SENT_START]
"""Of the tokens that are not masked: what earlier components may have set and embedders may read."""


@dataclass(frozen=True)
class Mask:
    """What stands for a masked unit.

    text: of the token.
    says: what the embedders make of it, as a sentence.
    """

    text: str
    says: str

    def copies(self, doc: Doc, places: Iterable[int]) -> Iterator[Doc]:
        """Of a Doc whose tokens are the model's units, a copy for each place, in which the token there is masked."""
        words = [token.text for token in doc]
        spaces = [bool(token.whitespace_) for token in doc]
        attributes: Any = doc.to_array(_KEPT)
        for place in places:
            copy = Doc(doc.vocab, words=[*words[:place], self.text, *words[place + 1 :]], spaces=spaces)
            values = attributes.copy()
            values[place, :-1] = 0
            copy.from_array(_KEPT, values)
            yield copy


def mask_of(models: Sequence[Model[Any, Any]], *, one_character: bool) -> Mask:
    """The mask that fits the embedders of a recogniser: a transformer's own, or a string that training never showed.

    one_character: Whether it must be one, as where units are characters whatever the tokens are.
    """
    token = next((token for model in models for token in _mask_tokens(model)), None) if not one_character else None
    nodes = [node for model in models for node in model.walk()]
    read = []
    if token is not None:
        read.append(f"the transformer's own mask token, {token}")
    if any(isinstance(node.attrs.get("vocabulary"), Vocabulary) for node in nodes):
        read.append("the row that embedding tables keep for unknown strings, which word dropout trains")
    if any(node.name == "hashembed" for node in nodes):
        read.append("hashed rows that no string of training has, since spaCy's tables have none for the unknown")
    return Mask(token or UNKNOWN, f"Masked, it is read as {'; '.join(read) or 'a string that training never showed'}.")


def _mask_tokens(model: Model[Any, Any]) -> Iterator[str]:
    """Of the tokenizers of transformers: this package's embedder, and spacy-transformers' model."""
    # Torch's modules of other layers are not asked for: what predicts without torch goes on doing so.
    shims = (torch_shim(node) for node in model.walk() if node.name == "transformer_embed")
    readers = (getattr(shim.module, "reader", None) for shim in shims if shim.is_built)
    for holder in (model, *readers):
        tokenizer = getattr(holder, "tokenizer", None)
        if token := getattr(tokenizer, "mask_token", None):
            yield token


def places_near(doc: Doc, spans: Sequence[tuple[int, int]], reach: int) -> list[int]:
    """The tokens within reach of some spans. White space is left out: it says little, and no entity begins or ends
    with it, which a mask in its place might."""
    near = np.zeros(len(doc), dtype=bool)
    for start, end in spans:
        near[max(start - reach, 0) : end + reach] = True
    near &= doc.to_array(IS_SPACE) == 0
    return [int(place) for place in np.flatnonzero(near)]


def log_odds(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """`log(p / (1 - p))`"""
    p = np.clip(probabilities, _LEAST, 1.0 - _LEAST)
    odds: NDArray[np.float64] = np.log(p) - np.log1p(-p)
    return odds
