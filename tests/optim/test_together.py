"""A step for all parameters at once is the optimizer's own steps, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from thinc import optimizers
from torch import nn

from spacy_tener.optim.optimizers import SGD, Adam
from spacy_tener.optim.updates import StepTogether

OWNER = 7
RATES = {"weight": 0.5, "2.*": 0.0}
MAKERS: dict[str, Callable[[], Any]] = {
    "Thinc's Adam": lambda: optimizers.Adam(0.01),
    "Thinc's SGD": lambda: optimizers.SGD(0.05, L2=0.1),
    "Adam": lambda: Adam(0.01, grad_clip=0.5),
    "Adam with rates and decay": lambda: Adam(0.01, L2=0.1, rates=RATES, use_averages=False),
    "Adam with L2": lambda: Adam(0.01, L2=0.1, L2_is_weight_decay=False, grad_clip=0.0, beta1=0.8, eps=1e-4),
    "momentum": lambda: SGD(0.05, rates=RATES, L2=0.01, clip_value=0.7),
    "Nesterov's momentum": lambda: SGD(0.05, nesterov=True, clip_value=0.0),
    "no momentum": lambda: SGD(0.05, momentum=0.0),
}
every_optimizer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def module_of() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    module.register_parameter("empty", nn.Parameter(torch.zeros(0, 4)))
    return module


def give_gradients(module: nn.Module, step: int) -> list[tuple[str, nn.Parameter]]:
    """Gradients, but none for one parameter at every other step. Returns the parameters that have one."""
    random, given = np.random.default_rng(step), []
    for name, parameter in module.named_parameters():
        gradient = torch.from_numpy(random.normal(size=parameter.shape).astype("f"))
        if name != "0.bias" or step % 2:
            parameter.grad = gradient
            given.append((name, parameter))
    return given


def step_alone(optimizer: Any, parameters: list[tuple[str, nn.Parameter]]) -> None:
    for name, parameter in parameters:
        assert parameter.grad is not None
        weights, _ = optimizer((OWNER, name), parameter.data.numpy(), parameter.grad.numpy())
        parameter.data.copy_(torch.from_numpy(weights))


@every_optimizer
@pytest.mark.parametrize("alternate", [False, True], ids=["together", "in turns"])
def test_weights_and_averages_are_those_of_single_steps(make: Callable[[], Any], alternate: bool) -> None:
    ours, theirs = module_of(), module_of()
    together, alone, step_of = make(), make(), StepTogether()
    for step in range(8):
        if alternate and step % 3 == 2:
            # What is kept for later steps must be what the optimizer itself goes on with.
            step_alone(together, give_gradients(ours, step))
        else:
            assert step_of(together, OWNER, give_gradients(ours, step))
        step_alone(alone, give_gradients(theirs, step))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert together.nr_update.items() >= alone.nr_update.items()
    if alone.averages is not None:
        assert together.averages.keys() == alone.averages.keys()
        for key, average in alone.averages.items():
            assert together.averages[key].shape == average.shape
            np.testing.assert_allclose(together.averages[key], average, rtol=1e-4, atol=1e-6)


@every_optimizer
def test_a_grown_parameter_and_another_module_begin_anew(make: Callable[[], Any]) -> None:
    optimizer, step_of, module = make(), StepTogether(), module_of()
    assert step_of(optimizer, OWNER, give_gradients(module, 1))
    wider = nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 1))
    before = copy.deepcopy(wider.state_dict())
    assert step_of(optimizer, OWNER + 1, give_gradients(wider, 1))
    assert step_of(optimizer, OWNER, give_gradients(wider, 1))
    assert all(torch.isfinite(parameter).all() for parameter in wider.parameters())
    assert not torch.equal(wider[1].bias, before["1.bias"])


def test_what_it_does_not_know_it_leaves_alone() -> None:
    module, step_of = module_of(), StepTogether()
    given, before = give_gradients(module, 1), copy.deepcopy(module.state_dict())
    for optimizer in (optimizers.RAdam(0.1), Adam(0.1, use_radam=True), lambda *_: None):
        assert not step_of(optimizer, OWNER, given)
    assert not step_of(Adam(0.1), OWNER, [])
    torn = nn.Parameter(torch.zeros(4, 3).T)
    torn.grad = torch.ones(3, 4)
    assert not step_of(Adam(0.1), OWNER, [("torn", torn)])
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_copies_keep_nothing() -> None:
    step_of = StepTogether()
    assert step_of(Adam(0.1), OWNER, give_gradients(module_of(), 1))
    assert not copy.deepcopy(step_of)._tensors
