"""The parts of an archive, one after the other or by several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import RemedyError
from ..reading.parts import Part, read_parts
from ..writing.encoding import PARQUET
from ..writing.folders import open_folder
from ..writing.record import Counts, Record
from .job import Job
from .making import make

if TYPE_CHECKING:
    import pyarrow as pa

_AHEAD = 2  # parts for each process that are read and not yet written
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

Done = Callable[[Part, Counts, bool], object]
"""Called with each part that is written, what is in it, and whether it was there before."""
Parts = Iterable[tuple[Part, "pa.Schema | None"]]
"""Parts, each with the schema of its rows where they become a table."""


def annotate(job: Job, done: Done) -> Counts:
    """Annotate all records into the parts of an output. Parts that are done already are left alone, so that the same
    call goes on wherever it was stopped."""
    folder, total = open_folder(job.output), Counts()
    made_of = job.made_of
    with folder.locked():
        record = Record(folder, job.format, made_of)
        try:
            for part, counts in _made(job, record, _to_do(job, record, total, done)):
                record.add(part.number, counts)
                total.add(counts)
                done(part, counts, False)
        finally:
            record.keep()
    return total


def _to_do(job: Job, record: Record, total: Counts, done: Done) -> Iterator[tuple[Part, pa.Schema | None]]:
    schema, settings = None, job.annotator.settings
    for part in read_parts(job.sources, job.reading, settings.text):
        if part.number == 0:
            settings.check_columns(part.columns)
            check_text(part.columns, settings.text)
        if part.rows and schema is None and job.format == PARQUET:
            from ..writing.columns import schema_of

            schema = schema_of(part.rows, settings)
        if part.number in record.done:
            total.add(record.done[part.number])
            done(part, record.done[part.number], True)
        else:
            yield part, schema


def check_text(columns: list[str], text: str) -> None:
    """Refuse input where no record of the first part has the column of the text."""
    if text not in columns:
        has = ", ".join(columns) or "none"
        raise RemedyError(f"The records have no column '{text}'", f"Their columns are: {has}. Choose one by --text.")


def _made(job: Job, record: Record, parts: Parts) -> Iterator[tuple[Part, Counts]]:
    if job.processes == 1:
        for part, schema in parts:
            yield part, make(job, record.name(part.number), part, schema)
        return
    with _pool(job) as pool:
        running: dict[Future[Counts], Part] = {}
        for part, schema in parts:
            future = pool.submit(_make_in_process, record.name(part.number), part, schema)
            running[future] = part.emptied()  # its process has the records
            while len(running) >= _AHEAD * job.processes:
                yield from _finished(running)
        while running:
            yield from _finished(running)


def _finished(running: dict[Future[Counts], Part]) -> Iterator[tuple[Part, Counts]]:
    ended, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in sorted(ended, key=lambda each: running[each].number):
        yield running.pop(future), future.result()


@contextmanager
def _pool(job: Job) -> Iterator[ProcessPoolExecutor]:
    """Processes that hold the pipeline once each. They end with this one, however it ends."""
    before = dict(os.environ)
    threads = str(max(1, (os.cpu_count() or 1) // job.processes))
    os.environ.update({name: threads for name in _THREADS if name not in os.environ})
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(job.processes, context, initializer=_start, initargs=(job,))
    try:
        yield pool
    except BrokenProcessPool as error:
        reason = "A process was ended from outside, as the system does where memory is short"
        raise RemedyError(reason, "Use fewer --processes; the same command goes on behind what is written.") from error
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for name in _THREADS:
            if name not in before:
                os.environ.pop(name, None)


_job: Job


def _start(job: Job) -> None:
    """In a process of the pool, before its first part."""
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one ends them
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _make_in_process(name: str, part: Part, schema: pa.Schema | None) -> Counts:
    return make(_job, name, part, schema)
