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

from spacy_tener.gpu.updates import StepTogether, clip_norms
from spacy_tener.optim.optimizers import SGD, Adam
from spacy_tener.optim.updates import apply_row_gradient

OWNER = 7
RATES = {"weight": 0.5, "2.*": 0.0}
MAKERS: dict[str, Callable[[], Any]] = {
    "Thinc's Adam": lambda: optimizers.Adam(0.01),
    "Adam": lambda: Adam(0.01, grad_clip=0.5),
    "Adam with rates and decay": lambda: Adam(0.01, L2=0.1, rates=RATES, use_averages=False),
    "Adam without clipping": lambda: Adam(0.01, grad_clip=0.0, beta1=0.8, eps=1e-4),
    "momentum": lambda: SGD(0.05, rates=RATES, L2=0.01, clip_value=0.7),
    "momentum without clipping": lambda: SGD(0.05, clip_value=0.0),
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
    random, with_gradients = np.random.default_rng(step), []
    for name, parameter in module.named_parameters():
        gradient = torch.from_numpy(random.normal(size=parameter.shape).astype("f"))
        if name != "0.bias" or step % 2:
            parameter.grad = gradient
            with_gradients.append((name, parameter))
    return with_gradients


def keyed(parameters: list[tuple[str, nn.Parameter]], owner: int = OWNER) -> list[tuple[tuple[int, str], nn.Parameter]]:
    return [((owner, name), parameter) for name, parameter in parameters]


def step_alone(optimizer: Any, parameters: list[tuple[str, nn.Parameter]]) -> None:
    for name, parameter in parameters:
        assert parameter.grad is not None
        weights, _ = optimizer((OWNER, name), parameter.data.numpy(), parameter.grad.numpy())
        parameter.data.copy_(torch.from_numpy(weights))


@every_optimizer
@pytest.mark.parametrize("alternate", [False, True], ids=["together", "in turns"])
def test_weights_and_averages_are_those_of_single_steps(make: Callable[[], Any], alternate: bool) -> None:
    stepped_together, stepped_alone = module_of(), module_of()
    together, alone, step_of = make(), make(), StepTogether()
    for step in range(8):
        if alternate and step % 3 == 2:
            # What is kept for later steps must be what the optimizer itself goes on with.
            step_alone(together, give_gradients(stepped_together, step))
        else:
            assert step_of(together, keyed(give_gradients(stepped_together, step)))
        step_alone(alone, give_gradients(stepped_alone, step))
    for a, b in zip(stepped_together.parameters(), stepped_alone.parameters(), strict=True):
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
    assert step_of(optimizer, keyed(give_gradients(module, 1)))
    wider = nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 1))
    before = copy.deepcopy(wider.state_dict())
    assert step_of(optimizer, keyed(give_gradients(wider, 1), OWNER + 1))
    assert step_of(optimizer, keyed(give_gradients(wider, 1)))
    assert all(torch.isfinite(parameter).all() for parameter in wider.parameters())
    assert not torch.equal(wider[1].bias, before["1.bias"])


def test_what_it_does_not_know_it_leaves_alone() -> None:
    module, step_of = module_of(), StepTogether()
    with_gradients, before = give_gradients(module, 1), copy.deepcopy(module.state_dict())
    unknown = optimizers.RAdam(0.1), optimizers.SGD(0.05), Adam(0.1, L2=0.1, L2_is_weight_decay=False), lambda *_: None
    for optimizer in unknown:
        assert not step_of(optimizer, keyed(with_gradients))
    assert not step_of(Adam(0.1), [])
    torn = nn.Parameter(torch.zeros(4, 3).T)
    torn.grad = torch.ones(3, 4)
    assert not step_of(Adam(0.1), keyed([("torn", torn)]))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_copies_keep_nothing() -> None:
    step_of = StepTogether()
    assert step_of(Adam(0.1), keyed(give_gradients(module_of(), 1)))
    assert not copy.deepcopy(step_of)._tensors


ADAMS = {
    "Adam": lambda: Adam(0.01, grad_clip=0.5),
    "with decay": lambda: Adam(0.01, L2=0.1, use_averages=False),
    "without clipping": lambda: Adam(0.01, grad_clip=0.0, beta1=0.8, eps=1e-4),
}


def rows_gradient(height: int, step: int) -> torch.Tensor:
    """The gradient of some rows of a table, of which one is used twice."""
    random = np.random.default_rng(step)
    rows = random.integers(height, size=4)
    values = torch.from_numpy(random.normal(size=(5, 3)).astype("f"))
    index = torch.from_numpy(np.append(rows, rows[:1]))[None]
    return torch.sparse_coo_tensor(index, values, (height, 3), check_invariants=True)


@pytest.mark.parametrize("make", ADAMS.values(), ids=ADAMS)
def test_rows_of_tables_learn_beside_whole_parameters(make: Callable[[], Any]) -> None:
    """Also in turns with single steps, and when the table has grown."""
    tables = [torch.ones(6, 3), torch.ones(6, 3)]
    biases = [torch.zeros(2), torch.zeros(2)]
    together, alone, step_of = make(), make(), StepTogether()
    for step in range(9):
        if step == 5:
            tables = [torch.cat((table, torch.ones(2, 3))) for table in tables]
        gradient, slope = rows_gradient(len(tables[0]), step), torch.full((2,), 0.1 * step - 0.3)
        if step % 4 == 3:
            apply_row_gradient(together, (OWNER, "table"), tables[0], gradient.coalesce())
            step_alone(together, [("bias", with_gradient(biases[0], slope))])
        else:
            parameters = [("table", with_gradient(tables[0], gradient)), ("bias", with_gradient(biases[0], slope))]
            assert step_of(together, keyed(parameters)) == {(OWNER, "table"), (OWNER, "bias")}
        apply_row_gradient(alone, (OWNER, "table"), tables[1], gradient.coalesce())
        step_alone(alone, [("bias", with_gradient(biases[1], slope))])
        torch.testing.assert_close(tables[0], tables[1], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(biases[0], biases[1], rtol=1e-5, atol=1e-6)
    assert (together.averages or {}).keys() == (alone.averages or {}).keys()


def with_gradient(values: torch.Tensor, gradient: torch.Tensor) -> nn.Parameter:
    """A parameter of this memory."""
    parameter = nn.Parameter(values)
    parameter.grad = gradient.clone()
    return parameter


def test_rows_with_momentum_are_left_to_the_optimizer() -> None:
    table, bias = with_gradient(torch.ones(6, 3), rows_gradient(6, 0)), with_gradient(torch.ones(2), torch.ones(2))
    assert StepTogether()(SGD(0.1), keyed([("table", table), ("bias", bias)])) == {(OWNER, "bias")}
    assert torch.equal(table, torch.ones(6, 3))


def test_each_gradient_is_clipped_by_its_own_norm() -> None:
    gradients = [torch.full((2, 3), 2.0), torch.full((4,), 0.1), torch.full((3,), 7.0)]
    expected = [torch.full((2, 3), 6**-0.5), torch.full((4,), 0.1), torch.full((3,), 3**-0.5)]
    for clipped, wanted in zip(clip_norms(gradients, 1.0), expected, strict=True):
        torch.testing.assert_close(clipped, wanted)
