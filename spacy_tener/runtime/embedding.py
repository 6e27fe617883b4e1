"""Rows of embedding tables, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..types import FloatArray, IntArray
from .weights import Weights


class EmbeddingTables:
    """names: The tables, in their order."""

    def __init__(self, names: Sequence[str], weights: Weights) -> None:
        self.tables = [weights[f"tables.{name}"] for name in names]

    def __call__(self, *rows: IntArray) -> FloatArray:
        """*Shape* one [N] per table -> [N, sum of widths]"""
        parts = [table[ids] for table, ids in zip(self.tables, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
