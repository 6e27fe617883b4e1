"""Process concurrent requests in dynamic batches.

A pipeline's `Worker` collects the texts from concurrent requests in a queue. A single thread processes batches of texts
with similar lengths:

    request ─┐
    request ─┼─ queue ── batches ── thread
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

# Maximum number of characters to take from the queue at once.
MAX_GATHERED = 16_384
# Seconds to wait for more texts if the last batch contained several texts, which indicates a high load.
WAIT = 0.002


@dataclass(frozen=True, eq=False)
class QueuedText:
    """A text in a worker's queue.

    task (TextFunction): The function to apply to the text.
    text (InputText): The text.
    cost (int): Number of characters to predict. This is a multiple of the text length for explanations, which predict
        the text many times.
    priority (int): 0 for predictions and 1 for explanations. Smaller numbers are processed first.
    future (asyncio.Future[Any]): Receives the result.
    """

    task: TextFunction
    text: InputText
    cost: int
    priority: int
    future: asyncio.Future[Any]

    def __len__(self) -> int:
        return self.cost


# Queue entry that stops the worker. Its priority is lower than any text's priority.
_QUEUE_END = (2, 0, None)


class Worker:
    """A queue of texts, and an asyncio task that processes the texts in batches.

    If the worker is idle, a text is processed immediately. Texts that arrive during processing are collected for the
    next batch. The batch size therefore adapts to the load: single requests have a low latency, and many concurrent
    requests a high throughput.

    name (str): The model's name.
    executor (Executor): An executor with a single thread. Pipelines that share a GPU or a vocabulary share an executor.
    limits (Limits): The maximum queue size and the timeout.
    metrics (Metrics): Metrics to update.
    """

    def __init__(self, name: str, executor: Executor, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        # Total cost of waiting texts for priority 0 and 1.
        self._waiting = [0, 0]
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
        """Return the total cost of all texts that are queued or being processed."""
        return sum(self._waiting)

    def is_full(self, priority: int = 0) -> bool:
        """Return whether the queue accepts no more texts with the given priority.

        Explanations (priority 1) don't reduce the queue size that is available for predictions (priority 0).
        """
        return sum(self._waiting[: priority + 1]) >= self._limits.queue

    def start(self) -> None:
        """Start the worker in the running event loop. Does nothing if the worker is already running."""
        if self._task is None or self._task.cancelled():
            self._waiting, self._queue, self._not_full = [0, 0], asyncio.PriorityQueue(), asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Process all queued texts, and stop the worker."""
        if self._task is not None:
            self._queue.put_nowait(_QUEUE_END)
            await self._task
            self._task = None

    async def answer(self, task: TextFunction, text: InputText, *, cost: int | None = None) -> Any:
        """Apply a task to a text, and return the result.

        Raises a ServiceError if the queue is full, the task fails or the timeout expires.

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
        """Add a text to the queue, and return a future for the result.

        cost (int | None): Number of characters to predict, for tasks that predict the text several times. These tasks
            have a lower priority. By default, the text length.
        block (bool): Wait while the queue is full. By default, a ServiceError is raised.
        """
        # Start the worker here, too. If the application is mounted in another application, its lifespan function is not
        # called.
        self.start()
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
        """Apply a task to several texts. Return a result or a `ServiceError` for each text.

        Waits while the queue is full. If the call is cancelled, the texts are not processed.
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
        """Return the error for a full queue.

        The error tells clients when to retry. The waiting time is estimated from the queue size and the average
        processing speed.
        """
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
        """Return the next texts from the queue, sorted by priority and arrival. Return an empty list if the worker
        should stop.

        waits_for_more (bool): Wait for `WAIT` seconds before collecting texts, to get larger batches.
        """
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
            # Set errors as results instead of exceptions. If the client has disconnected, nobody awaits the future, and
            # asyncio would log an unretrieved exception.
            if not queued.future.done():
                queued.future.set_result(answer)


def batches_by_task(queued: Sequence[QueuedText]) -> Iterator[list[QueuedText]]:
    """Group texts into batches. All texts in a batch have the same task and priority, and similar costs.

    Batches are sorted by priority first. Within the same task, cheap batches come first.
    """
    ordered = sorted(queued, key=lambda entry: (entry.priority, id(entry.task)))
    for _, group in groupby(ordered, key=lambda entry: (entry.priority, entry.task)):
        yield from batch_by_length(group)


def _answers(batch: Sequence[QueuedText]) -> list[Any]:
    """Apply a batch's task to its texts. Return a result or a `ServiceError` for each text. Runs in the executor's
    thread."""
    answers = answer_each(batch[0].task, [queued.text for queued in batch]) if batch else []
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception):
            _LOG.error("The pipeline failed at a text of %d characters", len(batch[index]), exc_info=answer)
            answers[index] = ServiceError(500, "pipeline_failed", f"The pipeline failed at this text: {answer!r}")
    return answers
