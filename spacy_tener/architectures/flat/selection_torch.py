"""Selective self-attention with an adaptive threshold, from FLAT-ATSSA (Hu et al., 2022, section 3.2), in torch.

A query only attends to keys whose attention score A reaches a threshold. The threshold is computed for each head from
the query's hidden state x and the mean m of all hidden states in the sentence:

    T = W_t [x ; m ; x * m ; x - m]    (eq. 7)
    T~ = min(k-th largest of A, T)     (eq. 8) at least k keys are selected
    b = sigmoid(alpha (A - T~))        (eq. 9) probability that a key is selected

In prediction, a key is selected (z = 1) if A >= T~. During training, z is sampled with the Gumbel-softmax of b and 1 -
b (eq. 17). This module samples from the equivalent binary concrete distribution, which requires one random number per
key instead of two:

    z = sigmoid((alpha (A - T~) + logistic noise) / tau)

The attention weights are `z e^A / sum z e^A`. If z is 0 or 1, this is the softmax over the selected keys (eq. 11 and
12). With k = 0, a query can have no selected keys. Its output is then zero.

The number of selected keys is penalized in the loss (eq. 19). The penalty's gradient is added in the attention's
backward pass (`_Sample`), so that the encoder does not have to return the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...nn.attention_torch import Heads, Weighting
from ...nn.layers_torch import Linear, Penalty, random_int16
from ...nn.ragged_torch import Segments
from ..tener.tener_torch import AdaptedAttention


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selects the keys that a query attends to, and computes the attention weights (Hu et al., 2022, section 3.2).

    k (int): Minimum number of selected keys per query (eq. 8). 0 for no minimum.
    alpha (float): Slope of the sigmoid that replaces the step function at the threshold (eq. 9).
    tau (float): Gumbel-softmax temperature (eq. 17).
    """

    k: int = 3
    alpha: float = 50.0
    tau: float = 1.0

    def decide(self, scores: Tensor, per_query: Any) -> Tensor:
        """Compute the attention weights for prediction, in which the selection is deterministic.

        scores (Tensor): Attention scores, with -inf for padded keys. *Shape:* (sequences, heads, queries, keys)
        per_query (Tensor): Threshold and penalty weight for each query. *Shape:* (sequences, heads, queries, 2)
        RETURNS (Tensor): *Shape:* (sequences, heads, queries, keys)
        """
        above = (scores - self.effective_threshold(scores, per_query)).detach()
        # Compute the selection mask `above >= 0` with arithmetic, since torch.where is not vectorized on a CPU.
        weights = torch.softmax(scores, dim=-1) * above.sign_().add_(1.0).clamp_(max=1.0)
        return weights / _row_sums(weights)

    def sample(self, scores: Tensor, per_query: Any, penalty: Penalty | None = None) -> Tensor:
        """Compute the attention weights for training, in which the selection is sampled.

        scores (Tensor): Attention scores, with -inf for padded keys. *Shape:* (sequences, heads, queries, keys)
        per_query (Tensor): Threshold and penalty weight for each query. *Shape:* (sequences, heads, queries, 2)
        penalty (Optional[Penalty]): The penalty on the number of selected keys. Its value is recorded in the backward
            pass.
        RETURNS (Tensor): *Shape:* (sequences, heads, queries, keys)
        """
        return _Sample.apply(scores, per_query, self, penalty)  # type: ignore[no-untyped-call]

    def effective_threshold(self, scores: Tensor, per_query: Tensor) -> Tensor:
        """Compute the score that a key must reach to be selected, for each query (Hu et al., 2022, eq. 8).

        This is the threshold or the k-th largest score, whichever is smaller.

        RETURNS (Tensor): *Shape:* (sequences, heads, queries, 1)
        """
        threshold = per_query[..., :1]
        return torch.minimum(self.finite_kth_largest(scores), threshold) if self.k else threshold

    def finite_kth_largest(self, scores: Tensor) -> Tensor:
        """Return the k-th largest score for each query as a finite number. *Shape:* (sequences, heads, queries, 1)"""
        # With fewer than k keys, the k-th largest score is -inf. A finite number avoids NaN from -inf - (-inf) when the
        # result is subtracted from a padded key's score.
        return kth_largest(scores, self.k).clamp(min=torch.finfo(scores.dtype).min / 2)


class SelectiveAttention(AdaptedAttention):
    """Selective self-attention: each query only attends to keys whose score reaches the query's threshold.

    Relative positions are encoded as in TENER. In contrast to TENER, the keys are projected.

    width (int): Input and output width d.
    n_heads (int): Number of attention heads h. The head width, `width / n_heads`, must be even.
    selection (Selection): How keys are selected.
    dropout (float): Attention dropout rate.
    penalty (float): Weight lambda of the penalty on the number of selected keys, divided by the sentence length (eq.
        19). The penalty is summed over the heads and averaged over the sentences.
    """

    def __init__(
        self, *, width: int, n_heads: int, selection: Selection, dropout: float = 0.0, penalty: float = 0.0
    ) -> None:
        super().__init__(width=width, n_heads=n_heads, dropout=dropout, key_projection=True)
        self.selection = selection
        self.penalty = Penalty(penalty)
        self.threshold = Linear(4 * width, n_heads, bias=False)

    def thresholds(self, x: Tensor, sentences: Segments) -> Tensor:
        """Compute the threshold for each query and head (Hu et al., 2022, eq. 7).

        x (Tensor): Hidden states. *Shape:* (tokens, width)
        sentences (Segments): The sentence index of each token.
        RETURNS (Tensor): *Shape:* (tokens, heads)
        """
        mean = sentences.gather(sentences.mean(x))
        return self.threshold(torch.cat((x, mean, x * mean, x - mean), dim=-1))

    def heads(self, x: Tensor, *context: Any) -> Heads:
        """Compute the queries, keys and values, and the threshold and penalty weight for each query.

        x (Tensor): Hidden states. *Shape:* (tokens, width)
        context (Any): The `RelativePositions` for the batch, and the sentence index of each token as `Segments`.
        """
        relative, sentences = context
        heads = super().heads(x, relative)
        thresholds = self.thresholds(x, sentences)
        # A token's penalty weight is lambda / L, where L is the sentence length (eq. 19). It is divided by the number
        # of sentences, because the loss is a mean over sentences.
        factor = self.penalty.factor(len(sentences.sizes))
        factors = sentences.gather(factor / sentences.sizes.to(x)).expand_as(thresholds)
        return heads._replace(per_query=torch.stack((thresholds, factors), dim=-1))

    def weighting(self, *, sampled: bool) -> Weighting:
        """Return the function that computes attention weights from scores.

        sampled (bool): Whether to sample the selected keys, as in training.
        """
        if not sampled:
            return self.selection.decide
        return partial(self.selection.sample, penalty=self.penalty if self.penalty.weight else None)


def kth_largest(x: Tensor, k: int) -> Tensor:
    """Return the k-th largest number in each row of a tensor, or -inf if the row has fewer than k numbers.

    Duplicates count separately: the second largest number in `[5, 5, 1]` is 5.

    *Shape:* (..., keys) to (..., 1)
    """
    if k > x.shape[-1]:
        return torch.full_like(x[..., :1], -torch.inf)
    return torch.topk(x, k, dim=-1).values[..., -1:]


def logistic_noise(like: Tensor) -> Tensor:
    """Draw random numbers from the logistic distribution, with the same shape as a given tensor.

    The difference between two Gumbel variables has this distribution.
    """
    # The logit of a uniform random number has a logistic distribution. The uniform numbers are the centers of 2^16
    # intervals between 0 and 1, so that they are never exactly 0 or 1.
    return random_int16(like).add_((1 << 15) + 0.5).mul_(1.0 / (1 << 16)).logit_()


class _Sample(torch.autograd.Function):
    """Attention weights with sampled keys (Hu et al., 2022, eq. 8, 9 and 17).

    The backward pass is written by hand, because autograd would store about ten tensors with the shape of the attention
    weights. It also adds the penalty's gradient (eq. 19).
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, per_query: Tensor, selection: Selection, penalty: Penalty | None) -> Tensor:
        bound = selection.effective_threshold(scores, per_query)
        above = scores - bound
        # Eq. 8 limits the threshold to the k-th largest score. If the limit applies, the gradient goes to this score.
        at_bound = _uniform_over_zeros(above) if selection.k else None
        z = above.mul_(selection.alpha).add_(logistic_noise(scores)).div_(selection.tau).sigmoid_()
        weights = torch.softmax(scores, dim=-1).mul_(z)
        weights.div_(_row_sums(weights))
        ctx.save_for_backward(weights, z, at_bound, bound, per_query)
        ctx.slope = selection.alpha / selection.tau
        ctx.penalty = penalty
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, z, at_bound, bound, per_query = ctx.saved_tensors
        threshold, factor = per_query[..., :1], per_query[..., 1:]
        if ctx.penalty is not None:
            ctx.penalty.record((z.sum(dim=-1, keepdim=True) * factor).sum())
        # The attention weights are w = z e^A / sum z e^A. Let y be the gradient of w, and f the penalty weight.
        # Gradient of the scores A through e^A (softmax):
        #     g = w (y - sum w y)
        # Gradient of A - T~ through z, with the derivative of the sigmoid, z (1 - z) alpha / tau:
        #     (g / z + f) z (1 - z) alpha / tau = (g + f z) (1 - z) alpha / tau
        d_scores = gradients[0] * weights
        d_scores.addcmul_(weights, d_scores.sum(dim=-1, keepdim=True), value=-1)
        d_above = torch.addcmul(d_scores, z, factor)
        d_above.addcmul_(d_above, z, value=-1).mul_(ctx.slope)
        d_bound = -d_above.sum(dim=-1, keepdim=True)
        d_scores += d_above
        # The minimum in eq. 8 passes its gradient to the smaller number: the threshold, or the k-th largest score.
        d_threshold = d_bound * (threshold <= bound)
        if at_bound is not None:
            d_scores.addcmul_(at_bound, d_bound - d_threshold)
        return d_scores, torch.cat((d_threshold, torch.zeros_like(d_threshold)), dim=-1), None, None


def _row_sums(weights: Tensor) -> Tensor:
    """Return the sum of each query's weights, to normalize them.

    For queries without selected keys, the sum is 1 instead of 0, to avoid a division by zero.
    """
    total = weights.sum(dim=-1, keepdim=True)
    return total + (total == 0.0)


def _uniform_over_zeros(x: Tensor) -> Tensor:
    """Replace each zero by 1 / n, where n is the number of zeros in its row. Replace all other numbers by 0.

    `_Sample` uses these values to distribute a gradient evenly over scores that are equal.
    """
    zeros = x.sign().abs_().neg_().add_(1.0)
    return zeros.div_(zeros.sum(dim=-1, keepdim=True).clamp_(min=1.0))
