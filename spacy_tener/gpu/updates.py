"""Fused steps of all parameters of a model, by torch's functional optimizers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from thinc.api import Optimizer, torch2xp, xp2torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ..optim.optimizers import SGD, Adam, RatedOptimizer
from ..optim.updates import Key, table_key

Part = TypeVar("Part")


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
        """Compute what `thinc.optimizers.Optimizer.__call__` does; for tables, see `optim/updates.py`."""
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
                of_tables.append(self._tensor(arrays, table_key(key), name, rows[0], shaped=True))
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
            if found is not None and not fits and key == table_key(key):
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
