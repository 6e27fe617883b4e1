"""Compute the loss of a component for given scores, without a training step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from spacy.training import Example
from thinc.backends import get_array_ops
from thinc.types import Floats2d

from spacy_tener.architectures.tagger import torch_crf
from spacy_tener.crf.crf_torch import CRF
from spacy_tener.nn.backend_torch import join_tensors, split_tensor
from spacy_tener.pipeline.learning.learn_torch import batch_loss, concatenate_by_depth
from spacy_tener.pipeline.learning.targets import Target, make_targets
from spacy_tener.pipeline.tener_ner import TenerNER


def get_loss(pipe: TenerNER, examples: Sequence[Example], scores: list[Floats2d]) -> tuple[float, list[Floats2d]]:
    """Return the mean loss of examples, and its gradient with respect to the scores."""
    return loss_of_scores(
        torch_crf(pipe.model), scores, make_targets(examples, pipe.label_index, pipe.settings, pipe.depth)
    )


def loss_of_scores(
    crf: CRF, scores: list[Floats2d], targets: Sequence[Sequence[Target]]
) -> tuple[float, list[Floats2d]]:
    """Return the mean loss of targets, and its gradient with respect to the scores.

    scores: Scores of each example. *Shape:* (units, depth * tags)
    """
    # Compute on the device of the CRF for CuPy arrays. NumPy arrays are computed on the CPU, even on Apple's GPUs.
    ops = get_array_ops(scores[0])
    device = crf.start.device if ops.name == "cupy" else torch.device("cpu")
    emissions = join_tensors(ops, scores, device).requires_grad_(True)
    loss = batch_loss(crf, emissions, concatenate_by_depth(targets)) / len(targets)
    [gradient] = torch.autograd.grad(loss, [emissions])
    return float(loss.detach()), split_tensor(ops, gradient, [len(part) for part in scores])
