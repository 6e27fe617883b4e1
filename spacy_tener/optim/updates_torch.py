"""Updates by Thinc's optimizers: of embedding tables by the rows in use, and on a GPU of all other parameters at once.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` can update rows. For Thinc's own optimizers, which cannot, the rows and
their momentum are gathered, updated as a small parameter of their own, and written back (lazy Adam).

A step for one parameter on a GPU is a dozen launches, which the host pays for: some 2,400 of a BERT's 3,700 in a step
of 16 texts, at which the GPU works for 13 of 222 ms. `torch._foreach_*` makes a launch for many parameters: the step
takes 112 ms (research/results/gpu.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from thinc.api import Optimizer, get_array_module, torch2xp, xp2torch
from torch import Tensor

from .optimizers import Adam

Key = tuple[int, str]


def apply_row_gradient(optimizer: Any, key: Key, table: Tensor, gradient: Tensor) -> None:
    """Update a table in place.

    table (Tensor): The rows. *Shape:* (rows, width)
    gradient (Tensor): Its gradient, sparse and coalesced. *Shape:* (rows, width)
    """
    if not hasattr(optimizer, "mom1"):
        # `nlp.rehearse` passes a function that notes whole parameters with their gradients, for a step taken later.
        # The height is part of the name, since a table may grow between such steps.
        optimizer((key[0], f"{key[1]}[{len(table)}]"), torch2xp(table), torch2xp(gradient.to_dense()))
        return
    rows = gradient.indices()[0]
    weights, d_weights = cast(Any, torch2xp(table[rows])), cast(Any, torch2xp(gradient.values()))
    if hasattr(optimizer, "update_rows"):
        optimizer.update_rows(key, weights, d_weights)
    else:
        with _row_momentum(optimizer, key, table, torch2xp(rows)):
            weights, _ = optimizer(key, weights, d_weights)
    table[rows] = xp2torch(weights, device=table.device)


@contextlib.contextmanager
def _row_momentum(optimizer: Any, key: Key, table: Tensor, rows: Any) -> Iterator[None]:
    """Give the optimizer, under `key`, the momentum of the rows only; keep that of the table under another key."""
    height, width = table.shape
    table_key = (key[0], f"{key[1]}.whole")  # the key of the table's momentum
    # Parameter averages have the shape of the whole table, which every step would have to read. They are not needed:
    # TENER on Weibo's dev part after 5 epochs, two seeds, had F1 52.1 and 54.0 with averages of all but rows, 51.7 and
    # 52.4 with those of rows too, 52.7 and 51.4 with none.
    averages, optimizer.averages = optimizer.averages, None
    try:
        for moments in (optimizer.mom1, optimizer.mom2):
            moments.pop(key, None)
            if table_key in moments:
                missing = height - len(moments[table_key])
                if missing:
                    # New rows of a table start with zero momentum.
                    pad = get_array_module(moments[table_key]).pad
                    moments[table_key] = pad(moments[table_key], ((0, missing), (0, 0)))
                moments[key] = moments[table_key][rows].ravel()
        yield
        for moments in (optimizer.mom1, optimizer.mom2):
            row_moments = moments.pop(key, None)
            if row_moments is not None:
                if table_key not in moments:
                    moments[table_key] = get_array_module(row_moments).zeros((height, width), dtype=row_moments.dtype)
                moments[table_key][rows] = row_moments.reshape(-1, width)
    finally:
        optimizer.averages = averages


def is_adam(optimizer: Any) -> bool:
    """Return True for optimizers whose steps `step_together` makes: Thinc's Adam, and ours with rates by name."""
    if type(optimizer) not in (Optimizer, Adam) or optimizer.use_radam:
        return False
    return optimizer.b1 > 0 and optimizer.b2 > 0 and (optimizer.L2_is_weight_decay or not optimizer.L2)


def step_together(optimizer: Any, keys: Sequence[Key], weights: list[Tensor], gradients: list[Tensor]) -> None:
    """Make Adam's step for many parameters, as the optimizer makes it for one. Gradients are used up.

    keys (Sequence[Key]): The shim's id and the parameter's name, of each.
    """
    ages = []
    for key in keys:
        optimizer.nr_update[key] += 1
        ages.append(optimizer.nr_update[key])
    factors = [optimizer.factor_of(name) if isinstance(optimizer, Adam) else 1.0 for _, name in keys]
    rates = [optimizer.learn_rate * factor for factor in factors]
    if optimizer.grad_clip:
        norms = torch.stack(torch._foreach_norm(gradients)).clamp(min=1e-12)
        torch._foreach_mul_(gradients, list((optimizer.grad_clip / norms).clamp(max=1.0).unbind()))
    means, squares = (_optimizer_states(moments, keys, weights) for moments in (optimizer.mom1, optimizer.mom2))
    torch._foreach_lerp_(means, gradients, 1 - optimizer.b1)
    torch._foreach_mul_(squares, optimizer.b2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - optimizer.b2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, optimizer.eps)
    # The means begin at zero, which these correct.
    steps = [
        -rate * (1 - optimizer.b2**age) ** 0.5 / (1 - optimizer.b1**age) for rate, age in zip(rates, ages, strict=True)
    ]
    torch._foreach_addcdiv_(weights, means, roots, steps)
    if optimizer.L2:
        torch._foreach_mul_(weights, [1 - rate * optimizer.L2 for rate in rates])
    if optimizer.averages is not None:
        averages = _optimizer_states(optimizer.averages, keys, weights, flat=False)
        changes = torch._foreach_sub(weights, averages)
        torch._foreach_mul_(changes, [1 - min((1 + age) / (10 + age), 0.9999) for age in ages])
        torch._foreach_add_(averages, changes)


def _optimizer_states(
    arrays: dict[Key, Any], keys: Sequence[Key], weights: Sequence[Tensor], *, flat: bool = True
) -> list[Tensor]:
    """Return what an optimizer keeps of each parameter, which begins as zeros.

    flat (bool): It is states as one row, as Thinc keeps momentum.
    """
    states = []
    for key, weight in zip(keys, weights, strict=True):
        if key not in arrays:
            zeros = torch.zeros_like(weight)
            arrays[key] = torch2xp(zeros.ravel() if flat else zeros)
        states.append(xp2torch(arrays[key], device=weight.device).view_as(weight))
    return states
