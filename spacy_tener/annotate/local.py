"""Annotate files on one machine, with several processes on a CPU or with two threads on a GPU.

The command `annotate` calls `annotate_locally`. The main process reads the input and divides the records into parts.
The worker processes or threads annotate the parts and write each part to its own file. A stopped job can be resumed.
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

from ..errors import UserError
from ..manifest import Manifest
from ..nn.run import use_gpu
from ..processes import THREAD_VARIABLES, count_cores
from .output import AnnotationJob, PartStats, open_output, part_name, read_job, write_part
from .records import Part

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import pyarrow as pa

_AHEAD = 2  # maximum number of submitted parts per worker, including the part that the worker annotates
_THREADS_ON_GPU = 2  # one thread uses the GPU while the other thread writes a file
_LINE_INTERVAL = 60.0  # seconds between two progress messages if there is no terminal
_BAR = "{percentage:3.0f}% {bar} {elapsed}<{remaining}{postfix}"

# Type of a callback that is called after each output part. The arguments are the part, its text and entity counts, and
# whether the part was already written in an earlier run.
OnPart = Callable[[Part, PartStats, bool], object]


def annotate_locally(job: AnnotationJob, on_part: OnPart) -> PartStats:
    """Run an annotation job. Return the total number of texts, entities and errors.

    The input is divided into parts. Parts that were written in an earlier run are skipped.

    on_part (OnPart): Callback that is called for each written or skipped part.
    """
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
    """Yield the input parts that are not annotated yet. Parts from an earlier run are skipped, but passed to
    `count`."""
    for part in parts:
        stats = manifest.parts.get(part_name(job, part.number))
        if stats:
            count(part, PartStats(**stats), True)
        else:
            yield part


def _write(job: AnnotationJob, schema: pa.Schema | None, parts: Iterable[Part]) -> Iterator[tuple[Part, PartStats]]:
    """Annotate and write the input parts, with as many worker processes or threads as the job requests.

    YIELDS (tuple[Part, PartStats]): Each written part, with its text, entity and error counts.
    """
    if job.processes == 1 and job.annotator.gpu_id < 0:
        for part in parts:
            yield part, write_part(job, part, schema)
        return
    with _processes(job) if job.processes > 1 else _threads(job) as pool:
        write = _write_in_process if job.processes > 1 else partial(write_part, job)
        running: dict[Future[PartStats], Part] = {}
        for part in parts:
            future = pool.submit(write, part, schema)
            running[future] = Part(part.number, position=part.position)  # don't keep the records in memory
            while len(running) >= _AHEAD * max(job.processes, _THREADS_ON_GPU):
                yield from _completed(running)
        while running:
            yield from _completed(running)


def _completed(running: dict[Future[PartStats], Part]) -> Iterator[tuple[Part, PartStats]]:
    """Wait until a worker has written an input part. Remove all written parts from `running`.

    YIELDS (tuple[Part, PartStats]): Each written part, with its text, entity and error counts.
    """
    ended, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in sorted(ended, key=lambda future: running[future].number):
        yield running.pop(future), future.result()


@contextmanager
def _threads(job: AnnotationJob) -> Iterator[Executor]:
    """Start two threads that share the pipeline. One thread can use the GPU while the other thread writes a file."""
    pool = ThreadPoolExecutor(_THREADS_ON_GPU, initializer=use_gpu, initargs=(job.annotator.gpu_id,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _processes(job: AnnotationJob) -> Iterator[Executor]:
    """Start the worker processes. Each worker loads the pipeline itself.

    The workers exit when the main process ends, even if the main process is killed. To detect this, a thread in each
    worker reads from a pipe, which the operating system closes when the main process ends.
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
        raise UserError(reason, "To resume, run the same command with fewer --processes.") from error
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
    """Initialize a worker process.

    The job is stored in a global variable, so that it is pickled once per worker instead of once per part.
    """
    global _job
    _job = job
    # The terminal sends Ctrl-C to the workers, too. Only the main process handles the signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(pipe_end,), daemon=True).start()


def _exit_with_parent(pipe_end: Connection) -> None:
    """Wait until the main process closes its end of the pipe, and then exit this worker process."""
    with suppress(EOFError, OSError):
        pipe_end.recv()
    os._exit(1)


def _write_in_process(part: Part, schema: pa.Schema | None) -> PartStats:
    return write_part(_job, part, schema)


class Progress:
    """A progress bar that shows the remaining time and the number of texts, entities and errors.

    Pass an instance as `on_part` to `annotate_locally`. If standard error is not a terminal, a line is logged every
    minute instead of the bar.

    size (int): Input size in bytes. The remaining time is estimated from this size.
    log (Callable[[str], object]): Function that prints a line.
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
            self._bar.initial += step  # exclude skipped parts when the bar estimates the remaining time
        self._bar.set_postfix_str(str(self._total), refresh=False)
        self._bar.update(step)
