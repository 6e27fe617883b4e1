"""Steps of an optimizer: rows of embedding tables alone, or all parameters of a module at once.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` knows how to update rows. Thinc's own optimizers do not; for them the rows,
and the rows of their momentum, are gathered, updated as a small parameter of their own, and put back: what the
literature calls lazy Adam.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from thinc.api import Optimizer, get_array_module, torch2xp, xp2torch
from torch import Tensor, nn

from .optimizers import MomentumSGD, RatedAdam, RatedOptimizer

Key = tuple[int, str]


def apply_row_gradient(optimizer: Any, key: Key, table: Tensor, gradient: Tensor) -> None:
    """Update a table in place.

    *Shape* table: [rows, width]; gradient: the same, sparse and coalesced
    """
    if not hasattr(optimizer, "mom1"):
        # `nlp.rehearse` passes a function that notes whole parameters with their gradients, for a step taken later.
        # The height is part of the name, since a table may grow between such steps.
        optimizer((key[0], f"{key[1]}[{len(table)}]"), torch2xp(table), torch2xp(gradient.to_dense()))
        return
    rows = gradient.indices()[0]
    used, d_used = cast(Any, torch2xp(table[rows])), cast(Any, torch2xp(gradient.values()))
    if hasattr(optimizer, "update_rows"):
        optimizer.update_rows(key, used, d_used)
    else:
        with _rows_alone(optimizer, key, table, torch2xp(rows)):
            used, _ = optimizer(key, used, d_used)
    table[rows] = xp2torch(used, device=table.device)


@contextlib.contextmanager
def _rows_alone(optimizer: Any, key: Key, table: Tensor, rows: Any) -> Iterator[None]:
    """Lend the optimizer, for `key`, the momentum of the rows alone; keep that of the whole table under another key."""
    height, width = table.shape
    whole = key[0], f"{key[1]}.whole"
    # Running averages have the shape of the whole table, so that a step would have to read all of it. Nor are they
    # missed: TENER on Weibo's dev part after 5 epochs, two seeds, had F1 52.1 and 54.0 with averages of all but rows,
    # 51.7 and 52.4 with those of rows too, 52.7 and 51.4 with none.
    averages, optimizer.averages = optimizer.averages, None
    try:
        for moments in (optimizer.mom1, optimizer.mom2):
            moments.pop(key, None)
            if whole in moments:
                if missing := height - len(moments[whole]):
                    # Rows that the table has gained start without momentum.
                    pad = get_array_module(moments[whole]).pad
                    moments[whole] = pad(moments[whole], ((0, missing), (0, 0)))
                moments[key] = moments[whole][rows].ravel()
        yield
        for moments in (optimizer.mom1, optimizer.mom2):
            used = moments.pop(key, None)
            if used is not None:
                if whole not in moments:
                    moments[whole] = get_array_module(used).zeros((height, width), dtype=used.dtype)
                moments[whole][rows] = used.reshape(-1, width)
    finally:
        optimizer.averages = averages


@dataclass
class Parameters:
    """Some parameters of a module that have been updated equally often.

    keys: by which the optimizer knows them.
    weights, gradients: their numbers, in the parameters' shapes.
    steps: how often they have been updated, this time counted.
    """

    keys: list[Key]
    weights: list[Tensor]
    gradients: list[Tensor]
    steps: int


class StepTogether:
    """Steps of one module. Copies begin without what it keeps.

    By torch's operations on lists of tensors. Thinc's optimizers take one parameter after the other, which on a GPU is
    a dozen launches of small kernels for each. The sums are the same. Momentum and averages stay in the optimizer as
    Thinc's arrays, where spaCy finds them: what is kept here are tensors of the same memory.
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, str], tuple[Any, Tensor]] = {}

    def __reduce__(self) -> tuple[type[StepTogether], tuple[()]]:
        return StepTogether, ()

    def __call__(self, optimizer: Any, owner: int, parameters: Sequence[tuple[str, nn.Parameter]]) -> bool:
        """Update parameters by their gradients. Returns whether that was done: not every optimizer is known here.

        owner: the id of the module's shim.
        """
        if not parameters or not _is_known(optimizer) or not _shares_memory(parameters[0][1]):
            return False
        if not all(parameter.is_contiguous() for _, parameter in parameters):
            return False
        step = self._momentum if type(optimizer) is MomentumSGD else self._adam
        for group in _groups(optimizer, owner, parameters):
            step(optimizer, group, [_rate(optimizer, name) for _, name in group.keys])
        return True

    def _adam(self, optimizer: Any, group: Parameters, rates: list[float]) -> None:
        """As `thinc.optimizers.Optimizer.__call__`."""
        weights, gradients, steps = group.weights, group.gradients, group.steps
        if optimizer.L2 and not optimizer.L2_is_weight_decay:
            torch._foreach_add_(gradients, weights, alpha=optimizer.L2)
        if optimizer.grad_clip:
            _clip(gradients, optimizer.grad_clip)
        if optimizer.b1 > 0.0:
            mean, square = (self._state(getattr(optimizer, name), name, group) for name in ("mom1", "mom2"))
            torch._foreach_lerp_(mean, gradients, 1.0 - optimizer.b1)
            torch._foreach_mul_(square, optimizer.b2)
            torch._foreach_addcmul_(square, gradients, gradients, 1.0 - optimizer.b2)
            root = torch._foreach_sqrt(square)
            torch._foreach_add_(root, optimizer.eps)
            fix = (1.0 - optimizer.b2**steps) ** 0.5 / (1.0 - optimizer.b1**steps)
            torch._foreach_addcdiv_(weights, mean, root, [-rate * fix for rate in rates])
        else:
            torch._foreach_mul_(gradients, [-rate for rate in rates])
            torch._foreach_add_(weights, gradients)
        if optimizer.L2 and optimizer.L2_is_weight_decay:
            torch._foreach_mul_(weights, [1.0 - rate * optimizer.L2 for rate in rates])
        if optimizer.averages is not None:
            averages = self._state(optimizer.averages, "averages", group, shaped=True)
            torch._foreach_lerp_(averages, weights, max(9.0 / (10.0 + steps), 1e-4))

    def _momentum(self, optimizer: MomentumSGD, group: Parameters, rates: list[float]) -> None:
        """As `MomentumSGD.__call__`."""
        weights, gradients = group.weights, group.gradients
        if optimizer.clip_value:
            torch._foreach_clamp_min_(gradients, -optimizer.clip_value)
            torch._foreach_clamp_max_(gradients, optimizer.clip_value)
        if optimizer.L2:
            torch._foreach_add_(gradients, weights, alpha=optimizer.L2)
        if optimizer.momentum:
            velocity = self._state(optimizer.mom1, "mom1", group, shaped=True)
            torch._foreach_mul_(velocity, optimizer.momentum)
            torch._foreach_add_(velocity, gradients)
            if optimizer.nesterov:
                torch._foreach_add_(gradients, velocity, alpha=optimizer.momentum)
            else:
                gradients = velocity
        torch._foreach_add_(weights, torch._foreach_mul(gradients, [-rate for rate in rates]))

    def _state(self, arrays: dict[Key, Any], name: str, group: Parameters, *, shaped: bool = False) -> list[Tensor]:
        """Return the state that an optimizer keeps of each parameter, as tensors in the parameters' shapes.

        shaped: whether the optimizer too keeps it in the parameter's shape, rather than as one row.
        """
        return [
            self._tensor(arrays, key, name, weights, shaped=shaped)
            for key, weights in zip(group.keys, group.weights, strict=True)
        ]

    def _tensor(self, arrays: dict[Key, Any], key: Key, name: str, like: Tensor, *, shaped: bool) -> Tensor:
        found, place = arrays.get(key), (name, key[1])
        array, tensor = self._tensors.get(place, (None, like))
        if array is None or array is not found:
            shape = like.shape if shaped else (like.numel(),)
            # Another shape is that of a parameter before it grew; without any this is the parameter's first step.
            fits = found is not None and found.shape == tuple(shape)
            tensor = xp2torch(cast(Any, found), device=like.device) if fits else torch.zeros_like(like).view(shape)
            arrays[key] = torch2xp(tensor)
            tensor = tensor.view_as(like)
            self._tensors[place] = arrays[key], tensor
        return tensor


def _is_known(optimizer: Any) -> bool:
    if type(optimizer) in (Optimizer, RatedAdam):
        return not optimizer.use_radam and (optimizer.b1 > 0.0) == (optimizer.b2 > 0.0)
    return type(optimizer) is MomentumSGD


def _shares_memory(parameter: Tensor) -> bool:
    """Return whether Thinc's arrays are the tensors' memory. On Apple's GPU they are copies on the host."""
    return parameter.is_cpu or not isinstance(torch2xp(parameter.data[:0]), np.ndarray)


def _rate(optimizer: Optimizer, name: str) -> float:
    return optimizer.rate_of(name) if isinstance(optimizer, RatedOptimizer) else float(optimizer.learn_rate)


def _groups(optimizer: Optimizer, owner: int, parameters: Sequence[tuple[str, nn.Parameter]]) -> list[Parameters]:
    """Return the parameters by how often they have been updated, this time counted; most often that is one group."""
    by_steps: dict[int, list[tuple[Key, nn.Parameter]]] = defaultdict(list)
    for name, parameter in parameters:
        if len(parameter):
            key = owner, name
            optimizer.nr_update[key] += 1
            by_steps[optimizer.nr_update[key]].append((key, parameter))
    groups = []
    for steps, own in by_steps.items():
        keys, given = [key for key, _ in own], [parameter for _, parameter in own]
        gradients = [cast(Tensor, parameter.grad).contiguous() for parameter in given]
        groups.append(Parameters(keys, [parameter.data for parameter in given], gradients, steps))
    return groups


def _clip(gradients: list[Tensor], longest: float) -> None:
    """Shorten each gradient that is longer than that, without asking how long it is."""
    norms = torch._foreach_norm(gradients)
    torch._foreach_clamp_min_(norms, 1e-12)
    scales = torch._foreach_clamp_max(norms, longest)
    torch._foreach_div_(scales, norms)
    torch._foreach_mul_(gradients, scales)
