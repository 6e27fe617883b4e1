"""The worker that combines the texts of many requests into batches."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spacy_tener.annotate.tasks import BATCH_CHARACTERS
from spacy_tener.serve.metrics import Metrics
from spacy_tener.serve.schema import Limits, ServiceError
from spacy_tener.serve.worker import MAX_GATHERED, QueuedText, Worker, batches_by_task


class RecordingTask:
    """A task that records its batches.

    waits: Whether it waits in its first batch until `go` is set.
    """

    def __init__(self, *, waits: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        if not waits:
            self.go.set()

    def __call__(self, texts):
        self.batches.append(list(texts))
        self.go.wait(10)
        return [text.upper() for text in texts]


def run_with_worker(coroutine):
    """Call an asynchronous function with a worker, and return its result."""

    async def main():
        worker = Worker("test", ThreadPoolExecutor(1), Limits(), Metrics())
        worker.start()
        try:
            return await coroutine(worker)
        finally:
            await worker.close()
            assert not worker.failed
            assert worker.waiting == 0

    return asyncio.run(main())


def test_texts_arriving_during_batch_form_next_batch():
    task = RecordingTask(waits=True)

    async def submit_texts(worker):
        first = asyncio.ensure_future(worker.answer(task, "first"))
        while not task.batches:
            await asyncio.sleep(0.001)
        rest = asyncio.gather(*(worker.answer(task, "x" * n) for n in (3, 900, 1, 2, 700)))
        await asyncio.sleep(0.01)
        task.go.set()
        return [await first, *await rest]

    assert [len(answer) for answer in run_with_worker(submit_texts)] == [5, 3, 900, 1, 2, 700]
    assert [[len(text) for text in batch] for batch in task.batches] == [[5], [1, 2, 3, 700, 900]]


def test_batches_contain_texts_of_similar_length():
    lengths = [1, BATCH_CHARACTERS, 5, 3000, 2, 2000, 9 * BATCH_CHARACTERS, 3]
    queued = [QueuedText(str.upper, "x" * length, length, 0, None) for length in lengths] + [
        QueuedText(str.lower, "x", 1, 0, None)
    ]
    groups = [[(queued.task, len(queued)) for queued in group] for group in batches_by_task(queued)]
    upper = [[length for _, length in group] for group in groups if group[0][0] is str.upper]
    assert upper == [[1, 2, 3, 5, 2000], [3000], [BATCH_CHARACTERS], [9 * BATCH_CHARACTERS]]
    assert [(str.lower, 1)] in groups


def test_single_text_is_processed_without_delay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("spacy_tener.serve.worker.WAIT", 5.0)
    task = RecordingTask()

    async def submit_texts(worker):
        start = time.perf_counter()
        for _ in range(20):
            await worker.answer(task, "x")
        return time.perf_counter() - start

    assert run_with_worker(submit_texts) < 2.0
    assert task.batches == [["x"]] * 20


def test_gathered_characters_are_limited():
    """Short texts overtake long texts only among the texts that are taken from the queue together."""
    task = RecordingTask(waits=True)

    async def submit_texts(worker):
        futures = [await worker.submit(task, "first")]
        while not task.batches:
            await asyncio.sleep(0.001)
        futures += [await worker.submit(task, text) for text in ("x" * MAX_GATHERED, "y" * MAX_GATHERED, "z")]
        task.go.set()
        await asyncio.gather(*futures)

    run_with_worker(submit_texts)
    assert [[text[0] for text in batch] for batch in task.batches] == [["f"], ["x"], ["y"], ["z"]]


def test_expensive_texts_have_lower_priority():
    task = RecordingTask(waits=True)

    async def submit_texts(worker):
        cost = Limits().queue // 2
        futures = [await worker.submit(task, "first")]
        while not task.batches:
            await asyncio.sleep(0.001)
        futures += [await worker.submit(task, text, cost=cost) for text in ("one", "two")]
        with pytest.raises(ServiceError) as error:
            await worker.submit(task, "three", cost=cost)
        assert error.value.code == "overloaded"
        assert not worker.is_full()
        assert worker.waiting == 2 * cost + len("first")
        futures.append(await worker.submit(task, "text"))
        task.go.set()
        await asyncio.gather(*futures)
        assert worker.waiting == 0

    run_with_worker(submit_texts)
    assert task.batches == [["first"], ["text"], ["one"], ["two"]]


def test_close_completes_accepted_texts():
    task = RecordingTask()

    async def submit_texts(worker):
        return [await worker.submit(task, text) for text in "abc"]

    assert [future.result() for future in run_with_worker(submit_texts)] == ["A", "B", "C"]
