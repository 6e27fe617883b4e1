"""Steps of an optimizer: lazy updates of embedding tables, and fused steps of all parameters of a model.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` can update rows. For Thinc's own optimizers, which cannot, the rows and
their momentum are gathered, updated as a small parameter of their own, and written back (lazy Adam).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from thinc.api import Optimizer, get_array_module, torch2xp, xp2torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd
from torch.optim.swa_utils import get_ema_multi_avg_fn

from .optimizers import SGD, Adam, RatedOptimizer

Key = tuple[int, str]
Part = TypeVar("Part")

_TABLE = ".whole"


def apply_row_gradient(optimizer: Any, key: Key, table: Tensor, gradient: Tensor) -> None:
    """Update a table in place.

    *Shape:* table: (rows, width); gradient: the same, sparse and coalesced
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
    """Fused step of all parameters of a model on a GPU, by torch's functional optimizers.

    Thinc's optimizers update one parameter after the other, with a dozen small kernel launches each; the results are
    the same. No GPU has timed it: research/results/gpu.md. Momentum and averages stay in the optimizer as Thinc's
    arrays, where spaCy finds them. This object caches tensors of the same memory, which are not copied or pickled.
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
        if optimizer.grad_clip:
            gradients = clip_norms(gradients, optimizer.grad_clip)
        (mean, means), (square, squares) = (
            self._state(getattr(optimizer, name), name, group) for name in ("mom1", "mom2")
        )
        for rate, places in _by_rate(rates):
            adam(
                _take(weights, places),
                _take(gradients, places),
                _take(mean, places),
                _take(square, places),
                [],
                [torch.tensor(float(steps - 1)) for _ in places],
                foreach=True,
                amsgrad=False,
                beta1=optimizer.b1,
                beta2=optimizer.b2,
                lr=rate,
                weight_decay=0.0,
                # Thinc adds eps before the correction of the second moment, torch after it.
                eps=optimizer.eps / (1.0 - optimizer.b2**steps) ** 0.5,
                maximize=False,
            )
            if optimizer.L2:
                # Thinc's decay follows the step: weights -= rate * L2 * weights.
                decayed = _take(weights, places)
                _descend(decayed, decayed, [None] * len(places), rate * optimizer.L2)
        group.put_rows(means, mean)
        group.put_rows(squares, square)
        if optimizer.averages is not None and (whole := group.without_tables()).keys:
            averages, _ = self._state(optimizer.averages, "averages", whole, shaped=True)
            decay = 1.0 - max(9.0 / (10.0 + steps), 1e-4)
            get_ema_multi_avg_fn(decay)(averages, whole.weights, None)

    def _momentum(self, optimizer: SGD, group: Parameters, rates: list[float]) -> None:
        """Compute what `SGD.__call__` does."""
        gradients = group.gradients
        if optimizer.clip_value:
            joined = torch.cat([gradient.flatten() for gradient in gradients])
            gradients = _split_like(joined.clamp_(-optimizer.clip_value, optimizer.clip_value), gradients)
        velocity: list[Tensor | None] = [None] * len(gradients)
        if optimizer.momentum:
            velocity[:], _ = self._state(optimizer.mom1, "mom1", group, shaped=True)
        for rate, places in _by_rate(rates):
            _descend(
                _take(group.weights, places),
                _take(gradients, places),
                _take(velocity, places),
                rate,
                decay=float(optimizer.L2),
                momentum=optimizer.momentum,
            )

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
        adds_decay = optimizer.L2 and not optimizer.L2_is_weight_decay
        return not optimizer.use_radam and optimizer.b1 > 0.0 and optimizer.b2 > 0.0 and not adds_decay
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


def _by_rate(rates: list[float]) -> list[tuple[float, list[int]]]:
    """Return each learning rate with the indices of its parameters; usually there is one."""
    return [(rate, [i for i, other in enumerate(rates) if other == rate]) for rate in dict.fromkeys(rates)]


def _take(parts: list[Part], places: list[int]) -> list[Part]:
    return [parts[place] for place in places]


def _descend(
    weights: list[Tensor],
    gradients: list[Tensor],
    velocity: list[Tensor | None],
    rate: float,
    *,
    decay: float = 0.0,
    momentum: float = 0.0,
) -> None:
    """Take a step of gradient descent for all weights together."""
    sgd(
        weights,
        gradients,
        velocity,
        foreach=True,
        weight_decay=decay,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def clip_norms(gradients: list[Tensor], longest: float) -> list[Tensor]:
    """Clip each gradient's norm to `longest`, by a few kernels for all, and without reading norms on the host."""
    joined = torch.cat([gradient.flatten() for gradient in gradients])
    sizes = torch.tensor([gradient.numel() for gradient in gradients])
    sizes = sizes.pin_memory().to(joined.device, non_blocking=True) if joined.is_cuda else sizes.to(joined.device)
    owners = torch.repeat_interleave(sizes, output_size=len(joined))
    norms = torch.zeros(len(sizes), device=joined.device).index_add_(0, owners, joined.square()).sqrt_()
    joined /= norms.div_(longest).clamp_min_(1.0).index_select(0, owners)
    return _split_like(joined, gradients)


def _split_like(joined: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    parts = joined.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
