"""The FLAT-ATSSA encoder in NumPy, for prediction on a CPU without torch.

Each class corresponds to the class with the same name in `atssa_torch` or `selection_torch`. It is created from the
torch module's weights, and returns the same output as the module in evaluation mode. The tests in
`tests/architectures/test_parity.py` compare the outputs.
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
    """Multi-head attention from each character to the lexicon words that contain it. See `atssa_torch.WordFusion`.

    n_heads (int): Number of attention heads.
    width (int): Output width.
    weights (Weights): The torch module's weights.
    """

    def __init__(self, n_heads: int, width: int, weights: Weights) -> None:
        self.query = Linear(weights.part("query"))
        self.key_and_value = Linear(weights.part("key"), weights.part("value"))
        self.from_head, self.from_tail = Linear(weights.part("from_head")), Linear(weights.part("from_tail"))
        self.u, self.v = (weights.shaped(name, n_heads, width // n_heads) for name in ("u", "v"))

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """Compute the attention output for each character. For characters that no word contains, the output is zero.

        chars (FloatArray): Character embeddings. *Shape:* (characters, character width)
        words (FloatArray): Word embeddings. *Shape:* (words, word width)
        lattice (Lattice): Word positions.
        RETURNS (FloatArray): *Shape:* (characters, width)
        """
        fused = np.zeros((len(chars), self.u.size), np.float32)
        if not len(words):
            return fused
        covers = Covers.of(lattice)
        # `reduceat` reduces consecutive segments. Sort the pairs by character, so that each softmax is one segment.
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
        """Compute the attention score `(q + u) . k + (q + v) . R` for each character and each word that contains it.

        See eq. 5 of Hu et al. (2022), where `R` is the relative position embedding.

        query (FloatArray): Projected characters. *Shape:* (characters, heads, head width)
        key (FloatArray): Projected words. *Shape:* (words, heads, head width)
        covers (Covers): The pairs of a character and a word.
        order (IntArray): The order in which the pairs are returned, as indices into `covers`. *Shape:* (pairs,)
        RETURNS (FloatArray): *Shape:* (pairs, heads)
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


# A finite number that is smaller than any attention score. It replaces thresholds of -inf, which padded keys would
# reach because their score is -inf.
_LOWEST = float(np.finfo(np.float32).min) / 2


class SelectiveAttention(AdaptedAttention):
    """Selective self-attention: each query only attends to keys whose score reaches the query's threshold.

    Relative positions are encoded as in TENER. See `selection_torch.SelectiveAttention`.

    config (AtssaConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
    """

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        super().__init__(config, weights, key_projection=True)
        self.k = config.k
        self.threshold = Linear(weights.part("threshold"))

    def __call__(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute self-attention for a padded batch of sequences. *Shape:* (padded tokens, width)"""
        thresholds = self.thresholds(x, bucket).reshape(*bucket.shape, self.n_heads).transpose(0, 2, 1)
        return attend(*self.heads(x, bucket), bucket.is_real, partial(select, k=self.k), thresholds)

    def thresholds(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute the threshold T for each query (eq. 7 of Hu et al., 2022). *Shape:* (padded tokens, heads)"""
        mean = bucket.means(x)
        return self.threshold(np.concatenate((x, mean, x * mean, x - mean), axis=1))


def select(scores: FloatArray, padding: FloatArray | None, thresholds: Any, *, k: int) -> FloatArray:
    """Compute unnormalized attention weights in which only the selected keys have a weight.

    A key is selected if its score reaches the query's threshold, or if it is among the k largest scores (eq. 8 of
    Hu et al., 2022). A selected key has a weight proportional to the exponential of its score. Any other key has the
    weight 0. With k = 0, all weights of a query can be 0.

    scores (FloatArray): Attention scores, which are overwritten. *Shape:* (sequences, heads, queries, keys)
    padding (Optional[FloatArray]): -inf for padded keys, 0 for other keys. *Shape:* (sequences, 1, 1, keys)
    thresholds (FloatArray): Threshold for each query. *Shape:* (sequences, heads, queries)
    k (int): Minimum number of selected keys.
    RETURNS (FloatArray): *Shape:* (sequences, heads, queries, keys)
    """
    if padding is not None:
        scores += padding
    bound = thresholds[..., None]
    if k:
        # With fewer than k keys, the k-th largest score is -inf. Replace it by a finite number, so that padded keys,
        # whose score is -inf, are not selected.
        bound = np.minimum(np.maximum(kth_largest(scores, k), _LOWEST), bound)
    is_selected = scores >= bound
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights *= is_selected
    return weights


def kth_largest(x: FloatArray, k: int) -> FloatArray:
    """Return the k-th largest number in each row of an array, or -inf if the row has fewer than k numbers.

    Duplicates count separately: the second largest number in `[5, 5, 1]` is 5.

    *Shape:* (..., keys) to (..., 1)
    """
    if k > x.shape[-1]:
        return np.full_like(x[..., :1], -np.inf)
    ascending: FloatArray = np.partition(x, -k, axis=-1)
    return ascending[..., -k, None]


class AtssaEncoder:
    """The FLAT-ATSSA encoder. See `atssa_torch.AtssaEncoder`.

    config (AtssaConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
    """

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        self.config = config
        self.fusion = WordFusion(config.heads, config.width, weights.part("fusion"))
        self.input = Linear(weights.part("input"))
        attention = SelectiveAttention if config.selects else partial(AdaptedAttention, key_projection=True)
        layers = [weights.part("layers", i) for i in range(config.layers)]
        self.layers = [TransformerLayer(config, attention(config, layer.part("attention")), layer) for layer in layers]

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """Encode the characters in a batch of sentences.

        chars (FloatArray): Character embeddings. *Shape:* (characters, character width)
        words (FloatArray): Word embeddings. *Shape:* (words, word width)
        lattice (Lattice): Word positions.
        RETURNS (FloatArray): Character hidden states. *Shape:* (characters, width)
        """
        x = np.concatenate((chars, self.fusion(chars, words, lattice)), axis=1)
        return compute_in_buckets(lattice.lengths, x, self.config.width, self._encode)

    def _encode(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        x = self.input(x)
        for layer in self.layers:
            x = layer(x, bucket)
        return x
