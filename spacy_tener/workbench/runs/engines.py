"""Engines that run trainings: as processes on this machine, or as Ray tasks on a cluster.

Ray chooses a node with enough cores and GPU for each training, queues the others, and repeats the trainings of a lost
node. All nodes must share the directories of runs and data.
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
"""A training, as `partial(train, run)`. Its argument starts processes."""


class Engine(Protocol):
    """Runs tasks.

    at_once: The number of tasks to submit at once.
    shares_cores: Whether tasks that run at once slow each other down.
    """

    at_once: int
    shares_cores: bool

    def submit(self, task: Task) -> Future[TrainingResult]:
        """Run a task, as soon as there is room for it."""

    def result(self, future: Future[TrainingResult]) -> TrainingResult:
        """Return the result of a task. Raises a RemedyError if the engine lost it."""

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Make a function on this machine, and return one that tasks can call on any node."""


def run_tasks(engine: Engine, tasks: Iterable[tuple[Key, Task]]) -> Iterator[tuple[Key, TrainingResult]]:
    """Run tasks, and yield the key and the result of each as it ends.

    A task is taken from the iterable when there is room for it. A RemedyError or an OSError in a task becomes a failed
    result with its message; the others continue.
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
    """Ray tasks with their resources. On their node they run in the directory with the path of this process' one."""

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
    """Yield an engine for this machine. An exception in the block ends its processes.

    jobs: The number of trainings at once, which share the cores.
    echo: Called with the lines that a process prints. Not called with several jobs, whose lines would be mixed.
    """
    processes = Processes(jobs, echo if jobs == 1 else None)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield LocalEngine(pool, processes, jobs)
        except BaseException:
            # First, so that no queued task starts when a running one is ended.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise


@contextmanager
def on_ray(address: str | None, cpus: float, gpus: float, at_once: int | None = None) -> Iterator[Engine]:
    """Yield an engine for a Ray cluster, whose tasks end with the connection.

    cpus, gpus: The resources of each task. Tasks with a fraction of a GPU share one.
    at_once: Most tasks submitted at once. By default as many as there is room for now.
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
