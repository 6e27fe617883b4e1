"""Relation layer of the gated relation network; see `layers.relation` for the equations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..settings import EXPONENT_LIMIT, RelationKind
from ..types import FloatArray, IntArray
from .dense import sigmoid

TILE = 1 << 17
"""Maximum number of gates that are computed at once."""
TOKENS_AT_ONCE = 512
"""Maximum number of tokens whose scalar gates are computed at once."""


def relate(kind: RelationKind, a: FloatArray, b: FloatArray, x: FloatArray, lengths: IntArray) -> FloatArray:
    """Return r_i of every token (eq. 5 to 7). a, b: *Shape:* (tokens, gates); x: *Shape:* (tokens, width). Returns
    *Shape:* (tokens, width)
    """
    related = np.empty_like(x)
    if kind == "gated":
        a, b = (np.exp(np.clip(part, -EXPONENT_LIMIT, EXPONENT_LIMIT)) for part in (-a, b))
    relation = {"gated": _gated, "mean": _mean, "attention": _attention}[kind]
    for begin, end in pairwise([0, *np.cumsum(lengths).tolist()]):
        if begin < end:
            relation(a[begin:end], b[begin:end], x[begin:end], related[begin:end])
    return related


def _mean(a: FloatArray, b: FloatArray, x: FloatArray, out: FloatArray) -> None:
    np.add(a, b.mean(axis=0), out=out)


def _attention(a: FloatArray, b: FloatArray, x: FloatArray, out: FloatArray) -> None:
    for begin in range(0, len(x), TOKENS_AT_ONCE):
        gates = sigmoid(a[begin : begin + TOKENS_AT_ONCE] + b.T)
        np.matmul(gates, x, out=out[begin : begin + TOKENS_AT_ONCE])
    out /= len(x)


def _gated(u: FloatArray, w: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """Write the mean over j of `sigma(a_i + b_j) x_j = w_j x_j / (u_i + w_j)`, with `u_i = e^(-a_i)` and
    `w_j = e^(b_j)`, tile by tile."""
    length, width = x.shape
    weighted = w * x
    columns = min(length, max(1, int((TILE // width) ** 0.5)))
    rows = max(1, TILE // (columns * width))
    out[:] = 0.0
    space = np.empty(rows * columns * width, np.float32)
    for i in range(0, length, rows):
        for j in range(0, length, columns):
            u_i, w_j = u[i : i + rows, None], w[j : j + columns]
            terms = space[: len(u_i) * w_j.size].reshape(len(u_i), len(w_j), width)
            np.add(u_i, w_j, out=terms)
            np.divide(weighted[j : j + columns], terms, out=terms)
            out[i : i + rows] += terms.sum(axis=1)
    out /= length
