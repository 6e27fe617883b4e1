"""The device for the tests in this folder: a real GPU with `make test-gpu`, and emulated GPUs otherwise."""

import pytest
import torch
from emulated_device import DEVICE, emulated_device
from thinc.api import set_active_gpu, use_ops
from thinc.util import has_cupy_gpu


@pytest.fixture(params=["emulated", "Apple", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """The device on which Thinc and our modules create arrays and tensors."""
    if request.param == "cpu":
        yield torch.device("cpu")
    elif request.param in ("emulated", "Apple"):
        with emulated_device(host_arrays=request.param == "Apple"):
            yield DEVICE
    else:
        assert has_cupy_gpu, "make test-gpu needs a CUDA device and cupy: pip install '.[cuda12x]' or '.[cuda13x]'"
        set_active_gpu(0)
        with use_ops("cupy"):
            yield torch.device("cuda", 0)
