from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spacy_tener.layers.checkpointing import checkpointed


@pytest.mark.parametrize("mixed", [False, True])
def test_gradients_and_random_numbers_are_those_of_the_plain_call(mixed: bool) -> None:
    """In whatever precision it runs, however often it is gone back through, and though its inputs are used twice."""
    x, w = (torch.randn(*size, requires_grad=True) for size in [(20, 4), (4, 4)])

    def mix(x: Tensor, w: Tensor, none: None) -> Tensor:
        hidden = torch.dropout(torch.exp(x @ w), 0.3, True)
        return torch.softmax(hidden @ w, -1) * torch.sigmoid(hidden @ x.T @ x)

    def gradients(call: object) -> list[Tensor]:
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            y = checkpointed(mix, x, w, None) if call is checkpointed else mix(x, w, None)
        torch.manual_seed(2)
        first = torch.autograd.grad((y.float() ** 2).sum(), [x, w], retain_graph=True)
        return [y, *first, *torch.autograd.grad(y.float().sum(), [x, w]), torch.rand(1)]

    for ours, theirs in zip(gradients(checkpointed), gradients(mix), strict=True):
        assert torch.equal(ours, theirs)
