"""Engines, which run trainings: in processes on this machine, or as tasks of Ray on many.

Ray chooses a node that has the cores and the share of a GPU that a training asks for, keeps the others waiting, and
repeats a training whose node was lost. The directories of runs and data must be the same on all nodes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from ...cluster import connected, reason_of, work_in
from ...errors import RemedyError
from .processes import Echo, Processes
from .training import TrainingResult

Key = TypeVar("Key")
Task = Callable[[Processes], TrainingResult]
"""A training, as `partial(train, run)`, which starts its processes by the argument."""


class Engine(Protocol):
    """Runs tasks.

    at_once: The number of tasks to submit at once.
    shares_cores: Whether tasks that run at once slow each other down.
    """

    at_once: int
    shares_cores: bool

    def submit(self, task: Task) -> Future[TrainingResult]:
        """Run a task, now or when there is room for it."""

    def result(self, future: Future[TrainingResult]) -> TrainingResult:
        """Return the result of a task. Raises a RemedyError where the engine lost it."""

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Make a function on this machine, of which all tasks call the same one."""


def run_tasks(engine: Engine, tasks: Iterable[tuple[Key, Task]]) -> Iterator[tuple[Key, TrainingResult]]:
    """Run tasks, and yield the key and the result of each as it ends.

    A task is taken from the iterable when there is room for it. One that raises a RemedyError or an OSError fails with
    its message; the others go on.
    """
    running: dict[Future[TrainingResult], Key] = {}
    left = iter(tasks)
    while True:
        for key, task in itertools.islice(left, engine.at_once - len(running)):
            running[engine.submit(task)] = key
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            key = running.pop(future)
            try:
                result = engine.result(future)
            except RemedyError as error:
                result = TrainingResult(None, str(error))
            yield key, result


class LocalEngine:
    """Processes on this machine, which share its cores. Made by `on_this_machine`."""

    def __init__(self, pool: ThreadPoolExecutor, processes: Processes, jobs: int) -> None:
        self._pool, self._processes = pool, processes
        self.at_once, self.shares_cores = jobs, jobs > 1

    def submit(self, task: Task) -> Future[TrainingResult]:
        return self._pool.submit(_run, task, self._processes)

    def result(self, future: Future[TrainingResult]) -> TrainingResult:
        return future.result()

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        return make()


class RayEngine:
    """Tasks of Ray with their resources. They run in this process' directory, by name, on their node."""

    shares_cores = False

    def __init__(self, ray: ModuleType, cpus: float, gpus: float, at_once: int | None) -> None:
        self._ray = ray
        self._task = ray.remote(_run_on_node).options(num_cpus=cpus, num_gpus=gpus)
        there = ray.cluster_resources()
        room = [there.get(name, 0) // wanted for name, wanted in (("CPU", cpus), ("GPU", gpus)) if wanted]
        self.at_once = at_once or max(1, int(min(room, default=1)))

    def submit(self, task: Task) -> Future[TrainingResult]:
        future: Future[TrainingResult] = self._task.remote(Path.cwd(), task).future()
        return future

    def result(self, future: Future[TrainingResult]) -> TrainingResult:
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:
            raise RemedyError(f"Ray lost a training: {reason_of(error)}", "See Ray's logs.") from error

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        node = self._ray.get_runtime_context().get_node_id()
        place = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._ray.remote(_Shared).options(num_cpus=0, scheduling_strategy=place).remote(Path.cwd(), make)
        return partial(_call_shared, actor)


@contextmanager
def on_this_machine(jobs: int = 1, echo: Echo | None = None) -> Iterator[Engine]:
    """Yield an engine for this machine. Its processes end where the block ends by an exception.

    jobs: How many trainings run at once. They share the cores.
    echo: Takes what processes print. Of several at once the lines would be mixed, so then it takes nothing.
    """
    processes = Processes(jobs, echo if jobs == 1 else None)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield LocalEngine(pool, processes, jobs)
        except BaseException:
            # First of all, so that no task that waits takes the place of one that is ended.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise


@contextmanager
def on_ray(address: str | None, cpus: float, gpus: float, at_once: int | None = None) -> Iterator[Engine]:
    """Yield an engine for a cluster of Ray, whose tasks end with the connection.

    cpus, gpus: What each task asks for; parts of one share it.
    at_once: How many tasks to submit at once. By default as many as there is room for now.
    """
    with connected(address) as ray:
        yield RayEngine(ray, cpus, gpus, at_once)


def _run(task: Task, processes: Processes) -> TrainingResult:
    start = time.monotonic()
    try:
        result = task(processes)
    except (OSError, RemedyError) as error:
        result = TrainingResult(None, str(error))
    return replace(result, seconds=time.monotonic() - start)


def _run_on_node(directory: Path, task: Task) -> TrainingResult:
    work_in(directory)
    return _run(task, Processes())


class _Shared:
    def __init__(self, directory: Path, make: Callable[[], Callable[..., Any]]) -> None:
        work_in(directory)
        self._function = make()

    def call(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def _call_shared(actor: Any, *arguments: Any) -> Any:
    import ray

    return ray.get(actor.call.remote(*arguments))
