"""Rows of embedding tables, side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..types import FloatArray, IntArray
from .weights import Weights


class EmbeddingTables:
    """widths: Of the tables, in their order."""

    def __init__(self, widths: Mapping[str, int], weights: Weights) -> None:
        self.tables = [weights.shaped(f"tables.{name}", None, width) for name, width in widths.items()]

    def __call__(self, *rows: IntArray) -> FloatArray:
        """*Shape* one [N] per table -> [N, sum of widths]"""
        # Rows may be kept in half the bytes.
        parts = [table[ids].astype(np.float32, copy=False) for table, ids in zip(self.tables, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
