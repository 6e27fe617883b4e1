"""Division of a corpus into folds, with equal texts in the same fold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from spacy.tokens import Doc

from ..errors import RemedyError, counted


def assign_folds(docs: Sequence[Doc], folds: int) -> list[int]:
    """Return the fold of each Doc, 0 to folds - 1. It is deterministic, and equal texts are in the same fold."""
    names = [text_key(doc.text) for doc in docs]
    order = sorted(set(names), key=lambda name: hashlib.blake2b(name.encode("utf8", "surrogatepass")).digest())
    if len(order) < folds:
        remedy = f"Choose at most --folds {len(order)}." if len(order) > 1 else "Name a corpus with more Docs."
        raise RemedyError(f"{counted(len(order), 'different text')} cannot be divided into {folds} folds", remedy)
    fold = {name: index % folds for index, name in enumerate(order)}
    return [fold[name] for name in names]


def text_key(text: str) -> str:
    """Return a text without white space. Texts with the same key count as equal."""
    return "".join(text.split())
