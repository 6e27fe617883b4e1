"""Run several training processes in parallel on this machine. `grid` uses it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from spacy_tener.errors import UserError
from spacy_tener.training.runs import Echo, Processes

Key = TypeVar("Key")
# A training run, as `partial(train, run)`. It starts its processes with the argument, and returns an error message or
# an empty string.
Task = Callable[[Processes], str]


class Engine:
    """A pool of worker threads that start training processes on this machine. Create it with `on_this_machine`.

    at_once: Maximum number of tasks that run in parallel.
    shares_cores: Whether parallel tasks compete for the same cores, which makes speed measurements unreliable.
    """

    def __init__(self, pool: ThreadPoolExecutor, processes: Processes, jobs: int) -> None:
        self._pool, self._processes = pool, processes
        self.at_once, self.shares_cores = jobs, jobs > 1

    def submit(self, task: Task) -> Future[str]:
        """Submit a task. The future's result is an error message, or an empty string on success."""
        return self._pool.submit(_run_task, task, self._processes)


def run_tasks(engine: Engine, tasks: Iterable[tuple[Key, Task]]) -> Iterator[tuple[Key, str]]:
    """Run tasks in parallel. As soon as a task ends, yield its key with an error message, or with an empty string on
    success.

    Tasks are taken from the iterable only when a worker is free. If a task raises a UserError or an OSError, the
    error message is yielded, and the other tasks continue.
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
    """Yield an engine for this machine. If the block raises an exception, all processes are stopped.

    jobs: Number of parallel training runs, which share the cores.
    echo: Callback for the output of processes, line by line. Ignored with several jobs, since their lines would be
        interleaved.
    """
    processes = Processes(jobs, echo if jobs == 1 else None)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield Engine(pool, processes, jobs)
        except BaseException:
            # Cancel queued tasks before stopping processes; otherwise, a freed worker would start the next task.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise


def _run_task(task: Task, processes: Processes) -> str:
    try:
        return task(processes)
    except (OSError, UserError) as error:
        return str(error)
