"""A reference implementation of the CRF that enumerates all tag sequences, for short sequences and few labels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from paper_equations import allowed_transitions
from torch import Tensor

from spacy_tener.crf import crf_torch as crf_module
from spacy_tener.crf.crf_numpy import CRFPredictor
from spacy_tener.crf.crf_torch import CRF
from spacy_tener.crf.forward import ForwardBackward
from spacy_tener.crf.marginals import EntitySpans, span_marginals
from spacy_tener.sequences import Lengths, Packing
from spacy_tener.tagging import TagLayout
from spacy_tener.types import IntArray

# Lengths of the sequences in a batch, some of which are empty.
LENGTHS = [3, 0, 1, 4, 2, 2, 0]


def random_crf(n_labels: int, seed: int = 0, scale: float = 1.0) -> CRF:
    generator = torch.Generator().manual_seed(seed)
    crf = CRF(n_labels).double()
    with torch.no_grad():
        for weight in crf.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * scale)
    return crf


def random_emissions(crf: CRF, lengths: list[int], seed: int = 1, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (sum(lengths), crf.layout.n_tags)
    return torch.randn(shape, generator=generator, dtype=torch.float64) * scale


def random_mask(crf: CRF, lengths: list[int], seed: int = 2) -> Tensor:
    """Return a random mask that allows half of all tags, and at least one valid tag sequence for each sequence."""
    rng = np.random.default_rng(seed)
    mask = rng.random((sum(lengths), crf.layout.n_tags)) < 0.5
    mask[np.arange(len(mask)), random_tags(crf, lengths, seed).numpy()] = True
    return torch.from_numpy(mask)


def random_tags(crf: CRF, lengths: list[int], seed: int = 3) -> Tensor:
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(all_paths(crf.layout, length)) for length in lengths]
    return torch.from_numpy(np.concatenate(chosen).astype(np.int64))


@lru_cache(maxsize=64)
def all_paths(layout: TagLayout, length: int) -> IntArray:
    """Return all valid tag sequences of this length. *Shape:* (paths, length)"""
    if length == 0:
        return np.empty((1, 0), np.int64)
    follows = allowed_transitions(layout)
    tags = range(layout.n_tags)
    paths = [(tag,) for tag in tags if not layout.names(tuple("abc"[: layout.n_labels]))[tag].startswith(("E", "I"))]
    for _ in range(length - 1):
        paths = [(*path, tag) for path in paths for tag in tags if follows[path[-1], tag]]
    names = layout.names(tuple("abc"[: layout.n_labels]))
    return np.array([path for path in paths if not names[path[-1]].startswith(("B", "I"))], np.int64)


def path_scores(crf: CRF, emissions: Tensor, paths: IntArray) -> Tensor:
    """Return the score of each tag sequence, as a differentiable sum of the CRF's weights. *Shape:* (paths,)"""
    layout = crf.layout
    index = torch.from_numpy(paths)
    total = emissions.new_zeros(len(paths))
    if not index.size(1):
        return total
    total = total + crf.start[index[:, 0]] + crf.end[index[:, -1] - layout.closers.start]
    for position in range(index.size(1)):
        total = total + emissions[position, index[:, position]]
        if position:
            total = total + _transition_scores(crf, index[:, position - 1], index[:, position])
    return total


def _transition_scores(crf: CRF, source: Tensor, target: Tensor) -> Tensor:
    layout = crf.layout
    opens = target < layout.openers.stop
    closer = (source - layout.closers.start).clamp(0, layout.n_open - 1)
    outside = crf.outside[closer, target.clamp(max=layout.n_open - 1)]
    if not layout.n_labels:
        return outside
    from_inside = (source >= layout.inside.start).long()
    continued = crf.inside[from_inside, (target - layout.continuers.start).clamp(min=0)]
    return torch.where(opens, outside, continued)


def allowed_paths(paths: IntArray, allowed: Tensor | None) -> IntArray:
    if allowed is None:
        return paths
    mask = allowed.numpy()
    return paths[mask[np.arange(paths.shape[1]), paths].all(1)]


def paths_and_scores(
    crf: CRF, emissions: Tensor, lengths: list[int], allowed: Tensor | None = None
) -> list[tuple[IntArray, Tensor]]:
    """Return the allowed tag sequences and their scores, for each sequence in a batch."""
    masks = [None] * len(lengths) if allowed is None else allowed.split(lengths)
    found = []
    for part, mask, length in zip(emissions.split(lengths), masks, lengths, strict=True):
        paths = allowed_paths(all_paths(crf.layout, length), mask)
        found.append((paths, path_scores(crf, part, paths)))
    return found


def log_partition(crf: CRF, emissions: Tensor, lengths: list[int], allowed: Tensor | None = None) -> Tensor:
    return torch.stack([scores.logsumexp(0) for _, scores in paths_and_scores(crf, emissions, lengths, allowed)])


def token_marginals(crf: CRF, emissions: Tensor, lengths: list[int], allowed: Tensor | None = None) -> Tensor:
    marginals = torch.zeros_like(emissions)
    begin = 0
    for length, (paths, scores) in zip(lengths, paths_and_scores(crf, emissions, lengths, allowed), strict=True):
        for path, probability in zip(paths, scores.softmax(0), strict=True):
            marginals[torch.arange(begin, begin + length), torch.from_numpy(path)] += probability
        begin += length
    return marginals


def gradients(loss: Tensor, crf: CRF, emissions: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, [emissions, *crf.parameters()], allow_unused=True, materialize_grads=True)
    return list(found)


def array(tensor: Tensor | None) -> NDArray[Any] | None:
    return None if tensor is None else tensor.detach().cpu().numpy()


def predictor_of(crf: CRF) -> CRFPredictor:
    start, end, outside, inside = (weight.detach().cpu().numpy() for weight in crf.weights)
    return CRFPredictor((start, end, outside, inside))


def path_score(crf: CRF, emissions: Tensor, lengths: Lengths, tags: Tensor) -> Tensor:
    """Return the score of one tag sequence for each sequence, in float64."""
    return crf_module.path_score(emissions, crf.weights, Packing.of(lengths, len(emissions)), tags)


def decode(crf: CRF, emissions: Tensor, lengths: Lengths, allowed: Tensor | None = None) -> IntArray:
    """Decode with the package's implementation, given tensors."""
    return predictor_of(crf).decode(array(emissions), lengths, array(allowed))


def k_best(crf: CRF, emissions: Tensor, lengths: Lengths, k: int, allowed: Tensor | None = None) -> list[Any]:
    return predictor_of(crf).k_best(array(emissions), lengths, k, array(allowed))


def forward_backward(
    crf: CRF, emissions: Tensor, lengths: Lengths, allowed: Tensor | None = None, **options
) -> ForwardBackward:
    return predictor_of(crf).forward_backward(array(emissions), lengths, array(allowed), **options)


def computed_marginals(crf: CRF, emissions: Tensor, lengths: Lengths, allowed: Tensor | None = None) -> Tensor:
    return torch.from_numpy(forward_backward(crf, emissions, lengths, allowed).marginals()).to(emissions.dtype)


def computed_span_marginals(
    crf: CRF, emissions: Tensor, lengths: Lengths, spans: EntitySpans, allowed: Tensor | None = None
) -> Tensor:
    found = span_marginals(forward_backward(crf, emissions, lengths, allowed), spans)
    return torch.from_numpy(found).to(emissions.dtype)
