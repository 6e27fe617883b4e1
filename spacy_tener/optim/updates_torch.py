"""Efficient updates for torch parameters with Thinc's optimizers. `TorchShim` calls these functions.

`apply_row_gradient` updates the rows of an embedding table that occur in a batch. The table can have hundreds of
thousands of rows, but a batch uses only a few hundred. `spacy_tener.SGD.v1` can update single rows. For Thinc's
optimizers, the rows and their moments are copied to a small parameter, which is updated and written back (lazy Adam).

`step_together` updates many parameters on a GPU with few kernel launches, using the functions `torch._foreach_*`. For
BERT and the batch size 16, this reduces the time per training step from 222 ms to 112 ms (research/results/gpu.md).
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
    """Update the rows of an embedding table that have a gradient, in place.

    optimizer (Any): A Thinc optimizer, or a function with the same arguments that only collects gradients.
    key (Key): The shim's id and the parameter's name.
    table (Tensor): The embedding table. *Shape:* (rows, width)
    gradient (Tensor): The gradient, a sparse and coalesced tensor. *Shape:* (rows, width)
    """
    if not hasattr(optimizer, "mom1"):
        # `nlp.rehearse` passes a function that collects gradients for a later update. The table can have grown before
        # the next call, so its number of rows is part of the key.
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
    """Temporarily replace an embedding table's moments by those of selected rows.

    Inside the `with` block, the optimizer only contains the moments of the selected rows. After the block, the updated
    moments are written back to those of the complete table, which are stored under another key.

    optimizer (Any): A Thinc optimizer.
    key (Key): The shim's id and the parameter's name.
    table (Tensor): The embedding table. *Shape:* (rows, width)
    rows (Any): Indices of the selected rows, as an array on the table's device. *Shape:* (rows,)
    """
    height, width = table.shape
    table_key = (key[0], f"{key[1]}.whole")
    # Moving averages of embedding tables are disabled. Their update takes time proportional to the table size, and they
    # don't improve the scores. On Weibo's development set, TENER achieves these F1 scores (two seeds, 5 epochs):
    # - averages of all parameters except embedding tables: 52.1 and 54.0
    # - averages of all parameters: 51.7 and 52.4
    # - no averages: 52.7 and 51.4
    averages, optimizer.averages = optimizer.averages, None
    try:
        for moments in (optimizer.mom1, optimizer.mom2):
            moments.pop(key, None)
            if table_key in moments:
                missing = height - len(moments[table_key])
                if missing:
                    # The table has grown since the last update. The moments for its new rows are zero.
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
    """Return True if `step_together` supports an optimizer.

    Thinc's Adam and `spacy_tener.Adam.v1` are supported, without RAdam and with decoupled weight decay.
    """
    if type(optimizer) not in (Optimizer, Adam) or optimizer.use_radam:
        return False
    return optimizer.b1 > 0 and optimizer.b2 > 0 and (optimizer.L2_is_weight_decay or not optimizer.L2)


def step_together(optimizer: Any, keys: Sequence[Key], weights: list[Tensor], gradients: list[Tensor]) -> None:
    """Update many parameters at once with Adam. The result is the same as with one optimizer call per parameter.

    optimizer (Any): An optimizer for which `is_adam` returns True. Its moments and moving averages are updated.
    keys (Sequence[Key]): The shim's id and the parameter's name, for each parameter.
    weights (list[Tensor]): The parameters, which are updated in place.
    gradients (list[Tensor]): The gradients, which are overwritten.
    """
    ages = []
    for key in keys:
        optimizer.nr_update[key] += 1
        ages.append(optimizer.nr_update[key])
    factors = [optimizer.factor_of(name) if isinstance(optimizer, Adam) else 1.0 for _, name in keys]
    rates = [optimizer.learn_rate * factor for factor in factors]
    # Clip each parameter's gradient norm separately, as Thinc does.
    if optimizer.grad_clip:
        norms = torch.stack(torch._foreach_norm(gradients)).clamp(min=1e-12)
        torch._foreach_mul_(gradients, list((optimizer.grad_clip / norms).clamp(max=1.0).unbind()))
    means, squares = (_optimizer_states(moments, keys, weights) for moments in (optimizer.mom1, optimizer.mom2))
    torch._foreach_lerp_(means, gradients, 1 - optimizer.b1)
    torch._foreach_mul_(squares, optimizer.b2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - optimizer.b2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, optimizer.eps)
    # Bias correction of both moments (Kingma and Ba, 2015, section 3), included in the learning rate.
    steps = [
        -rate * (1 - optimizer.b2**age) ** 0.5 / (1 - optimizer.b1**age) for rate, age in zip(rates, ages, strict=True)
    ]
    torch._foreach_addcdiv_(weights, means, roots, steps)
    # Decoupled weight decay, as in AdamW.
    if optimizer.L2:
        torch._foreach_mul_(weights, [1 - rate * optimizer.L2 for rate in rates])
    if optimizer.averages is not None:
        averages = _optimizer_states(optimizer.averages, keys, weights, flat=False)
        # Exponential moving average of the parameters. As in Thinc, its decay increases with the number of updates up
        # to 0.9999.
        changes = torch._foreach_sub(weights, averages)
        torch._foreach_mul_(changes, [1 - min((1 + age) / (10 + age), 0.9999) for age in ages])
        torch._foreach_add_(averages, changes)


def _optimizer_states(
    arrays: dict[Key, Any], keys: Sequence[Key], weights: Sequence[Tensor], *, flat: bool = True
) -> list[Tensor]:
    """Return moments or moving averages as tensors with the parameters' shapes.

    arrays (dict[Key, Any]): The optimizer's moments or averages. Zeros are added for new parameters.
    keys (Sequence[Key]): The shim's id and the parameter's name, for each parameter.
    weights (Sequence[Tensor]): The parameters.
    flat (bool): Whether `arrays` contains one-dimensional arrays. Thinc flattens moments, but not averages.
    """
    states = []
    for key, weight in zip(keys, weights, strict=True):
        if key not in arrays:
            zeros = torch.zeros_like(weight)
            arrays[key] = torch2xp(zeros.ravel() if flat else zeros)
        states.append(xp2torch(arrays[key], device=weight.device).view_as(weight))
    return states
