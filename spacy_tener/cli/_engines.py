"""The options of commands that also run on Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..errors import RemedyError, check_choice
from ..workbench.runs.engines import Engine, on_ray
from ._app import check_gpu

ENGINES = ("local", "ray")

EngineName = Annotated[str, typer.Option("--engine", help="local: this machine; ray: a cluster")]
Address = Annotated[
    str | None, typer.Option("--address", help="Of the cluster (default: RAY_ADDRESS, this machine's, or a new one)")
]
CpusPerRun = Annotated[float | None, typer.Option("--cpus-per-run", help="Cores on Ray (default: 1)", min=0)]
GpusPerRun = Annotated[float | None, typer.Option("--gpus-per-run", help="GPUs on Ray, as 0.25 (default: 0)", min=0)]


@contextmanager
def training_engine(
    name: str, address: str | None, cpus: float | None, gpus: float | None, jobs: int | None = None
) -> Iterator[Engine | None]:
    """Where runs are trained: on Ray, or None for this machine.

    jobs: How many at once on Ray; None for as many as there is room for.
    """
    if check_engine(name, {"--address": address, "--cpus-per-run": cpus, "--gpus-per-run": gpus, "--jobs": jobs}):
        with on_ray(address, 1 if cpus is None else cpus, gpus or 0, jobs) as engine:
            yield engine
    else:
        yield None


def check_engine(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the engine is Ray. Refuses options that it alone has, by their names, without it."""
    check_choice("engine", name, ENGINES)
    given = [option for option, value in options.items() if value is not None]
    if name != "ray" and given:
        raise RemedyError(f"{', '.join(given)}: only for --engine ray", "Add --engine ray, or leave that out.")
    return name == "ray"


def gpu_of_runs(gpu_id: int, engine: str, gpus_per_run: float | None) -> int:
    """The GPU that runs choose: on Ray the first of those that it gives them. Refuses one that is not there."""
    if engine != "ray":
        check_gpu(gpu_id)
        return gpu_id
    if gpu_id >= 0:
        remedy = "Leave it out, and say how much of one each needs by --gpus-per-run or --gpus-per-actor."
        raise RemedyError(f"--gpu-id {gpu_id}: Ray chooses GPUs", remedy)
    return 0 if gpus_per_run else -1
