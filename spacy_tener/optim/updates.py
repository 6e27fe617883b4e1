"""Steps of an optimizer: lazy updates of embedding tables, and fused steps of all parameters of a model.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` can update rows. For Thinc's own optimizers, which cannot, the rows and
their momentum are gathered, updated as a small parameter of their own, and written back (lazy Adam).
"""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from thinc.api import Optimizer, get_array_module, torch2xp, xp2torch
from torch import Tensor, nn

from .optimizers import SGD, Adam, RatedOptimizer

Key = tuple[int, str]

_TABLE = ".whole"
_SMALL = 1 << 17
"""Gradients of so many numbers are joined before they are shortened: a copy takes less time than a launch each."""


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


def _whole(key: Key) -> Key:
    """Return the key by which an optimizer keeps the momentum of a whole table."""
    return key if key[1].endswith(_TABLE) else (key[0], key[1] + _TABLE)


@contextlib.contextmanager
def _rows_alone(optimizer: Any, key: Key, table: Tensor, rows: Any) -> Iterator[None]:
    """Give the optimizer, under `key`, the momentum of the rows only; keep that of the table under another key."""
    height, width = table.shape
    whole = _whole(key)
    # Parameter averages have the shape of the whole table, which every step would have to read. They are not needed:
    # TENER on Weibo's dev part after 5 epochs, two seeds, had F1 52.1 and 54.0 with averages of all but rows, 51.7 and
    # 52.4 with those of rows too, 52.7 and 51.4 with none.
    averages, optimizer.averages = optimizer.averages, None
    try:
        for moments in (optimizer.mom1, optimizer.mom2):
            moments.pop(key, None)
            if whole in moments:
                if missing := height - len(moments[whole]):
                    # New rows of a table start with zero momentum.
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
    """Parameters that have been updated equally often, each whole or, for a table, its rows with a gradient.

    keys: the optimizer's keys of the parameters.
    weights, gradients: in the shapes of the parameters, or of the rows.
    steps: number of updates of each, including this one.
    tables: table and indices of the rows; None for a whole parameter.
    """

    keys: list[Key]
    weights: list[Tensor]
    gradients: list[Tensor]
    steps: int
    tables: list[tuple[Tensor, Tensor] | None]

    def without_tables(self) -> Parameters:
        """Return the whole parameters only."""
        own = [place for place, rows in enumerate(self.tables) if rows is None]
        weights, gradients = ([every[place] for place in own] for every in (self.weights, self.gradients))
        return Parameters([self.keys[place] for place in own], weights, gradients, self.steps, [None] * len(own))

    def put_rows(self, of_tables: list[Tensor], updated: list[Tensor]) -> None:
        """Write rows back into tables of weights or of momentum."""
        own = ((rows, part) for rows, part in zip(self.tables, updated, strict=True) if rows is not None)
        for table, ((_, rows), part) in zip(of_tables, own, strict=True):
            table.index_copy_(0, rows, part)


class StepTogether:
    """Fused step of all parameters of a model, by torch's operations on lists of tensors.

    Thinc's optimizers update one parameter after the other, with a dozen small kernel launches each on a GPU; the
    results are the same. Momentum and averages stay in the optimizer as Thinc's arrays, where spaCy finds them; this
    object caches tensors of the same memory, which are not copied or pickled with it.
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, Key], tuple[Any, Tensor]] = {}

    def __reduce__(self) -> tuple[type[StepTogether], tuple[()]]:
        return StepTogether, ()

    def __call__(self, optimizer: Any, parameters: Sequence[tuple[Key, nn.Parameter]]) -> set[Key]:
        """Update parameters by their gradients. Returns the keys of the updated ones: none for an unknown optimizer,
        and not those with sparse gradients for SGD, which has its own update of rows.

        parameters: with the optimizer's keys: the id of the module's shim, and the name of the parameter.
        """
        if not parameters or not _is_known(optimizer) or not _shares_memory(parameters[0][1]):
            return set()
        if not all(parameter.is_contiguous() for _, parameter in parameters):
            return set()
        owners = {owner for (owner, _), _ in parameters}
        # A module that has grown has a new id.
        self._tensors = {place: kept for place, kept in self._tensors.items() if place[1][0] in owners}
        step = self._adam
        if type(optimizer) is SGD:
            step, parameters = self._momentum, [each for each in parameters if not cast(Tensor, each[1].grad).is_sparse]
        for group in _groups(optimizer, parameters):
            step(optimizer, group, [_rate(optimizer, name) for _, name in group.keys])
            group.put_rows([table for table, _ in filter(None, group.tables)], group.weights)
        return {key for key, _ in parameters}

    def _adam(self, optimizer: Any, group: Parameters, rates: list[float]) -> None:
        """Compute what `thinc.optimizers.Optimizer.__call__` does; for tables, within `_rows_alone`."""
        weights, gradients, steps = group.weights, group.gradients, group.steps
        if optimizer.L2 and not optimizer.L2_is_weight_decay:
            torch._foreach_add_(gradients, weights, alpha=optimizer.L2)
        if optimizer.grad_clip:
            gradients = _clipped(gradients, optimizer.grad_clip, group.tables)
        if optimizer.b1 > 0.0:
            (mean, means), (square, squares) = (
                self._state(getattr(optimizer, name), name, group) for name in ("mom1", "mom2")
            )
            torch._foreach_lerp_(mean, gradients, 1.0 - optimizer.b1)
            torch._foreach_mul_(square, optimizer.b2)
            torch._foreach_addcmul_(square, gradients, gradients, 1.0 - optimizer.b2)
            root = torch._foreach_sqrt(square)
            torch._foreach_add_(root, optimizer.eps)
            fix = (1.0 - optimizer.b2**steps) ** 0.5 / (1.0 - optimizer.b1**steps)
            torch._foreach_addcdiv_(weights, mean, root, [-rate * fix for rate in rates])
            group.put_rows(means, mean)
            group.put_rows(squares, square)
        else:
            torch._foreach_add_(weights, torch._foreach_mul(gradients, [-rate for rate in rates]))
        if optimizer.L2 and optimizer.L2_is_weight_decay:
            torch._foreach_mul_(weights, [1.0 - rate * optimizer.L2 for rate in rates])
        if optimizer.averages is not None and (whole := group.without_tables()).keys:
            averages, _ = self._state(optimizer.averages, "averages", whole, shaped=True)
            torch._foreach_lerp_(averages, whole.weights, max(9.0 / (10.0 + steps), 1e-4))

    def _momentum(self, optimizer: SGD, group: Parameters, rates: list[float]) -> None:
        """Compute what `SGD.__call__` does."""
        weights, gradients = group.weights, group.gradients
        if optimizer.clip_value:
            torch._foreach_clamp_min_(gradients, -optimizer.clip_value)
            torch._foreach_clamp_max_(gradients, optimizer.clip_value)
        if optimizer.L2:
            torch._foreach_add_(gradients, weights, alpha=optimizer.L2)
        if optimizer.momentum:
            velocity, _ = self._state(optimizer.mom1, "mom1", group, shaped=True)
            torch._foreach_mul_(velocity, optimizer.momentum)
            torch._foreach_add_(velocity, gradients)
            gradients = velocity
        torch._foreach_add_(weights, torch._foreach_mul(gradients, [-rate for rate in rates]))

    def _state(
        self, arrays: dict[Key, Any], name: str, group: Parameters, *, shaped: bool = False
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the optimizer's state of each parameter, or of a table's rows, in its shape; and that of whole tables.

        shaped: True if the optimizer keeps it in the parameter's shape, False if flattened.
        """
        states, of_tables = [], []
        for key, weights, rows in zip(group.keys, group.weights, group.tables, strict=True):
            if rows is None:
                states.append(self._tensor(arrays, key, name, weights, shaped=shaped))
            else:
                of_tables.append(self._tensor(arrays, _whole(key), name, rows[0], shaped=True))
                states.append(of_tables[-1].index_select(0, rows[1]))
        return states, of_tables

    def _tensor(self, arrays: dict[Key, Any], key: Key, name: str, like: Tensor, *, shaped: bool) -> Tensor:
        found, place = arrays.get(key), (name, key)
        array, tensor = self._tensors.get(place, (None, like))
        if array is None or array is not found or tensor.shape != like.shape:
            shape = like.shape if shaped else (like.numel(),)
            # No array: the parameter's first step. Another shape: the parameter has grown.
            fits = found is not None and found.shape == tuple(shape)
            tensor = xp2torch(cast(Any, found), device=like.device) if fits else torch.zeros_like(like).view(shape)
            if found is not None and not fits and key == _whole(key):
                # New rows of a table start with zero momentum.
                tensor[: len(found)] = xp2torch(found, device=like.device)
            arrays[key] = torch2xp(tensor)
            tensor = tensor.view_as(like)
            self._tensors[place] = arrays[key], tensor
        return tensor


def _is_known(optimizer: Any) -> bool:
    if type(optimizer) in (Optimizer, Adam):
        return not optimizer.use_radam and (optimizer.b1 > 0.0) == (optimizer.b2 > 0.0)
    return type(optimizer) is SGD


def _shares_memory(parameter: Tensor) -> bool:
    """Return True if Thinc's arrays share the tensors' memory. On Apple's GPU they are copies on the host."""
    return parameter.is_cpu or not isinstance(torch2xp(parameter.data[:0]), np.ndarray)


def _rate(optimizer: Optimizer, name: str) -> float:
    return optimizer.rate_of(name) if isinstance(optimizer, RatedOptimizer) else float(optimizer.learn_rate)


def _groups(optimizer: Optimizer, parameters: Sequence[tuple[Key, nn.Parameter]]) -> list[Parameters]:
    """Count this update, and group parameters by their number of updates; usually there is one group."""
    by_steps: dict[int, list[tuple[Key, nn.Parameter]]] = defaultdict(list)
    for key, parameter in parameters:
        if len(parameter):
            optimizer.nr_update[key] += 1
            by_steps[optimizer.nr_update[key]].append((key, parameter))
    groups = []
    for steps, own in by_steps.items():
        group = Parameters([], [], [], steps, [])
        for key, parameter in own:
            table, weights, gradient = None, parameter.data, cast(Tensor, parameter.grad)
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                table = weights, gradient.indices()[0]
                weights, gradient = weights.index_select(0, table[1]), gradient.values()
            group.keys.append(key)
            group.weights.append(weights)
            group.gradients.append(gradient.contiguous())
            group.tables.append(table)
        groups.append(group)
    return groups


def _clipped(gradients: list[Tensor], longest: float, tables: Sequence[object]) -> list[Tensor]:
    """Clip each gradient's norm to `longest`, without reading norms on the host.

    One kernel cannot multiply tensors of many shapes by a number each, so small ones are joined first. Rows of tables
    are not, since their number changes with each batch.
    """
    excess = torch.stack(torch._foreach_norm(gradients)).div_(longest).clamp_min_(1.0)
    small = [i for i, each in enumerate(gradients) if each.numel() <= _SMALL and tables[i] is None]
    shortened = [each if i in small else each / excess[i] for i, each in enumerate(gradients)]
    if small:
        parts = [gradients[place] for place in small]
        sizes = tuple(part.numel() for part in parts)
        joined = torch.cat([part.flatten() for part in parts])
        joined /= excess.index_select(0, _owners(sizes, tuple(small), joined.device))
        for place, part in zip(small, joined.split(sizes), strict=True):
            shortened[place] = part.view(gradients[place].shape)
    return shortened


@functools.lru_cache(maxsize=32)
def _owners(sizes: tuple[int, ...], numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the index of the tensor that each element of some joined tensors belongs to."""
    return torch.from_numpy(np.repeat(numbers, sizes)).to(device)
