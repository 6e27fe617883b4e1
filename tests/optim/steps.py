"""Random numbers, and steps that they are the gradients of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
KEY = (1, "layers.0.weight")


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(scale=3.0, size=shape).astype("f")


def follow(
    optimizer: Any, start: Array, steps: int = 12, key: tuple[int, str] = KEY, scale: float = 1.0
) -> list[Array]:
    """Where the weights are after each of some steps with known gradients."""
    weights, path = start.copy(), []
    for step in range(steps):
        weights, gradient = optimizer(key, weights, numbers(*start.shape, seed=step), lr_scale=scale)
        assert not gradient.any()
        optimizer.step_schedules()
        path.append(weights.copy())
    return path
