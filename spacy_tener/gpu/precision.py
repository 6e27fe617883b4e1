"""Mixed precision in bfloat16 with few kernels: weights are cast together, and cuDNN's attention is off."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

_ALONE = threading.RLock()
"""Held while a transformer computes in mixed precision: its weights are replaced meanwhile, and torch's choice of
attention kernels is global to the process."""


@contextlib.contextmanager
def in_bfloat16(transformer: nn.Module, device: torch.device) -> Iterator[Callable[..., Any]]:
    """Yield the transformer in mixed precision, with the results of torch's autocast in fewer kernels.

    Autocast casts each weight, and each gradient back, by a kernel of its own: hundreds of kernels a step. Here one
    kernel casts the weights of all linear layers, once for all calls, and one casts their gradients.
    """
    names, weights = _matrices(transformer)
    with _ALONE, _without_cudnn_attention(device), torch.autocast(device.type, torch.bfloat16):
        exchanged = dict(zip(names, _Cast.apply(*weights), strict=True))  # type: ignore[no-untyped-call]
        yield partial(_call, transformer, exchanged)


def _call(transformer: nn.Module, weights: dict[str, Tensor], **inputs: Any) -> Any:
    return functional_call(transformer, weights, (), inputs, tie_weights=False)


def _matrices(transformer: nn.Module) -> tuple[list[str], list[Tensor]]:
    """Return the weights and biases that autocast would cast, those of linear layers, by name."""
    weights = {
        f"{path}.{name}": weight
        for path, layer in transformer.named_modules()
        if isinstance(layer, nn.Linear)
        for name, weight in layer.named_parameters(recurse=False)
    }
    return list(weights), list(weights.values())


class _Cast(torch.autograd.Function):
    """Cast of weights to bfloat16, and of their gradients back to the weights' precision."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtypes = [weight.dtype for weight in weights]
        return tuple(_copies(list(weights), [torch.bfloat16] * len(weights)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        indices = [index for index, gradient in enumerate(gradients) if gradient is not None]
        copies = _copies([cast(Tensor, gradients[i]) for i in indices], [ctx.dtypes[i] for i in indices])
        return tuple(map(dict(zip(indices, copies, strict=True)).get, range(len(gradients))))


def _copies(tensors: list[Tensor], dtypes: list[torch.dtype]) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)]
    if copies:
        torch._foreach_copy_(copies, tensors)
    return copies


@contextlib.contextmanager
def _without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Disable cuDNN's attention kernels inside. Backward passes use the kernel of their forward pass.

    cuDNN plans each new shape, which takes milliseconds per layer and direction, and batches of text hardly ever have
    the same shape.
    """
    before = device.type == "cuda" and torch.backends.cuda.cudnn_sdp_enabled()
    if not before:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
