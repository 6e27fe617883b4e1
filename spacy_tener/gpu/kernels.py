"""Whether the CRF of a batch is computed by Triton's kernels on its device."""

from __future__ import annotations

import functools
import warnings
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from ..batching.sequences import Packing
from ..tagging import TagLayout


def kernels_for(emissions: Tensor, device: torch.device, layout: TagLayout) -> ModuleType | None:
    """Return the Triton kernels if emissions and CRF are on a GPU where these work, otherwise None.

    device (torch.device): The CRF's device.
    layout (TagLayout): The CRF's tags.
    """
    if not emissions.is_cuda or device != emissions.device or emissions.dtype == torch.float64:
        return None
    kernels = working_kernels(emissions.device) if emissions.numel() else None
    return kernels if kernels is not None and layout.n_tags <= kernels.MOST_TAGS else None


@functools.lru_cache(maxsize=8)
def working_kernels(device: torch.device) -> ModuleType | None:
    """Return the Triton kernels, compiled for a device, or None where they cannot be."""
    if find_spec("triton") is None:
        return None
    try:
        from . import crf_triton

        n_open = TagLayout(1).n_open
        shapes = (2, TagLayout(1).n_tags), (n_open,), (n_open,), (n_open, n_open), (2, 2)
        with torch.enable_grad():
            emissions, *weights = (torch.zeros(shape, device=device, requires_grad=True) for shape in shapes)
            crf_triton.log_likelihood(emissions, weights, Packing.of([2], 2)).sum().backward()
    # Triton needs a C compiler and a device that is new enough; it has any kind of error.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        warnings.warn(f"The CRF is trained on the host, since Triton does not work on {device}: {reason}", stacklevel=2)
        return None
    return crf_triton
