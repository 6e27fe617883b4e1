"""Tasks that train, several at once, as processes on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from spacy_tener.errors import RemedyError
from spacy_tener.training.runs import Echo, Processes

Key = TypeVar("Key")
Task = Callable[[Processes], str]
"""A training, as `partial(train, run)`, which returns why it failed. Its argument starts processes."""


class Engine:
    """Processes on this machine, made by `on_this_machine`.

    at_once: The number of tasks to submit at once.
    shares_cores: Whether tasks that run at once slow each other down.
    """

    def __init__(self, pool: ThreadPoolExecutor, processes: Processes, jobs: int) -> None:
        self._pool, self._processes = pool, processes
        self.at_once, self.shares_cores = jobs, jobs > 1

    def submit(self, task: Task) -> Future[str]:
        """Run a task, as soon as there is room for it."""
        return self._pool.submit(_run_task, task, self._processes)


def run_tasks(engine: Engine, tasks: Iterable[tuple[Key, Task]]) -> Iterator[tuple[Key, str]]:
    """Run tasks, and yield the key of each as it ends, with why it failed, or an empty text.

    A task is taken from the iterable when there is room for it. A RemedyError or an OSError in a task becomes its
    message; the others continue.
    """
    running: dict[Future[str], Key] = {}
    pending = iter(tasks)
    while True:
        for key, task in itertools.islice(pending, engine.at_once - len(running)):
            running[engine.submit(task)] = key
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


@contextmanager
def on_this_machine(jobs: int = 1, echo: Echo | None = None) -> Iterator[Engine]:
    """Yield an engine for this machine. An exception in the block ends its processes.

    jobs: The number of trainings at once, which share the cores.
    echo: Called with the lines that a process prints. Not called with several jobs, whose lines would be mixed.
    """
    processes = Processes(jobs, echo if jobs == 1 else None)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield Engine(pool, processes, jobs)
        except BaseException:
            # First, so that no queued task starts when a running one is ended.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise


def _run_task(task: Task, processes: Processes) -> str:
    try:
        return task(processes)
    except (OSError, RemedyError) as error:
        return str(error)
