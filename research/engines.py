"""Tasks that train, several at once, as processes on this machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

from spacy_tener.errors import RemedyError
from spacy_tener.workbench.runs.processes import Echo, Processes
from spacy_tener.workbench.runs.training import TrainingResult

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


def run_tasks(engine: Engine, tasks: Iterable[tuple[Key, Task]]) -> Iterator[tuple[Key, TrainingResult]]:
    """Run tasks, and yield the key and the result of each as it ends.

    A task is taken from the iterable when there is room for it. A RemedyError or an OSError in a task becomes a failed
    result with its message; the others continue.
    """
    running: dict[Future[TrainingResult], Key] = {}
    pending = iter(tasks)
    while True:
        for key, task in itertools.islice(pending, engine.at_once - len(running)):
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
        return self._pool.submit(run_task, task, self._processes)

    def result(self, future: Future[TrainingResult]) -> TrainingResult:
        return future.result()


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


def run_task(task: Task, processes: Processes) -> TrainingResult:
    """Run a task, and measure it. An expected error becomes a failed result."""
    start = time.monotonic()
    try:
        result = task(processes)
    except (OSError, RemedyError) as error:
        result = TrainingResult(None, str(error))
    return replace(result, seconds=time.monotonic() - start)
