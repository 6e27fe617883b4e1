"""Trainings as Ray tasks on a cluster, or as processes on this machine.

Ray chooses a node with enough cores and GPU for each training, queues the others, and repeats the trainings of a lost
node. All nodes must share the directories of runs and data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from spacy_tener.cli._common import CommandLineError
from spacy_tener.errors import RemedyError
from spacy_tener.pipeline.gpu import check_gpu
from spacy_tener.workbench.runs.processes import Processes
from spacy_tener.workbench.runs.training import TrainingResult

from .cluster import connected, reason_of, work_in
from .engines import Engine, Task, on_this_machine, run_task


class RayEngine:
    """Ray tasks with their resources. On their node they run in the directory with the path of this process' one."""

    shares_cores = False

    def __init__(self, ray: ModuleType, cpus: float, gpus: float, at_once: int | None) -> None:
        self._ray = ray
        self._task = ray.remote(_run_on_node).options(num_cpus=cpus, num_gpus=gpus)
        resources = ray.cluster_resources()
        room = [resources.get(name, 0) // wanted for name, wanted in (("CPU", cpus), ("GPU", gpus)) if wanted]
        self.at_once = at_once or max(1, int(min(room, default=1)))

    def submit(self, task: Task) -> Future[TrainingResult]:
        future: Future[TrainingResult] = self._task.remote(Path.cwd(), task).future()
        return future

    def result(self, future: Future[TrainingResult]) -> TrainingResult:
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:
            raise RemedyError(f"Ray lost a training: {reason_of(error)}", "See Ray's logs.") from error


@contextmanager
def on_ray(address: str | None, cpus: float, gpus: float, at_once: int | None = None) -> Iterator[Engine]:
    """Yield an engine for a Ray cluster, whose tasks end with the connection.

    cpus, gpus: The resources of each task. Tasks with a fraction of a GPU share one.
    at_once: Most tasks submitted at once. By default as many as there is room for now.
    """
    with connected(address) as ray:
        yield RayEngine(ray, cpus, gpus, at_once)


def training_engine(
    name: str,
    address: str | None,
    cpus: float | None,
    gpus: float | None,
    jobs: int | None,
    *,
    on_ray_at_once: int | None = None,
) -> AbstractContextManager[Engine]:
    """Return the engine that trains: processes on this machine, or Ray.

    jobs: Trainings at once. Default: one on this machine; on Ray `on_ray_at_once`, or as many as there is room for.
    """
    if check_engine(name, {"--address": address, "--cpus-per-run": cpus, "--gpus-per-run": gpus}):
        return on_ray(address, 1 if cpus is None else cpus, gpus or 0, jobs or on_ray_at_once)
    return on_this_machine(jobs or 1, sys.stderr.write)


def check_engine(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether the engine is Ray. With another engine, refuse the options that only Ray has."""
    ray_options = [option for option, value in options.items() if value is not None]
    if name != "ray" and ray_options:
        names = ", ".join(ray_options)
        raise CommandLineError(f"{names}: only for --engine ray", "Add --engine ray, or leave that out.")
    return name == "ray"


def gpu_of_runs(gpu_id: int, engine: str, gpus_per_run: float | None) -> int:
    """Return the GPU id for runs, and refuse one that does not exist. On Ray, each run sees its own GPUs from 0."""
    if engine != "ray":
        check_gpu(gpu_id)
        return gpu_id
    if gpu_id >= 0:
        remedy = "Leave it out, and give --gpus-per-run."
        raise CommandLineError(f"--gpu-id {gpu_id}: Ray chooses GPUs", remedy)
    return 0 if gpus_per_run else -1


def shared(engine: Engine, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Make a function on this machine, and return one that tasks can call on any node."""
    if not isinstance(engine, RayEngine):
        return make()
    import ray

    node = ray.get_runtime_context().get_node_id()
    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(_Shared).options(num_cpus=0, scheduling_strategy=place).remote(Path.cwd(), make)
    return partial(_call_shared, actor)


def _run_on_node(directory: Path, task: Task) -> TrainingResult:
    work_in(directory)
    return run_task(task, Processes())


class _Shared:
    def __init__(self, directory: Path, make: Callable[[], Callable[..., Any]]) -> None:
        work_in(directory)
        self._function = make()

    def call(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def _call_shared(actor: Any, *arguments: Any) -> Any:
    import ray

    return ray.get(actor.call.remote(*arguments))
