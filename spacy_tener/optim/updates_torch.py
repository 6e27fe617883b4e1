"""Fast updates of torch parameters by Thinc's optimizers. `nn/shim.py` calls these functions.

`apply_row_gradient` updates the rows of an embedding table that a batch uses. A table can have hundreds of thousands of
rows, of which a batch uses a few hundred, so that the time of a step must not depend on the size of the table.
`spacy_tener.SGD.v1` can update single rows. For Thinc's optimizers, the used rows and their momentum are gathered,
updated as a small parameter, and written back (lazy Adam).

`step_together` updates many parameters on a GPU at once. Updating a single parameter launches a dozen kernels. For a
BERT and a batch of 16 texts, these are 2,400 of 3,700 launches in a step of 222 ms, in which the GPU is busy for 13 ms.
The functions `torch._foreach_*` process many parameters in one launch, and the step takes 112 ms
(research/results/gpu.md).
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
    """Update an embedding table in place.

    optimizer (Any): An optimizer of Thinc, or a function with the same arguments that collects gradients.
    key (Key): The id of the shim and the name of the parameter.
    table (Tensor): The embedding table. *Shape:* (rows, width)
    gradient (Tensor): The gradient, sparse and coalesced. *Shape:* (rows, width)
    """
    if not hasattr(optimizer, "mom1"):
        # `nlp.rehearse` passes a function that collects parameters and gradients for a later step. The number of rows
        # is part of the key, since the table can grow between such steps.
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
    """Replace the momentum under `key` by the momentum of the selected rows, and write it back afterwards.

    The momentum of the complete table is stored under another key.

    rows (Any): Indices of the rows, as an array of the table's device. *Shape:* (rows,)
    """
    height, width = table.shape
    table_key = (key[0], f"{key[1]}.whole")
    # Averages of embedding tables are off, since updating them takes time that depends on the size of the table. They
    # do not improve the scores: on the development set of Weibo, TENER achieves an F1 of 52.1 and 54.0 (two seeds, 5
    # epochs) with averages of all other parameters, 51.7 and 52.4 with averages of all parameters, and 52.7 and 51.4
    # without.
    averages, optimizer.averages = optimizer.averages, None
    try:
        for moments in (optimizer.mom1, optimizer.mom2):
            moments.pop(key, None)
            if table_key in moments:
                missing = height - len(moments[table_key])
                if missing:
                    # The table has grown. New rows start with a momentum of zero.
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
    """Return True if `step_together` implements the optimizer: Thinc's Adam or `spacy_tener.Adam.v1`, without RAdam."""
    if type(optimizer) not in (Optimizer, Adam) or optimizer.use_radam:
        return False
    return optimizer.b1 > 0 and optimizer.b2 > 0 and (optimizer.L2_is_weight_decay or not optimizer.L2)


def step_together(optimizer: Any, keys: Sequence[Key], weights: list[Tensor], gradients: list[Tensor]) -> None:
    """Update many parameters with Adam, with the same result as calling the optimizer for each parameter.

    optimizer (Any): The optimizer, for which `is_adam` is true. Its moments and averages are updated.
    keys (Sequence[Key]): The id of the shim and the name of each parameter.
    weights (list[Tensor]): The parameters, which are updated in place.
    gradients (list[Tensor]): The gradients, which are overwritten.
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
    # The factors of the learning rate correct the bias of moving averages that start at zero (Kingma and Ba, 2015,
    # section 3).
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
    """Return an optimizer's moments or averages of parameters, with the shapes of the parameters. Missing ones are
    zeros.

    arrays (dict[Key, Any]): The moments or averages by key. Missing entries are added.
    flat (bool): Whether the arrays are one-dimensional, as Thinc stores moments.
    """
    states = []
    for key, weight in zip(keys, weights, strict=True):
        if key not in arrays:
            zeros = torch.zeros_like(weight)
            arrays[key] = torch2xp(zeros.ravel() if flat else zeros)
        states.append(xp2torch(arrays[key], device=weight.device).view_as(weight))
    return states
