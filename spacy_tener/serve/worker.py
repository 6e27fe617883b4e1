"""The texts of many requests, gathered into batches for the one thread of a pipeline."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any

from ..annotate.batches import Task, alike, answer_each
from .metrics import Metrics
from .schema import Limits, ServiceError

_LOG = logging.getLogger(__name__)

MAX_GATHERED = 16_384  # characters that are taken out of the queue at once
LINGER = 0.002  # seconds that a batch waits for more, where the one before had several texts


@dataclass(frozen=True, eq=False)
class QueuedText:
    """A text that waits for a task, and the future of its answer.

    cost: How many characters the task reads: those of the text, or many times as many.
    priority: 0 for texts that are read once, 1 for those that wait for them.
    """

    task: Task
    text: str
    cost: int
    priority: int
    future: asyncio.Future[Any]

    def __len__(self) -> int:
        return self.cost


_END = (2, 0, None)
"""The last entry of a queue."""


class Worker:
    """A queue of texts, and the task of the event loop that has them answered by an executor.

    A text that finds the executor idle is read at once. What arrives meanwhile is gathered, so that batches grow with
    the load and a lone request waits for nobody.

    executor: Has one thread, and is shared by pipelines that share a vocabulary or a GPU.
    """

    def __init__(self, name: str, executor: Executor, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        self._waiting = [0, 0]  # by priority
        self._executor = executor
        self._limits = limits
        self._metrics = metrics
        self._done, self._busy = 0, 0.0
        self._queue: asyncio.PriorityQueue[tuple[int, int, QueuedText | None]] = asyncio.PriorityQueue()
        self._numbers = count()
        self._not_full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        metrics.waiting_texts.labels(name).set_function(lambda: self._queue.qsize())
        metrics.waiting_characters.labels(name).set_function(lambda: self.waiting)

    @property
    def failed(self) -> bool:
        return self._task is not None and self._task.done() and not self._task.cancelled()

    @property
    def waiting(self) -> int:
        """The characters to be read for all that waits."""
        return sum(self._waiting)

    def is_full(self, priority: int = 0) -> bool:
        """Tell whether no more is taken of this priority, which waits for all that has it or a lower number."""
        return sum(self._waiting[: priority + 1]) >= self._limits.queue

    def start(self) -> None:
        """Begin to answer in this event loop, unless that has begun."""
        if self._task is None or self._task.cancelled():
            self._waiting, self._queue, self._not_full = [0, 0], asyncio.PriorityQueue(), asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._task is not None:
            self._queue.put_nowait(_END)
            await self._task
            self._task = None

    async def answer(self, task: Task, text: str, *, cost: int | None = None) -> Any:
        """Return the answer for a text."""
        return await self.wait_for(await self.submit(task, text, cost=cost))

    async def submit(
        self, task: Task, text: str, *, cost: int | None = None, block: bool = False
    ) -> asyncio.Future[Any]:
        """Put a text into the queue.

        cost: The characters to be read for it, where the text is read many times: others then go first.
        block: Wait where the queue is full, instead of raising.
        """
        self.start()  # nobody else does where the application is mounted in another one
        cost, priority = (len(text), 0) if cost is None else (cost, 1)
        while self.is_full(priority):
            if not block:
                raise self.overloaded()
            self._not_full.clear()
            await self._not_full.wait()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[priority] += cost
        self._queue.put_nowait((priority, next(self._numbers), QueuedText(task, text, cost, priority, future)))
        return future

    async def wait_for(self, future: asyncio.Future[Any]) -> Any:
        """Wait for an answer within the timeout. A text whose future is cancelled, here or elsewhere, is left out."""
        try:
            return await asyncio.wait_for(future, self._limits.timeout)
        except TimeoutError:
            raise self.overloaded() from None

    def overloaded(self) -> ServiceError:
        """Return an error that says when the queue will be empty, by the speed so far."""
        seconds = max(1, math.ceil(self.waiting * self._busy / max(1, self._done)))
        message = f"Too many texts are waiting. Try again in {seconds} seconds."
        return ServiceError(503, "overloaded", message, {"retry-after": str(seconds)})

    async def _run(self) -> None:
        loop, lingers = asyncio.get_running_loop(), False
        while gathered := await self._gather(lingers):
            lingers = len(gathered) > 1
            for batch in batches_by_task(gathered):
                start = time.perf_counter()
                wanted = [queued for queued in batch if not queued.future.cancelled()]
                answers = await loop.run_in_executor(self._executor, _answers, wanted)
                self._deliver(wanted, answers, time.perf_counter() - start)
                self._waiting[batch[0].priority] -= sum(map(len, batch))
                self._not_full.set()

    async def _gather(self, lingers: bool) -> list[QueuedText]:
        """Take the next texts out of the queue, by priority in the order of their arrival; none at its end."""
        _, _, queued = await self._queue.get()
        if lingers:
            await asyncio.sleep(LINGER)
        gathered: list[QueuedText] = []
        size = 0
        while queued is not None:
            gathered.append(queued)
            size += len(queued)
            if size >= MAX_GATHERED or self._queue.empty():
                return gathered
            _, _, queued = self._queue.get_nowait()
        if gathered:
            self._queue.put_nowait(_END)
        return gathered

    def _deliver(self, batch: Sequence[QueuedText], answers: Sequence[Any], seconds: float) -> None:
        size = sum(map(len, batch))
        self._done += size
        self._busy += seconds
        self._metrics.batch_texts.labels(self.name).observe(len(batch))
        self._metrics.batch_seconds.labels(self.name).observe(seconds)
        self._metrics.characters.labels(self.name).inc(size)
        for queued, answer in zip(batch, answers, strict=True):
            if queued.future.done():
                continue
            if isinstance(answer, ServiceError):
                queued.future.set_exception(answer)
            else:
                queued.future.set_result(answer)


def batches_by_task(queued: Sequence[QueuedText]) -> Iterator[list[QueuedText]]:
    """Group texts by priority, task and like cost, the shortest first, so that no short text waits for a long one."""
    in_order = sorted(queued, key=lambda each: (each.priority, id(each.task)))
    for _, group in groupby(in_order, key=lambda each: (each.priority, each.task)):
        yield from alike(group)


def _answers(batch: Sequence[QueuedText]) -> list[Any]:
    """Return the answers for texts of one task, with errors in the place of those that fail: the thread's work."""
    answers = answer_each(batch[0].task, [each.text for each in batch]) if batch else []
    for place, answer in enumerate(answers):
        if isinstance(answer, Exception):
            _LOG.error("The pipeline failed at a text of %d characters", len(batch[place]), exc_info=answer)
            answers[place] = ServiceError(500, "pipeline_failed", f"The pipeline failed at this text: {answer!r}")
    return answers
