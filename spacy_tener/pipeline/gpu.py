"""Selection of a GPU, separately for each thread."""

from __future__ import annotations

import sys

import thinc.compat
import thinc.util

from ..errors import RemedyError, install


def check_gpu(gpu_id: int) -> None:
    """Raise if a GPU does not exist; -1 is the CPU."""
    n_gpus = 0
    if thinc.util.gpu_is_available():
        n_gpus = thinc.compat.cupy.cuda.runtime.getDeviceCount() if thinc.compat.has_cupy_gpu else 1
    if gpu_id < n_gpus:
        return
    if not thinc.compat.has_cupy and sys.platform != "darwin":
        command = install('"cupy-cuda12x[ctk]"')
        remedy = f"{command}, or cupy-cuda13x for CUDA 13; or leave --gpu-id out for the CPU."
        raise RemedyError(f"GPU {gpu_id} cannot be used: CuPy is not installed", remedy)
    reason = "there is no GPU" if not n_gpus else f"the last GPU is {n_gpus - 1}" if n_gpus > 1 else "the only one is 0"
    raise _unusable_gpu(gpu_id, reason)


def use_gpu(gpu_id: int) -> None:
    """Let this thread compute on a GPU; raise if it cannot. -1 changes nothing. New threads start on the CPU, whatever
    the others use."""
    check_gpu(gpu_id)
    if gpu_id >= 0:
        try:
            thinc.util.require_gpu(gpu_id)
        except (ValueError, RuntimeError) as error:  # of Thinc; of CuPy
            raise _unusable_gpu(gpu_id, str(error)) from error


def _unusable_gpu(gpu_id: int, reason: str) -> RemedyError:
    remedy = "Choose one that `nvidia-smi -L` lists, or leave --gpu-id out for the CPU."
    return RemedyError(f"GPU {gpu_id} cannot be used: {reason}", remedy)
