"""Divide a corpus into folds for cross-validation.

The command `review` trains a model for each fold. The command `extend` uses one fold as the development set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from spacy.tokens import Doc

from ..errors import UserError, pluralize


def assign_folds(docs: Sequence[Doc], folds: int) -> list[int]:
    """Assign each Doc to a fold.

    Duplicate texts are assigned to the same fold, so that no model is evaluated on texts that it was trained on. The
    assignment doesn't depend on the order of the Docs: texts are sorted by a hash, and assigned to the folds in turn.

    docs (Sequence[Doc]): Docs in the corpus.
    folds (int): Number of folds.
    RETURNS (list[int]): Fold of each Doc, from 0 to `folds - 1`.
    """
    names = [text_key(doc.text) for doc in docs]
    order = sorted(set(names), key=lambda name: hashlib.blake2b(name.encode("utf8", "surrogatepass")).digest())
    if len(order) < folds:
        fix = f"Use at most --folds {len(order)}." if len(order) > 1 else "Use a corpus with more texts."
        raise UserError(f"{pluralize(len(order), 'different text')} cannot be divided into {folds} folds", fix)
    fold = {name: index % folds for index, name in enumerate(order)}
    return [fold[name] for name in names]


def text_key(text: str) -> str:
    """Return a text without whitespace, as a key to detect duplicates."""
    return "".join(text.split())
