"""One thread for each pipeline: the texts of many requests, gathered into batches."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

from ..annotate.batches import Task, alike, answer_each
from .limits import Limits, RefusedError, overloaded
from .metrics import Metrics

_LOG = logging.getLogger(__name__)

GATHERED = 16_384  # characters that are taken out of the queue at once
LINGER = 0.002  # seconds that a batch waits for more, where the one before had several texts


@dataclass(frozen=True, eq=False)
class Job:
    """A text of some request, and where its answer goes."""

    task: Task
    text: str
    future: asyncio.Future[Any]

    def __len__(self) -> int:
        return len(self.text)


class Worker:
    """Answers texts in a thread of its own. Everything but that thread's work happens in the event loop.

    A text that finds the thread idle is read at once. What arrives meanwhile is gathered, so that batches grow with the
    load and a lone request waits for nobody.
    """

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        self.waiting = 0
        self._limits = limits
        self._metrics = metrics
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._room = asyncio.Event()
        self._done, self._busy = 0, 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"tener-{name}", daemon=True)
        metrics.watch(name, self._jobs.qsize, lambda: self.waiting)

    @property
    def alive(self) -> bool:
        """Whether it works, or has not been asked to yet."""
        return self._thread.is_alive() or self._loop is None

    @property
    def full(self) -> bool:
        return self.waiting >= self._limits.waiting

    def start(self) -> None:
        """Begin to work for this event loop, unless it does."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()

    async def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        if self._loop is not None:
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    async def answer(self, task: Task, text: str) -> Any:
        """The answer for a text."""
        return await self.wait_for(await self.submit(task, text))

    async def submit(self, task: Task, text: str, *, patient: bool = False) -> asyncio.Future[Any]:
        """Put a text into the queue.

        patient: Wait where the queue is full, instead of being refused.
        """
        self.start()  # nobody else does where the application is mounted in another one
        while self.full:
            if not patient:
                raise self.refusal()
            self._room.clear()
            await self._room.wait()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting += len(text)
        self._jobs.put(Job(task, text, future))
        return future

    async def wait_for(self, future: asyncio.Future[Any]) -> Any:
        """An answer within the time allowed. If it takes longer, or nobody waits any more, the text is left out."""
        try:
            return await asyncio.wait_for(future, self._limits.seconds)
        except TimeoutError:
            raise self.refusal() from None

    def refusal(self) -> RefusedError:
        """Says when the queue will be empty, by the speed so far."""
        return overloaded(max(1, math.ceil(self.waiting * self._busy / self._done)) if self._done else 1)

    def _run(self) -> None:
        """The thread."""
        n_before = 0
        while jobs := self._gather(LINGER if n_before > 1 else 0.0):
            n_before = len(jobs)
            for group in by_task(jobs):
                start = time.perf_counter()
                answers = _answers([job for job in group if not job.future.cancelled()])
                seconds = time.perf_counter() - start
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._deliver, group, answers, seconds)

    def _gather(self, linger: float) -> list[Job]:
        """The next jobs in the order of their arrival; none at the end."""
        job = self._jobs.get()
        gathered: list[Job] = []
        size, until = 0, time.monotonic() + linger
        while job is not None:
            gathered.append(job)
            size += len(job)
            if size >= GATHERED:
                break
            try:
                job = self._jobs.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
        if job is None and gathered:
            self._jobs.put(None)
        return gathered

    def _deliver(self, group: Sequence[Job], answers: dict[Job, Any], seconds: float) -> None:
        """In the event loop: hand out the answers."""
        size = sum(len(job) for job in group)
        self.waiting -= size
        self._done += size
        self._busy += seconds
        self._room.set()
        self._metrics.count_batch(self.name, [len(job) for job in answers], seconds)
        for job, answer in answers.items():
            if job.future.done():
                continue
            if isinstance(answer, RefusedError):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)


def by_task(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs of one task and of like length, the shortest first, so that no short text waits for a long one."""
    for _, group in groupby(sorted(jobs, key=lambda job: id(job.task)), key=lambda job: job.task):
        yield from alike(group)


def _answers(jobs: Sequence[Job]) -> dict[Job, Any]:
    """The answers of jobs with one task, or why there is none."""
    if not jobs:
        return {}
    answers = answer_each(jobs[0].task, [job.text for job in jobs])
    return {job: _refused(job, each) for job, each in zip(jobs, answers, strict=True)}


def _refused(job: Job, answer: Any) -> Any:
    if not isinstance(answer, Exception):
        return answer
    _LOG.error("The pipeline failed at a text of %d characters", len(job), exc_info=answer)
    return RefusedError(500, "pipeline_failed", f"The pipeline failed at this text: {answer!r}")
