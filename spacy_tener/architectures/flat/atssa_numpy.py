"""The NumPy implementation of FLAT-ATSSA's encoder, for prediction on a CPU without torch.

Each class computes the same as the class of this name in `atssa_torch` or `selection_torch`, in evaluation mode and
from the same weights. `tests/architectures/test_parity.py` compares both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...embedders.lattice import Lattice
from ...nn.attention_numpy import PaddedBucket, attend, compute_in_buckets, interleave, sinusoids
from ...nn.layers_numpy import Linear, TransformerLayer, Weights
from ...types import FloatArray, IntArray
from ..tener.tener_numpy import AdaptedAttention
from .flat_config import AtssaConfig
from .plans import Covers


class WordFusion:
    """Multi-head attention from each character to the words that contain it (eq. 13 to 15). See `atssa_torch`.

    n_heads (int): Number of heads.
    width (int): Output width.
    weights (Weights): The module's weights.
    """

    def __init__(self, n_heads: int, width: int, weights: Weights) -> None:
        self.query = Linear(weights.part("query"))
        self.key_and_value = Linear(weights.part("key"), weights.part("value"))
        self.from_head, self.from_tail = Linear(weights.part("from_head")), Linear(weights.part("from_tail"))
        self.u, self.v = (weights.shaped(name, n_heads, width // n_heads) for name in ("u", "v"))

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """Compute the attention output of each character. It is zero for characters without a word.

        chars (FloatArray): Character embeddings. *Shape:* (characters, character width)
        words (FloatArray): Word embeddings. *Shape:* (words, word width)
        lattice (Lattice): Word positions.
        RETURNS (FloatArray): *Shape:* (characters, width)
        """
        fused = np.zeros((len(chars), self.u.size), np.float32)
        if not len(words):
            return fused
        covers = Covers.of(lattice)
        # The pairs are sorted by character, so that `reduceat` computes the maximum and the sums of each softmax.
        order = np.argsort(covers.characters, kind="stable")
        characters = covers.characters[order]
        begins = np.flatnonzero(np.diff(characters, prepend=-1))
        shape = -1, *self.u.shape
        key, value = (part.reshape(shape) for part in np.split(self.key_and_value(words), 2, axis=1))
        weights = self._scores(self.query(chars).reshape(shape), key, covers, order)
        weights -= np.repeat(np.maximum.reduceat(weights, begins), np.diff(begins, append=len(order)), axis=0)
        np.exp(weights, out=weights)
        total = np.add.reduceat(weights, begins)
        weighted = value[covers.words[order]]
        weighted *= weights[..., None]
        sums = np.add.reduceat(weighted, begins)
        sums /= total[..., None]
        fused[characters[begins]] = sums.reshape(len(sums), -1)
        return fused

    def _scores(self, query: FloatArray, key: FloatArray, covers: Covers, order: IntArray) -> FloatArray:
        """Compute the scores `(q + u) . k + (q + v) . R` (eq. 5). *Shape:* (pairs, heads)

        order (IntArray): The order of the pairs. *Shape:* (pairs,)
        """
        sin, cos = sinusoids(covers.longest, self.u.size)
        from_head, from_tail = (
            table.reshape(-1, *self.u.shape)
            for table in (self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos)))
        )
        relative = from_head[covers.from_head[order]]
        relative += from_tail[covers.from_tail[order]]
        k = key[covers.words[order]]
        q = query[covers.characters[order]]
        scores: FloatArray = np.einsum("phd,phd->ph", q + self.u, k)
        scores += np.einsum("phd,phd->ph", q + self.v, relative)
        return scores


# A finite score below all others, so that a threshold is never -inf.
_LOWEST = float(np.finfo(np.float32).min) / 2


class SelectiveAttention(AdaptedAttention):
    """TENER's attention with projected keys, where each query attends to the keys above its threshold (eq. 7, 8).

    config (AtssaConfig): Sizes and options.
    weights (Weights): The module's weights.
    """

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        super().__init__(config, weights, key_projection=True)
        self.k = config.k
        self.threshold = Linear(weights.part("threshold"))

    def __call__(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute attention within each sequence in a bucket. *Shape:* (padded tokens, width)"""
        thresholds = self.thresholds(x, bucket).reshape(*bucket.shape, self.n_heads).transpose(0, 2, 1)
        return attend(*self.heads(x, bucket), bucket.is_real, partial(select, k=self.k), thresholds)

    def thresholds(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute the thresholds T (eq. 7). *Shape:* (padded tokens, heads)"""
        mean = bucket.means(x)
        return self.threshold(np.concatenate((x, mean, x * mean, x - mean), axis=1))


def select(scores: FloatArray, padding: FloatArray | None, thresholds: Any, *, k: int) -> FloatArray:
    """Compute unnormalized attention weights: the exponentials of the scores that reach the query's threshold (eq. 8),
    and 0 for other keys. See `attention_numpy.Weighting`.

    If no key reaches the threshold, all weights are 0.

    scores (FloatArray): *Shape:* (sequences, heads, queries, keys)
    padding (Optional[FloatArray]): -inf for padded keys, 0 for others. *Shape:* (sequences, 1, 1, keys)
    thresholds (FloatArray): T of each query (eq. 7). *Shape:* (sequences, heads, queries)
    k (int): Minimum number of keys that are selected.
    """
    if padding is not None:
        scores += padding
    bound = thresholds[..., None]
    if k:
        # In a sequence with fewer than k keys, the k-th largest score is -inf. A finite bound excludes padding.
        bound = np.minimum(np.maximum(kth_largest(scores, k), _LOWEST), bound)
    is_selected = scores >= bound
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights *= is_selected
    return weights


def kth_largest(x: FloatArray, k: int) -> FloatArray:
    """Return the k-th largest number of each row, or -inf if there are fewer numbers. Equal numbers are counted
    separately.

    *Shape:* (.., keys) to (.., 1)
    """
    if k > x.shape[-1]:
        return np.full_like(x[..., :1], -np.inf)
    ascending: FloatArray = np.partition(x, -k, axis=-1)
    return ascending[..., -k, None]


class AtssaEncoder:
    """FLAT-ATSSA's encoder: word fusion, a linear layer, and transformer layers over the characters.

    config (AtssaConfig): Sizes and options.
    weights (Weights): The module's weights.
    """

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        self.config = config
        self.fusion = WordFusion(config.heads, config.width, weights.part("fusion"))
        self.input = Linear(weights.part("input"))
        attention = SelectiveAttention if config.selects else partial(AdaptedAttention, key_projection=True)
        layers = [weights.part("layers", i) for i in range(config.layers)]
        self.layers = [TransformerLayer(config, attention(config, layer.part("attention")), layer) for layer in layers]

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """Encode all characters.

        chars (FloatArray): Character embeddings. *Shape:* (characters, character width)
        words (FloatArray): Word embeddings. *Shape:* (words, word width)
        lattice (Lattice): Word positions.
        RETURNS (FloatArray): *Shape:* (characters, width)
        """
        x = np.concatenate((chars, self.fusion(chars, words, lattice)), axis=1)
        return compute_in_buckets(lattice.lengths, x, self.config.width, self._encode)

    def _encode(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        x = self.input(x)
        for layer in self.layers:
            x = layer(x, bucket)
        return x
