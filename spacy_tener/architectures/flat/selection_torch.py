"""Selective self-attention with ATSSA's adaptive threshold in torch (Hu et al., 2022, section 3.2).

A query attends only to keys whose score A reaches the query's threshold. The threshold is computed for each head from
the query's input x and the mean m of the sentence. It is limited by the k-th largest score, so that at least k keys are
selected:

    T = W_t [x ; m ; x * m ; x - m]    (eq. 7)
    T~ = min(k-th largest of A, T)     (eq. 8)
    b = sigmoid(alpha (A - T~))        (eq. 9)

During training, the selection z of each key is sampled by the Gumbel-softmax over b and 1 - b with the temperature tau.
Since `log b - log(1 - b)` is `alpha (A - T~)`, and the difference of two Gumbel variables has a logistic distribution,
eq. 17 becomes

    z = sigmoid((alpha (A - T~) + logistic noise) / tau)

which takes one random number per key instead of two. In prediction, `z = [A >= T~]` is deterministic. The attention
weights are `z e^A / sum z e^A`. This equals the softmax of eq. 11 and 12 if z is 0 or 1, and is differentiable in
between. With k = 0, a query may select no key. Its output is then zero.

The penalty on z (eq. 19) is averaged over the sentences of a batch, as the loss is. Its gradient is added in the
backward pass (`_Sample`), so that the encoder does not have to return a second output.
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
    """The rule by which keys are selected.

    k (int): Minimum number of selected keys (eq. 8). In shorter sentences, all keys are selected. 0 for no minimum.
    alpha (float): Steepness of the step function (eq. 9).
    tau (float): Temperature of the Gumbel-softmax (eq. 17).
    """

    k: int = 3
    alpha: float = 50.0
    tau: float = 1.0

    def decide(self, scores: Tensor, per_query: Any) -> Tensor:
        """Compute the attention weights for prediction.

        scores (Tensor): A, with -inf for padded keys. *Shape:* (sequences, heads, queries, keys)
        per_query (Tensor): T and the penalty's factor of each query. *Shape:* (sequences, heads, queries, 2)
        RETURNS (Tensor): *Shape:* (sequences, heads, queries, keys)
        """
        above = (scores - self.bound(scores, per_query)).detach()
        # z = [A >= T~] is computed as min(sign(A - T~) + 1, 1): torch.where is not vectorized on a CPU.
        weights = torch.softmax(scores, dim=-1) * above.sign_().add_(1.0).clamp_(max=1.0)
        return weights / _row_sums(weights)

    def sample(self, scores: Tensor, per_query: Any, penalty: Penalty | None = None) -> Tensor:
        """Compute the attention weights for training, with sampled z. The arguments and the result are those of
        `decide`.

        penalty (Optional[Penalty]): Records the value of the penalty in the backward pass. None for no penalty.
        """
        return _Sample.apply(scores, per_query, self, penalty)  # type: ignore[no-untyped-call]

    def bound(self, scores: Tensor, per_query: Tensor) -> Tensor:
        """Compute the bound `T~` (eq. 8). *Shape:* (sequences, heads, queries, 1)"""
        threshold = per_query[..., :1]
        return torch.minimum(self.floor(scores), threshold) if self.k else threshold

    def floor(self, scores: Tensor) -> Tensor:
        """Return the k-th largest score of each query. *Shape:* (sequences, heads, queries, 1)"""
        # In a sequence with fewer than k keys, the k-th largest score is -inf. The difference of scores and bound must
        # not be NaN.
        return kth_largest(scores, self.k).clamp(min=torch.finfo(scores.dtype).min / 2)


class SelectiveAttention(AdaptedAttention):
    """TENER's attention with projected keys (eq. 5 with `R_ij = p_{i-j}`), where each query attends to selected keys.

    width (int): Input and output width d.
    n_heads (int): Number of heads h. The width of a head, `d_k = width / n_heads`, must be even.
    selection (Selection): The rule by which keys are selected.
    dropout (float): Attention dropout rate.
    penalty (float): Weight lambda of the penalty `lambda |z|_1 / L` (eq. 19), which is summed over heads and averaged
        over sentences.
    """

    def __init__(
        self, *, width: int, n_heads: int, selection: Selection, dropout: float = 0.0, penalty: float = 0.0
    ) -> None:
        super().__init__(width=width, n_heads=n_heads, dropout=dropout, key_projection=True)
        self.selection = selection
        self.penalty = Penalty(penalty)
        self.threshold = Linear(4 * width, n_heads, bias=False)

    def thresholds(self, x: Tensor, sentences: Segments) -> Tensor:
        """Compute the thresholds T (eq. 7).

        x (Tensor): *Shape:* (tokens, width)
        sentences (Segments): The sentence of each token.
        RETURNS (Tensor): *Shape:* (tokens, heads)
        """
        mean = sentences.gather(sentences.mean(x))
        return self.threshold(torch.cat((x, mean, x * mean, x - mean), dim=-1))

    def heads(self, x: Tensor, *context: Any) -> Heads:
        """Compute queries, keys and values, and the threshold and the penalty's factor of each query.

        x (Tensor): *Shape:* (tokens, width)
        context (Any): The `RelativePositions` of the batch, and the sentence of each token as `Segments`.
        """
        relative, sentences = context
        heads = super().heads(x, relative)
        thresholds = self.thresholds(x, sentences)
        # lambda / L for each token's sentence (eq. 19), divided by the number of sentences.
        factor = self.penalty.factor(len(sentences.sizes))
        factors = sentences.gather(factor / sentences.sizes.to(x)).expand_as(thresholds)
        return heads._replace(per_query=torch.stack((thresholds, factors), dim=-1))

    def weighting(self, *, sampled: bool) -> Weighting:
        """Return `Selection.sample` for training, `Selection.decide` for prediction."""
        if not sampled:
            return self.selection.decide
        return partial(self.selection.sample, penalty=self.penalty if self.penalty.weight else None)


def kth_largest(x: Tensor, k: int) -> Tensor:
    """Return the k-th largest number of each row, or -inf if there are fewer numbers. Equal numbers are counted
    separately.

    *Shape:* (.., keys) to (.., 1)
    """
    if k > x.shape[-1]:
        return torch.full_like(x[..., :1], -torch.inf)
    return torch.topk(x, k, dim=-1).values[..., -1:]


def logistic_noise(like: Tensor) -> Tensor:
    """Draw numbers from the logistic distribution, the distribution of the difference of two Gumbel variables."""
    # The logit of a uniform number between 0 and 1, exclusive, has a logistic distribution.
    return random_int16(like).add_((1 << 15) + 0.5).mul_(1.0 / (1 << 16)).logit_()


class _Sample(torch.autograd.Function):
    """The attention weights of eq. 8, 9 and 17, with the gradient of the penalty (eq. 19): `lambda / L` for each z.

    The backward pass is written by hand, since autograd would store and traverse an array of the size of the attention
    map for each of its ten operations.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, per_query: Tensor, selection: Selection, penalty: Penalty | None) -> Tensor:
        bound = selection.bound(scores, per_query)
        above = scores - bound
        at_bound = _zeros_of(above) if selection.k else None
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
        # Let w = z e^A / sum z e^A be the weights and y their gradient. The gradient of A through e^A is
        #     g = w (y - sum w y)
        # With dz / d(A - T~) = z (1 - z) alpha / tau and the penalty's factor f, the gradient of A - T~ through z is
        #     (g / z + f) z (1 - z) alpha / tau = (g + f z) (1 - z) alpha / tau
        # Let w = z e^A / sum z e^A be the weights and y their gradient. The gradient of A through e^A is
        #     g = w (y - sum w y)
        # With dz / d(A - T~) = z (1 - z) alpha / tau and the penalty's factor f, the gradient of A - T~ through z is
        #     (g / z + f) z (1 - z) alpha / tau = (g + f z) (1 - z) alpha / tau
        d_scores = gradients[0] * weights
        d_scores.addcmul_(weights, d_scores.sum(dim=-1, keepdim=True), value=-1)
        d_above = torch.addcmul(d_scores, z, factor)
        d_above.addcmul_(d_above, z, value=-1).mul_(ctx.slope)
        d_bound = -d_above.sum(dim=-1, keepdim=True)
        d_scores += d_above
        # The gradient of a minimum goes to the smaller number: to the threshold, or to the k-th largest score.
        d_threshold = d_bound * (threshold <= bound)
        if at_bound is not None:
            d_scores.addcmul_(at_bound, d_bound - d_threshold)
        return d_scores, torch.cat((d_threshold, torch.zeros_like(d_threshold)), dim=-1), None, None


def _row_sums(weights: Tensor) -> Tensor:
    """Return the sum of each query's weights as a divisor: 1 instead of 0 for a query that selects no key."""
    total = weights.sum(dim=-1, keepdim=True)
    return total + (total == 0.0)


def _zeros_of(x: Tensor) -> Tensor:
    """Return 1 / n for each of the n zeros of a row, and 0 for other numbers. Used to divide a gradient among equal
    scores.
    """
    zeros = x.sign().abs_().neg_().add_(1.0)
    return zeros.div_(zeros.sum(dim=-1, keepdim=True).clamp_(min=1.0))
