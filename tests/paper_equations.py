"""The equations of the papers, implemented as simply as possible, as references for the optimized layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from spacy_tener.architectures.flat.flat_torch import SpanAttention, SpanPositions
from spacy_tener.architectures.flat.selection_torch import SelectiveAttention
from spacy_tener.architectures.grn.grn_torch import Relation
from spacy_tener.architectures.tener.tener_torch import AdaptedAttention
from spacy_tener.nn.attention_torch import split_heads
from spacy_tener.nn.layers_torch import Convolution, TransformerLayer
from spacy_tener.tagging import TagLayout


def allowed_transitions(layout: TagLayout) -> NDArray[np.bool_]:
    """Return which tag may follow which. *Shape:* (from, to)

    O, E and S may be followed by O, B and S. B and I may be followed by E and I of the same label.
    """
    allowed = np.zeros((layout.n_tags, layout.n_tags), dtype=bool)
    allowed[layout.closers, layout.openers] = True
    same_type = np.eye(layout.n_labels, dtype=bool)
    for source in (layout.begin, layout.inside):
        for target in (layout.end, layout.inside):
            allowed[source, target] = same_type
    return allowed


def reference_attention(attention: AdaptedAttention, x: Tensor) -> Tensor:
    """Compute TENER's equations 16 to 19 for one sequence, without dropout.

    x: Embeddings. *Shape:* (length, width)
    RETURNS: *Shape:* (length, width)
    """
    weights = torch.softmax(reference_scores(attention, x), dim=-1)  # equation 19
    values = attention.project(x)[2]
    return torch.einsum("htj,jhd->thd", weights, values).flatten(1)


def reference_scores(attention: AdaptedAttention, x: Tensor) -> Tensor:
    """Compute the scores of TENER's equation 18. *Shape:* (length, width) to (heads, length, length)"""
    q, k, _ = (rows.transpose(0, 1) for rows in attention.project(x))
    r = _relative(len(x), q.shape[-1], x)
    scores = torch.einsum("htd,hjd->htj", q, k) + torch.einsum("htd,tjd->htj", q, r)  # equation 18, first two terms
    scores = scores + torch.einsum("hd,hjd->hj", attention.u, k)[:, None]
    scores = scores + torch.einsum("hd,tjd->htj", attention.v, r)
    return scores * attention.scale


def reference_selection(
    attention: SelectiveAttention, x: Tensor, noise: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute FLAT-ATSSA's equations 7, 8, 9 and 17, query by query, for one sentence and without dropout.

    x: Hidden states. *Shape:* (length, width)
    noise: Gumbel noise for training. Without it, the selection for prediction is computed. *Shape:* (heads, length,
        length)
    RETURNS: The output, the attention map, and the selection z.
    """
    scores, choice, mean = reference_scores(attention, x), attention.selection, x.mean(0)
    rows = []
    for h, t in np.ndindex(scores.shape[:2]):
        matching = torch.cat((x[t], mean, x[t] * mean, x[t] - mean))
        threshold = attention.threshold.weight[h] @ matching
        topk = torch.sort(scores[h, t], descending=True).values[: choice.k]
        if choice.k:
            threshold = torch.minimum(topk[-1], threshold) if len(topk) == choice.k else x.new_tensor(-1e9)
        if noise is None:
            rows.append((scores[h, t] >= threshold).double())
            continue
        step = choice.alpha * (scores[h, t] - threshold)
        log_b, log_rest = F.logsigmoid(step), F.logsigmoid(-step)
        rows.append(torch.softmax(torch.stack((log_b + noise[h, t], log_rest)) / choice.tau, dim=0)[0])
    z = torch.stack(rows).view_as(scores)
    weights = z * (scores - scores.amax(-1, keepdim=True)).exp()
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    return torch.einsum("htj,jhd->thd", weights, attention.project(x)[2]).flatten(1), weights, z


def _relative(length: int, head_width: int, like: Tensor) -> Tensor:
    """Return the relative positions `r_{t-j}` (TENER's equation 17). *Shape:* (length, length, head width)"""
    position = torch.arange(length, dtype=torch.float64, device=like.device)
    i = torch.arange(0, head_width, 2, dtype=torch.float64, device=like.device)
    angles = (position[:, None] - position)[..., None] / 10000.0 ** (i / head_width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(like.dtype)


def reference_convolution(convolution: Convolution, x: Tensor) -> Tensor:
    """Compute a zero-padded convolution of one sequence with torch. *Shape:* (length, width) to (length, filters)"""
    filters = convolution.product
    if not len(x):
        return x.new_zeros(0, len(filters.weight))
    # The package's weights are ordered by neighbour and then channel, torch's by channel and then neighbour.
    kernel = filters.weight.view(len(filters.weight), convolution.size, -1).transpose(1, 2)
    return F.conv1d(x.T[None], kernel, filters.bias, padding=convolution.size // 2)[0].T


def reference_relation(relation: Relation, x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Compute GRN's equations 4, 6 and 8, pair by pair. *Shape:* (units, width) to (units, width)"""
    weight = torch.cat((relation.left.weight, relation.right.weight), dim=1)
    fused = [x.new_zeros(0, x.shape[1])]
    for rows in x.split(list(lengths)):
        shape = (len(rows), len(rows), -1)
        pairs = torch.cat((rows[:, None].expand(shape), rows[None].expand(shape)), dim=-1)
        scores = F.linear(pairs, weight, relation.left.bias)  # equation 4
        terms = torch.sigmoid(scores) * rows
        fused.append(torch.tanh(terms.sum(1) / max(len(rows), 1)))  # equations 6 and 8
    return torch.cat(fused)


def reference_span_positions(positions: SpanPositions, spans: Tensor) -> Tensor:
    """Compute the relative positions `R_ij` (FLAT's equations 1 to 3) for all pairs of spans in one sentence.

    spans: First and last character of each span. *Shape:* (spans, 2)
    RETURNS: *Shape:* (spans, spans, width)
    """
    head, tail = spans.unbind(1)
    weight = positions.fuse.weight
    width = weight.shape[1]
    distances = torch.stack([a[:, None] - b for a in (head, tail) for b in (head, tail)], dim=-1)  # equation 1
    i = torch.arange(0, width, 2, dtype=torch.float64, device=weight.device)
    angles = distances[..., positions.distance_indices, None] / 10000.0 ** (i / width)
    p = torch.stack((angles.sin(), angles.cos()), dim=-1).to(weight.dtype)  # equation 3
    return torch.relu(p.flatten(2) @ torch.cat(weight.split(width), dim=1).T)  # equation 2


def reference_span_attention(
    attention: SpanAttention, positions: SpanPositions, x: Tensor, query_input: Tensor, places: Tensor
) -> Tensor:
    """Compute FLAT's equations 1 to 6 for one sentence, without dropout.

    x: Embeddings of spans, for keys and values. *Shape:* (spans, width)
    query_input: Embeddings of spans, for queries. Differs from `x` in MECT only. *Shape:* (spans, width)
    places: First and last character of each span. *Shape:* (spans, 2)
    RETURNS: *Shape:* (spans, width)
    """
    q, k, v = (
        split_heads(part(of), attention.n_heads)
        for part, of in [(attention.query, query_input), (attention.key, x), (attention.value, x)]
    )
    r = split_heads(attention.position(reference_span_positions(positions, places).flatten(0, 1)), attention.n_heads)
    r = r.unflatten(0, (len(x), len(x)))
    scores = torch.einsum("ihd,jhd->hij", q + attention.u, k)  # equation 5
    scores = scores + torch.einsum("ihd,ijhd->hij", q + attention.v, r)
    if attention.random is not None:
        bias = attention.random(len(x), len(x)).transpose(0, 1)  # MECT's equation 12
        scores = scores + F.pad(bias, (0, len(x) - bias.shape[2], 0, len(x) - bias.shape[1]))
    return torch.einsum("hij,jhd->ihd", torch.softmax(scores, dim=-1), v).flatten(1)  # equation 4


def reference_layer(layer: TransformerLayer, x: Tensor, mixed: Tensor) -> Tensor:
    """Compute the residuals, norms and the feed-forward block after attention. *Shape:* (length, width)

    mixed: Output of the attention. *Shape:* (length, width)
    """

    def norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)

    summed, parts = norm(layer.attention_norm, x + mixed), layer.feed_forward
    hidden = torch.relu(F.linear(summed, parts.widen.weight, parts.widen.bias))
    return norm(layer.feed_forward_norm, summed + F.linear(hidden, parts.narrow.weight, parts.narrow.bias))


def backward_gradients(loss: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients computed by `backward`, with zeros for unused inputs. Checkpointed modules do not support
    `torch.autograd.grad`."""
    for leaf in inputs:
        leaf.grad = None
    loss.backward()
    return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in inputs]


def assert_same(got: Tensor, expected: Tensor, leaves: Sequence[Tensor], within: float = 1e-10) -> None:
    """Compare two outputs, and their gradients for a random output gradient."""
    assert got.shape == expected.shape
    assert torch.allclose(got, expected, rtol=0.0, atol=within)
    weight = torch.randn_like(expected)
    wanted = backward_gradients((expected * weight).sum(), leaves)
    for a, b in zip(backward_gradients((got * weight).sum(), leaves), wanted, strict=True):
        # Random attention has a sparse gradient.
        assert torch.allclose(a.to_dense(), b.to_dense(), atol=within)


def assert_slopes(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Compare the gradient of a function with finite differences in a random direction."""
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    directions = [torch.randn_like(x) * 1e-5 for x in inputs]
    output = function(*inputs)
    weight = torch.randn_like(output)
    found = backward_gradients((output * weight).sum(), inputs)
    with torch.no_grad():
        ahead, behind = (
            function(*(x + sign * step for x, step in zip(inputs, directions, strict=True))) for sign in (1, -1)
        )
    slope = sum((gradient * step).sum() for gradient, step in zip(found, directions, strict=True))
    assert torch.allclose(((ahead - behind) * weight).sum() / 2, torch.as_tensor(slope), rtol=1e-5, atol=1e-12)
