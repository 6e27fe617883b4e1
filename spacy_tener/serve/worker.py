"""Dynamic batching: `Worker` collects the texts of many requests in batches, which one thread predicts.

request ─┐
request ─┼─ queue ── batches of texts with similar length ── thread of the pipeline
request ─┘
"""

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

from ..annotate.tasks import TextFunction, answer_each, batch_by_length
from ..pipeline.finding import InputText
from .metrics import Metrics
from .schema import Limits, ServiceError

_LOG = logging.getLogger(__name__)

MAX_GATHERED = 16_384  # maximum number of characters that are taken from the queue at once
WAIT = 0.002  # seconds to wait for more texts, if the last batch contained several texts


@dataclass(frozen=True, eq=False)
class QueuedText:
    """A text in the queue.

    task (TextFunction): The function to apply to the text.
    text (str): The text.
    cost (int): Number of characters to predict. An explanation predicts the characters of the text many times.
    priority (int): 0 for predictions and 1 for explanations. Smaller numbers come first.
    future (asyncio.Future[Any]): The future result.
    """

    task: TextFunction
    text: InputText
    cost: int
    priority: int
    future: asyncio.Future[Any]

    def __len__(self) -> int:
        return self.cost


# The entry that stops a worker. It sorts after all texts.
_QUEUE_END = (2, 0, None)


class Worker:
    """A queue of texts, and an asyncio task that predicts them in batches.

    If the executor is idle, a text is predicted at once. The texts that arrive during a prediction form the next batch.
    So batches become larger under load, and a single request does not wait.

    name (str): The name of the model.
    executor (Executor): An executor with one thread. Pipelines that share a vocabulary or a GPU share an executor.
    """

    def __init__(self, name: str, executor: Executor, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        self._waiting = [0, 0]  # by priority
        self._executor = executor
        self._limits = limits
        self._metrics = metrics
        self._done, self._busy = 0, 0.0
        self._queue: asyncio.PriorityQueue[tuple[int, int, QueuedText | None]] = asyncio.PriorityQueue()
        self._arrival_numbers = count()
        self._not_full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        metrics.waiting_characters.labels(name).set_function(lambda: self.waiting)

    @property
    def failed(self) -> bool:
        return self._task is not None and self._task.done() and not self._task.cancelled()

    @property
    def waiting(self) -> int:
        """Total cost of the texts in the queue and of the texts in progress."""
        return sum(self._waiting)

    def is_full(self, priority: int = 0) -> bool:
        """Return whether the queue is full for a priority. Explanations do not count for predictions."""
        return sum(self._waiting[: priority + 1]) >= self._limits.queue

    def start(self) -> None:
        """Start the worker in the running event loop, if it is not running."""
        if self._task is None or self._task.cancelled():
            self._waiting, self._queue, self._not_full = [0, 0], asyncio.PriorityQueue(), asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Predict all accepted texts, and stop the worker."""
        if self._task is not None:
            self._queue.put_nowait(_QUEUE_END)
            await self._task
            self._task = None

    async def answer(self, task: TextFunction, text: InputText, *, cost: int | None = None) -> Any:
        """Return the result of a task for a text. Raise an error after the timeout.

        cost (int | None): See `submit`.
        """
        future = await self.submit(task, text, cost=cost)
        try:
            async with asyncio.timeout(self._limits.timeout):
                answer = await future
        except TimeoutError:
            raise self.overloaded() from None
        finally:
            future.cancel()
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    async def submit(
        self, task: TextFunction, text: InputText, *, cost: int | None = None, block: bool = False
    ) -> asyncio.Future[Any]:
        """Add a text to the queue, and return the future result.

        cost (int | None): Number of characters to predict, if the task predicts the text several times. Such a text has
            a lower priority. By default, the cost is the length of the text.
        block (bool): Whether to wait while the queue is full. By default, an error is raised.
        """
        self.start()  # the lifespan function of an application that is mounted in another application is not called
        cost, priority = (len(text), 0) if cost is None else (cost, 1)
        while self.is_full(priority):
            if not block:
                raise self.overloaded()
            self._not_full.clear()
            await self._not_full.wait()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[priority] += cost
        self._queue.put_nowait((priority, next(self._arrival_numbers), QueuedText(task, text, cost, priority, future)))
        return future

    async def answers(self, task: TextFunction, texts: Sequence[InputText]) -> list[Any]:
        """Return the results or errors of a task for several texts. Wait while the queue is full.

        If this call is cancelled, the texts are cancelled.
        """
        submitted: list[asyncio.Future[Any]] = []
        try:
            for text in texts:
                submitted.append(await self.submit(task, text, block=True))
            return [await future for future in submitted]
        finally:
            for future in submitted:
                future.cancel()

    def overloaded(self) -> ServiceError:
        """Return the error for a full queue. It contains the time until the queue will be empty, at the average
        speed."""
        seconds = max(1, math.ceil(self.waiting * self._busy / max(1, self._done)))
        message = f"Too many texts are waiting. Try again in {seconds} seconds."
        return ServiceError(503, "overloaded", message, {"retry-after": str(seconds)})

    async def _run(self) -> None:
        loop, waits_for_more = asyncio.get_running_loop(), False
        while gathered := await self._gather(waits_for_more):
            waits_for_more = len(gathered) > 1
            for batch in batches_by_task(gathered):
                start = time.perf_counter()
                active = [queued for queued in batch if not queued.future.cancelled()]
                answers = await loop.run_in_executor(self._executor, _answers, active)
                self._deliver(active, answers, time.perf_counter() - start)
                self._waiting[batch[0].priority] -= sum(map(len, batch))
                self._not_full.set()

    async def _gather(self, waits_for_more: bool) -> list[QueuedText]:
        """Return the next texts in the queue, sorted by priority and arrival. Return an empty list if the worker
        stops."""
        _, _, queued = await self._queue.get()
        if waits_for_more:
            await asyncio.sleep(WAIT)
        gathered: list[QueuedText] = []
        size = 0
        while queued is not None:
            gathered.append(queued)
            size += len(queued)
            if size >= MAX_GATHERED or self._queue.empty():
                return gathered
            _, _, queued = self._queue.get_nowait()
        if gathered:
            self._queue.put_nowait(_QUEUE_END)
        return gathered

    def _deliver(self, batch: Sequence[QueuedText], answers: Sequence[Any], seconds: float) -> None:
        size = sum(map(len, batch))
        self._done += size
        self._busy += seconds
        self._metrics.batch_texts.labels(self.name).observe(len(batch))
        self._metrics.batch_seconds.labels(self.name).observe(seconds)
        self._metrics.characters.labels(self.name).inc(size)
        for queued, answer in zip(batch, answers, strict=True):
            # An error is passed as a result, because asyncio logs exceptions that nobody awaits, and the client may
            # have left.
            if not queued.future.done():
                queued.future.set_result(answer)


def batches_by_task(queued: Sequence[QueuedText]) -> Iterator[list[QueuedText]]:
    """Yield batches of texts with the same priority and task and with similar costs, in order of their costs."""
    ordered = sorted(queued, key=lambda entry: (entry.priority, id(entry.task)))
    for _, group in groupby(ordered, key=lambda entry: (entry.priority, entry.task)):
        yield from batch_by_length(group)


def _answers(batch: Sequence[QueuedText]) -> list[Any]:
    """Return a result or a `ServiceError` for each text of one task. This function runs in the thread of the
    executor."""
    answers = answer_each(batch[0].task, [queued.text for queued in batch]) if batch else []
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception):
            _LOG.error("The pipeline failed at a text of %d characters", len(batch[index]), exc_info=answer)
            answers[index] = ServiceError(500, "pipeline_failed", f"The pipeline failed at this text: {answer!r}")
    return answers
