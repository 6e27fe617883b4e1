"""Where the trainings of a grid or search are run: in this process one after another, or as tasks of Ray.

Ray chooses a node that has the cores and the share of a GPU that a run asks for, keeps the others waiting, and does a
run again whose node was lost. The directories of runs and data must be the same on all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ...cluster import connected, reason_of, work_in
from ...errors import RemedyError


class Engine(Protocol):
    """Calls functions, and knows how many at once."""

    at_once: int

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a function, now or when there is room for it."""

    def result(self, future: Future[Any]) -> Any:
        """What it returned."""

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Make a function of which there is one only, in this machine, for all that is submitted to call."""


class Here:
    """One call after another, in this process."""

    at_once = 1

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future

    def result(self, future: Future[Any]) -> Any:
        return future.result()

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        return make()


class OnRay:
    """Tasks of Ray with their resources. They run in this process' directory, by name, on their node."""

    def __init__(self, ray: ModuleType, cpus: float, gpus: float, at_once: int | None) -> None:
        self._ray = ray
        self._task = ray.remote(_in_directory).options(num_cpus=cpus, num_gpus=gpus)
        there = ray.cluster_resources()
        room = [there.get(name, 0) // wanted for name, wanted in (("CPU", cpus), ("GPU", gpus)) if wanted]
        self.at_once = at_once or max(1, int(min(room, default=1)))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = self._task.remote(Path.cwd(), function, *arguments).future()
        return future

    def result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:
            raise RemedyError(
                f"Ray could not run it to its end: {reason_of(error)}", "Ray's own logs say more."
            ) from error

    def shared(self, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        node = self._ray.get_runtime_context().get_node_id()
        place = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._ray.remote(_Shared).options(num_cpus=0, scheduling_strategy=place).remote(Path.cwd(), make)
        return partial(_ask, actor)


@contextmanager
def on_ray(address: str | None, cpus: float, gpus: float, at_once: int | None = None) -> Iterator[Engine]:
    """Tasks on a cluster, all of which end with the connection.

    cpus, gpus: What each asks for; parts of one share it.
    at_once: How many to hand over at once. By default as many as there is room for now.
    """
    with connected(address) as ray:
        yield OnRay(ray, cpus, gpus, at_once)


class _Shared:
    def __init__(self, directory: Path, make: Callable[[], Callable[..., Any]]) -> None:
        self._function = _in_directory(directory, make)

    def call(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def _ask(actor: Any, *arguments: Any) -> Any:
    import ray

    return ray.get(actor.call.remote(*arguments))


def _in_directory(directory: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    work_in(directory)
    return function(*arguments)
