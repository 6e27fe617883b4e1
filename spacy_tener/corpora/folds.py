"""Divide a corpus into folds for cross-validation. Duplicate texts are assigned to the same fold.

The command `review` trains one model per fold, and `extend` uses one fold as the development set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from spacy.tokens import Doc

from ..errors import RemedyError, counted


def assign_folds(docs: Sequence[Doc], folds: int) -> list[int]:
    """Return the index of the fold for each Doc, from 0 to `folds - 1`.

    The result depends only on the set of texts, not on their order: texts are sorted by a hash and dealt out in turn.
    Duplicate texts are in the same fold, so that a model is never evaluated on texts that it was trained on.
    """
    names = [text_key(doc.text) for doc in docs]
    order = sorted(set(names), key=lambda name: hashlib.blake2b(name.encode("utf8", "surrogatepass")).digest())
    if len(order) < folds:
        remedy = f"Use at most --folds {len(order)}." if len(order) > 1 else "Use a corpus with more Docs."
        raise RemedyError(f"{counted(len(order), 'different text')} cannot be divided into {folds} folds", remedy)
    fold = {name: index % folds for index, name in enumerate(order)}
    return [fold[name] for name in names]


def text_key(text: str) -> str:
    """Return the text without whitespace. Texts with the same key are treated as duplicates."""
    return "".join(text.split())
