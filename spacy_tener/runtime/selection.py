"""Attention to selected keys only, as in `layers.selection`."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..batching.tournament import kth_by_merging
from ..settings import AtssaConfig
from ..types import BoolArray, FloatArray
from .attention import AdaptedAttention, Heads, Rectangle, attend, exponentials
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
        """*Shape: [n L, d]*"""
        heads = self.heads(x, rectangle)
        if self.by_threshold:
            thresholds = self.thresholds(x, rectangle).reshape(*rectangle.shape, self.n_heads)
            heads = Heads(heads.q, heads.k, heads.v, thresholds.transpose(0, 2, 1))
        return attend(heads, rectangle.real, partial(kept_exponentials, k=self.k))

    def thresholds(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """Return T (eq. 7). *Shape: [n L, h]*"""
        if self.threshold is None:
            return np.zeros((len(x), self.n_heads), np.float32)
        mean = rectangle.means(x)
        return self.threshold(np.concatenate((x, mean, x * mean, x - mean), axis=1))


def kept_exponentials(
    scores: FloatArray, thresholds: FloatArray | None, real: BoolArray | None, *, k: int
) -> FloatArray:
    """Return the exponentials of scores that reach their query's threshold (eq. 8), and 0 for the others."""
    if real is not None:
        scores += np.where(real, np.float32(0.0), np.float32(-np.inf))[:, None, :, None]
    bound = np.full((1, 1, 1, 1), np.inf, np.float32) if thresholds is None else thresholds[:, :, None]
    if k:
        # With fewer than k keys all are kept, and the floor stays finite.
        floor = np.maximum(kth_largest(scores, k), _LOWEST)
        bound = np.minimum(floor, bound)
    kept = scores >= bound
    if real is not None:
        # Padded keys need no -inf: their values are zeros.
        np.maximum(scores, np.where(real, np.float32(-np.inf), np.float32(0.0))[:, None, :, None], out=scores)
    weights = exponentials(scores, real=real)
    weights *= kept
    return weights


def kth_largest(x: FloatArray, k: int) -> FloatArray:
    """Return the k-th largest number of each column, -inf if there are fewer. Equal numbers count separately.

    x: *Shape: [.., L, T]*. Returns *Shape: [.., 1, T]*
    """
    if k > x.shape[-2]:
        return np.full_like(x[..., :1, :], -np.inf)
    kth: FloatArray = kth_by_merging(x, k, np.minimum, np.maximum)
    return kth
