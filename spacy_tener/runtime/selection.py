"""Attention to selected keys only, as in `layers.selection`."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..batching.tournament import kth_by_merging
from ..settings import AtssaConfig
from ..types import FloatArray
from .attention import AdaptedAttention, Rectangle, attend
from .dense import Linear
from .weights import Weights

_LOWEST = float(np.finfo(np.float32).min) / 2


class SelectiveAttention(AdaptedAttention):
    """TENER's attention with projected keys, of which each query selects a few."""

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        super().__init__(config, weights, key_projection=True)
        self.by_threshold = config.selection == "adaptive"
        self.k = config.k
        self.threshold = None if weights.get("threshold.weight") is None else Linear(weights.part("threshold"))

    def __call__(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """*Shape:* (slots, width) to `(slots, width)`"""
        thresholds = None
        if self.by_threshold:
            thresholds = self.thresholds(x, rectangle).reshape(*rectangle.shape, self.n_heads).transpose(0, 2, 1)
        return attend(*self.heads(x, rectangle), rectangle.real, partial(select, k=self.k), thresholds)

    def thresholds(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """Return T (eq. 7). *Shape:* (slots, heads)"""
        if self.threshold is None:
            return np.zeros((len(x), self.n_heads), np.float32)
        mean = rectangle.means(x)
        return self.threshold(np.concatenate((x, mean, x * mean, x - mean), axis=1))


def select(scores: FloatArray, padding: FloatArray | None, thresholds: FloatArray | None, *, k: int) -> FloatArray:
    """Return the softmax over the keys whose scores reach their query's threshold (eq. 8), up to a factor per query,
    and 0 for other keys.

    A query that selects no key gets zeros.
    """
    if padding is not None:
        scores += padding
    bound = np.full((1, 1, 1, 1), np.inf, np.float32) if thresholds is None else thresholds[..., None]
    if k:
        # With fewer than k keys all are selected, and the floor stays finite.
        bound = np.minimum(np.maximum(kth_largest(scores, k), _LOWEST), bound)
    is_selected = scores >= bound
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights *= is_selected
    return weights


def kth_largest(x: FloatArray, k: int) -> FloatArray:
    """Return the k-th largest number of each row, -inf if there are fewer. Equal numbers count separately.

    x (FloatArray): *Shape:* (.., rows, columns)
    RETURNS (FloatArray): *Shape:* (.., rows, 1)
    """
    if k > x.shape[-1]:
        return np.full_like(x[..., :1], -np.inf)
    # In columns, of which each step treats all at once.
    columns = np.ascontiguousarray(x.swapaxes(-1, -2))
    kth: FloatArray = kth_by_merging(columns, k, np.minimum, np.maximum)
    return kth.swapaxes(-1, -2)
