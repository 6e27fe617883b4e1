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
from .metrics import Metrics
from .schema import Limits, ServiceError, overloaded

_LOG = logging.getLogger(__name__)

MAX_GATHERED = 16_384  # characters that are taken out of the queue at once
LINGER = 0.002  # seconds that a batch waits for more, where the one before had several texts


@dataclass(frozen=True, eq=False)
class QueuedText:
    """A text that waits for a task, and the future of its answer."""

    task: Task
    text: str
    future: asyncio.Future[Any]

    def __len__(self) -> int:
        return len(self.text)


class Worker:
    """A queue of texts and the thread that answers them. Everything else happens in the event loop.

    A text that finds the thread idle is read at once. What arrives meanwhile is gathered, so that batches grow with the
    load and a lone request waits for nobody.
    """

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        self.waiting = 0
        self._limits = limits
        self._metrics = metrics
        self._queue: SimpleQueue[QueuedText | None] = SimpleQueue()
        self._not_full = asyncio.Event()
        self._done, self._busy = 0, 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"tener-{name}", daemon=True)
        metrics.waiting_texts.labels(name).set_function(self._queue.qsize)
        metrics.waiting_characters.labels(name).set_function(lambda: self.waiting)

    @property
    def alive(self) -> bool:
        """Whether the thread runs, or was not needed yet."""
        return self._thread.is_alive() or self._loop is None

    @property
    def full(self) -> bool:
        return self.waiting >= self._limits.queue

    def start(self) -> None:
        """Start the thread for this event loop, unless it runs."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()

    async def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        if self._loop is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    async def answer(self, task: Task, text: str) -> Any:
        """Return the answer for a text."""
        return await self.wait_for(await self.submit(task, text))

    async def submit(self, task: Task, text: str, *, block: bool = False) -> asyncio.Future[Any]:
        """Put a text into the queue.

        block: Wait where the queue is full, instead of raising.
        """
        self.start()  # nobody else does where the application is mounted in another one
        while self.full:
            if not block:
                raise self.overloaded()
            self._not_full.clear()
            await self._not_full.wait()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting += len(text)
        self._queue.put(QueuedText(task, text, future))
        return future

    async def wait_for(self, future: asyncio.Future[Any]) -> Any:
        """Wait for an answer within the timeout. A text whose future is cancelled, here or elsewhere, is left out."""
        try:
            return await asyncio.wait_for(future, self._limits.timeout)
        except TimeoutError:
            raise self.overloaded() from None

    def overloaded(self) -> ServiceError:
        """Return an error that says when the queue will be empty, by the speed so far."""
        return overloaded(max(1, math.ceil(self.waiting * self._busy / self._done)) if self._done else 1)

    def _run(self) -> None:
        """Answer texts until the queue's end: the thread's work."""
        n_before = 0
        while queued := self._gather(LINGER if n_before > 1 else 0.0):
            n_before = len(queued)
            for batch in batches_by_task(queued):
                start = time.perf_counter()
                answers = _answers([each for each in batch if not each.future.cancelled()])
                seconds = time.perf_counter() - start
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._deliver, batch, answers, seconds)

    def _gather(self, linger: float) -> list[QueuedText]:
        """Take the next texts out of the queue in the order of their arrival; none at its end."""
        queued = self._queue.get()
        gathered: list[QueuedText] = []
        size, until = 0, time.monotonic() + linger
        while queued is not None:
            gathered.append(queued)
            size += len(queued)
            if size >= MAX_GATHERED:
                break
            try:
                queued = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
        if queued is None and gathered:
            self._queue.put(None)
        return gathered

    def _deliver(self, batch: Sequence[QueuedText], answers: dict[QueuedText, Any], seconds: float) -> None:
        """Hand out the answers, in the event loop."""
        size = sum(map(len, batch))
        self.waiting -= size
        self._done += size
        self._busy += seconds
        self._not_full.set()
        self._metrics.batch_texts.labels(self.name).observe(len(answers))
        self._metrics.batch_seconds.labels(self.name).observe(seconds)
        self._metrics.characters.labels(self.name).inc(sum(map(len, answers)))
        for queued, answer in answers.items():
            if queued.future.done():
                continue
            if isinstance(answer, ServiceError):
                queued.future.set_exception(answer)
            else:
                queued.future.set_result(answer)


def batches_by_task(queued: Sequence[QueuedText]) -> Iterator[list[QueuedText]]:
    """Group texts by task and like length, the shortest first, so that no short text waits for a long one."""
    for _, group in groupby(sorted(queued, key=lambda each: id(each.task)), key=lambda each: each.task):
        yield from alike(group)


def _answers(batch: Sequence[QueuedText]) -> dict[QueuedText, Any]:
    """Return the answers for texts of one task, or the errors in their place."""
    if not batch:
        return {}
    answers = dict(zip(batch, answer_each(batch[0].task, [each.text for each in batch]), strict=True))
    for queued, answer in answers.items():
        if isinstance(answer, Exception):
            _LOG.error("The pipeline failed at a text of %d characters", len(queued), exc_info=answer)
            answers[queued] = ServiceError(500, "pipeline_failed", f"The pipeline failed at this text: {answer!r}")
    return answers
