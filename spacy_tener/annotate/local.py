"""Annotation of files on one machine, by several processes on a CPU or by two threads on a GPU.

`annotate_locally` is called by the command `annotate`. The calling process reads the input and submits its parts to the
workers, which annotate and write them. A stopped job can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ..errors import RemedyError
from ..manifest import Manifest
from ..nn.run import use_gpu
from ..processes import THREAD_VARIABLES, count_cores
from .output import AnnotationJob, PartStats, open_output, part_name, read_job, write_part
from .records import Part

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import pyarrow as pa

_AHEAD = 2  # number of parts in the queue and in progress, for each worker
_THREADS_ON_GPU = 2  # one thread predicts while the other writes a file and the calling thread reads
_LINE_INTERVAL = 60.0  # seconds between lines of progress if there is no terminal
_BAR = "{percentage:3.0f}% {bar} {elapsed}<{remaining}{postfix}"

# A callback for each written part. Its arguments are the part, its counts, and whether an earlier run wrote the
# part.
OnPart = Callable[[Part, PartStats, bool], object]


def annotate_locally(job: AnnotationJob, on_part: OnPart) -> PartStats:
    """Annotate all records of a job, and write them in parts. Parts that an earlier run of the job wrote are
    skipped."""
    total = PartStats()

    def count(part: Part, stats: PartStats, resumed: bool) -> None:
        nonlocal total
        total += stats
        on_part(part, stats, resumed)

    schema, parts = read_job(job)
    with open_output(job) as manifest:
        for part, stats in _write(job, schema, _unwritten(job, parts, manifest, count)):
            manifest.finish(part_name(job, part.number), asdict(stats))
            count(part, stats, False)
    return total


def _unwritten(job: AnnotationJob, parts: Iterable[Part], manifest: Manifest, count: OnPart) -> Iterator[Part]:
    """Yield the parts that must be annotated, and report the others to `count`."""
    for part in parts:
        stats = manifest.parts.get(part_name(job, part.number))
        if stats:
            count(part, PartStats(**stats), True)
        else:
            yield part


def _write(job: AnnotationJob, schema: pa.Schema | None, parts: Iterable[Part]) -> Iterator[tuple[Part, PartStats]]:
    """Annotate and write parts by the workers that the job requests. Yield each written part, without its records."""
    if job.processes == 1 and job.annotator.gpu_id < 0:
        for part in parts:
            yield part, write_part(job, part, schema)
        return
    with _processes(job) if job.processes > 1 else _threads(job) as pool:
        write = _write_in_process if job.processes > 1 else partial(write_part, job)
        running: dict[Future[PartStats], Part] = {}
        for part in parts:
            future = pool.submit(write, part, schema)
            running[future] = Part(part.number, position=part.position)  # without the records, to free memory
            while len(running) >= _AHEAD * max(job.processes, _THREADS_ON_GPU):
                yield from _completed(running)
        while running:
            yield from _completed(running)


def _completed(running: dict[Future[PartStats], Part]) -> Iterator[tuple[Part, PartStats]]:
    """Wait until at least one part is written. Yield the written parts, and remove them from `running`."""
    ended, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in sorted(ended, key=lambda future: running[future].number):
        yield running.pop(future), future.result()


@contextmanager
def _threads(job: AnnotationJob) -> Iterator[Executor]:
    """Start threads that share the pipeline, so that one predicts on the GPU while the other writes a file."""
    pool = ThreadPoolExecutor(_THREADS_ON_GPU, initializer=use_gpu, initargs=(job.annotator.gpu_id,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _processes(job: AnnotationJob) -> Iterator[Executor]:
    """Start processes, each with a copy of the pipeline. They exit when this process ends, even if it is killed.

    Each process waits in a thread for data from a pipe. The system closes the pipe when this process ends.
    """
    before = dict(os.environ)
    threads = str(max(1, count_cores() // job.processes))
    os.environ.update({name: threads for name in THREAD_VARIABLES if name not in os.environ})
    context = multiprocessing.get_context("spawn")
    pipe_end, open_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(job.processes, context, initializer=_start_process, initargs=(job, pipe_end))
    try:
        yield pool
    except BrokenProcessPool as error:
        reason = "A process was killed, probably because the system ran out of memory"
        raise RemedyError(reason, "Resume by running the same command with fewer --processes.") from error
    except BaseException:
        open_end.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        open_end.close()
        pipe_end.close()
        for name in THREAD_VARIABLES:
            if name not in before:
                os.environ.pop(name, None)


_job: AnnotationJob


def _start_process(job: AnnotationJob, pipe_end: Connection) -> None:
    """Initialize a worker process. The job is a global variable, so that it is pickled once and not for each task."""
    global _job
    _job = job
    # Ctrl-C is sent to all processes of a terminal, and the parent process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(pipe_end,), daemon=True).start()


def _exit_with_parent(pipe_end: Connection) -> None:
    """Wait until the pipe is closed, and exit at once."""
    with suppress(EOFError, OSError):
        pipe_end.recv()
    os._exit(1)


def _write_in_process(part: Part, schema: pa.Schema | None) -> PartStats:
    return write_part(_job, part, schema)


class Progress:
    """A progress bar with the remaining time and the counts. Without a terminal, it prints a line each minute.

    An instance is an `OnPart` callback.

    size (int): Size of the input in bytes, from which the remaining time is estimated.
    log (Callable[[str], object]): Prints a line.
    """

    def __init__(self, size: int, log: Callable[[str], object]) -> None:
        self._bar: Any = tqdm(total=size, bar_format=_BAR, leave=False, smoothing=0.0, disable=None)
        self._log = log
        self._total = PartStats()
        self._logged = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def __call__(self, part: Part, stats: PartStats, resumed: bool) -> None:
        self._total += stats
        if self._bar.disable:
            if time.monotonic() - self._logged > _LINE_INTERVAL:
                self._logged = time.monotonic()
                self._log(str(self._total))
            return
        step = max(0, part.position - self._bar.n)
        if resumed:
            self._bar.initial += step  # exclude parts of earlier runs from the rate
        self._bar.set_postfix_str(str(self._total), refresh=False)
        self._bar.update(step)
