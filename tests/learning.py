"""Pipelines learn examples: the one loop that tests train by."""

from __future__ import annotations

from collections.abc import Sequence

from spacy.language import Language
from spacy.training import Example
from thinc.api import Optimizer


def learn(
    nlp: Language,
    examples: Sequence[Example],
    *,
    steps: int = 60,
    optimizer: Optimizer | None = None,
    enough: float = 0.0,
) -> Optimizer:
    """Let a pipeline learn examples, with new weights, or with an optimizer, from those that it has.

    enough: The loss below which it stops.
    """
    if optimizer is None:
        optimizer = nlp.initialize(lambda: examples)
        optimizer.learn_rate = 0.01
    for _ in range(steps):
        if max(nlp.update(examples, sgd=optimizer).values()) < enough:
            break
    return optimizer
