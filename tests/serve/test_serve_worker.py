"""How texts of many requests come together in batches."""

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


class Reader:
    """A task that notes what it is given, and waits before its first batch where it is told to."""

    def __init__(self, *, waits: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        if not waits:
            self.go.set()

    def __call__(self, texts):
        self.batches.append(list(texts))
        self.go.wait(10)
        return [text.upper() for text in texts]


def work(coroutine):
    """Run a coroutine that takes a worker."""

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


def test_what_comes_while_a_batch_is_read_is_read_together():
    reader = Reader(waits=True)

    async def ask(worker):
        first = asyncio.ensure_future(worker.answer(reader, "first"))
        while not reader.batches:
            await asyncio.sleep(0.001)
        rest = asyncio.gather(*(worker.answer(reader, "x" * n) for n in (3, 900, 1, 2, 700)))
        await asyncio.sleep(0.01)
        reader.go.set()
        return [await first, *await rest]

    assert [len(answer) for answer in work(ask)] == [5, 3, 900, 1, 2, 700]
    assert [[len(text) for text in batch] for batch in reader.batches] == [[5], [1, 2, 3, 700, 900]]


def test_texts_of_like_length_are_read_together():
    lengths = [1, BATCH_CHARACTERS, 5, 3000, 2, 2000, 9 * BATCH_CHARACTERS, 3]
    queued = [QueuedText(str.upper, "x" * length, length, 0, None) for length in lengths] + [
        QueuedText(str.lower, "x", 1, 0, None)
    ]
    groups = [[(queued.task, len(queued)) for queued in group] for group in batches_by_task(queued)]
    upper = [[length for _, length in group] for group in groups if group[0][0] is str.upper]
    assert upper == [[1, 2, 3, 5, 2000], [3000], [BATCH_CHARACTERS], [9 * BATCH_CHARACTERS]]
    assert [(str.lower, 1)] in groups


def test_a_lone_text_waits_for_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("spacy_tener.serve.worker.WAIT", 5.0)
    reader = Reader()

    async def ask(worker):
        start = time.perf_counter()
        for _ in range(20):
            await worker.answer(reader, "x")
        return time.perf_counter() - start

    assert work(ask) < 2.0
    assert reader.batches == [["x"]] * 20


def test_no_more_is_gathered_than_the_limit():
    """Short texts overtake long ones only among those that are taken out of the queue together."""
    reader = Reader(waits=True)

    async def ask(worker):
        futures = [await worker.submit(reader, "first")]
        while not reader.batches:
            await asyncio.sleep(0.001)
        futures += [await worker.submit(reader, text) for text in ("x" * MAX_GATHERED, "y" * MAX_GATHERED, "z")]
        reader.go.set()
        await asyncio.gather(*futures)

    work(ask)
    assert [[text[0] for text in batch] for batch in reader.batches] == [["f"], ["x"], ["y"], ["z"]]


def test_costly_texts_wait_for_the_others_and_are_refused_first():
    reader = Reader(waits=True)

    async def ask(worker):
        costly = Limits().queue // 2
        futures = [await worker.submit(reader, "first")]
        while not reader.batches:
            await asyncio.sleep(0.001)
        futures += [await worker.submit(reader, text, cost=costly) for text in ("one", "two")]
        with pytest.raises(ServiceError) as error:
            await worker.submit(reader, "three", cost=costly)
        assert error.value.code == "overloaded"
        assert not worker.is_full()
        assert worker.waiting == 2 * costly + len("first")
        futures.append(await worker.submit(reader, "text"))
        reader.go.set()
        await asyncio.gather(*futures)
        assert worker.waiting == 0

    work(ask)
    assert reader.batches == [["first"], ["text"], ["one"], ["two"]]


def test_closing_finishes_what_was_accepted():
    reader = Reader()

    async def ask(worker):
        return [await worker.submit(reader, text) for text in "abc"]

    assert [future.result() for future in work(ask)] == ["A", "B", "C"]
