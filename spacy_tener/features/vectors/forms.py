"""Pretrained rows brought into the form that a model begins with."""

from __future__ import annotations

import numpy as np

from ...types import FloatArray

_LEAST = 1e-6


def prepared(table: FloatArray, *, whiten: bool, unit_length: bool) -> FloatArray:
    """The rows whitened, scaled to unit length, both in this order, or as they are. *Shape* [n, width]"""
    if whiten:
        table = whitened(table)
    if unit_length:
        # Random rows have this length on average. A row of zeros stays one.
        table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return table


def whitened(table: FloatArray) -> FloatArray:
    """The rows without what they have in common: their mean is taken off, and they vary equally in every direction.

    Vectors from raw text share a mean, and a few directions in which most of their variance lies, which say how
    frequent a string is and what kind of text it comes from. Strings of one corpus all lie close together along them.

    table: *Shape* [n, width]. RETURNS: *Shape* [n, width]
    """
    if not len(table):
        return table
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(table))
    # Where nothing varies there is nothing to be scaled, as in fewer rows than columns.
    kept = variances > _LEAST * max(variances[-1], np.finfo(np.float64).tiny)
    scales = np.where(kept, 1.0 / np.sqrt(np.where(kept, variances, 1.0)), 0.0)
    result: FloatArray = (centred @ directions * scales @ directions.T).astype(table.dtype)
    return result
