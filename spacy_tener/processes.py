"""Utilities for processes and threads: CPU cores, signals, safety in forked processes, and NumPy's thread count."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# Environment variables that set the number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# Environment variable of training runs that a command of this package starts. They stop if the command has ended.
STOP_WITH_PARENT = "SPACY_TENER_STOP_WITH_PARENT"
# Default maximum number of threads in the OpenBLAS that NumPy's wheels contain, regardless of the number of cores.
_MAX_OPENBLAS_THREADS = 64
# Return value of OpenBLAS' `get_parallel` for POSIX threads. The value for OpenMP is 2.
_PTHREADS = 1

if TYPE_CHECKING:
    # For type checkers, this is `functools.cached_property`.
    from functools import cached_property as cached_property  # noqa: TID251
else:

    class cached_property:  # noqa: N801 - named like functools.cached_property
        """A property that is computed on first access and then stored in the instance, without a lock.

        In Python 3.11, `functools.cached_property` has a lock that all instances of a class share. If the process is
        forked while another thread computes the property, the child process waits for the lock forever. For example,
        this happens in `nlp.pipe(texts, n_process=2)`. Python 3.12 has removed the lock.

        If several threads compute the property at the same time, all threads get the same object.
        `functools.cached_property` does not ensure this in Python 3.12.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # If several threads compute the value at the same time, `setdefault` keeps the first value for all threads.
            return instance.__dict__.setdefault(self.name, self.function(instance))


def make_lock() -> AbstractContextManager[bool]:
    """Create a reentrant lock that is always free in a forked process.

    `os.fork` waits until the lock is free. Otherwise, the lock could be held by a thread that does not exist in the
    child process, and would never be released.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def count_cores() -> int:
    """Return the number of logical cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def count_physical_cores() -> int:
    """Return the number of physical cores that this process can use.

    If the CPU topology is unknown, return the number of logical cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        return count_cores()
    topology = [Path(f"/sys/devices/system/cpu/cpu{core}/topology/core_cpus_list") for core in os.sched_getaffinity(0)]
    return len({path.read_text(encoding="ascii") for path in topology if path.exists()}) or count_cores()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, as on Ctrl-C.

    Signals that are ignored, for example because of nohup, are still ignored.
    """
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in signals}
    try:
        for number in (number for number in signals if handlers[number] != signal.SIG_IGN):
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _OneThread(ContextDecorator):
    """Context manager and decorator that limits NumPy's matrix products to one thread.

    More threads are slower, because the matrices in prediction are small (research/results/threads-predicting.md). If
    the user has set the number of threads, there is no limit.

    In OpenBLAS, the number of threads applies to the entire process. Therefore, the active contexts of all Python
    threads are counted. The first context sets the limit. The last context restores the previous number, unless the
    user has set another number in the meantime.

    threadpoolctl 3.8 is not an alternative, because it does not count contexts. The first thread to leave would remove
    the limit while other threads still compute. Its OpenBLAS controller accepts changes from one thread only and
    silently ignores other threads, so NumPy could be left with one thread. In addition, each call takes 1 to 3 ms.
    """

    def __init__(self) -> None:
        self._lock = make_lock()
        self._n_contexts = 0
        self._of_thread = threading.local()
        # The previous number of threads, or None if the number was not changed.
        self._previous: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._count(1)
            if self._n_contexts == 1 and not any(name in os.environ for name in THREAD_VARIABLES):
                self._limit()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._count(-1)
            if self._n_contexts == 0:
                self._restore()

    def after_fork(self) -> None:
        """In a forked process, only count the contexts of the thread that called `os.fork`. Other threads do not exist
        there."""
        self._n_contexts = self._n_contexts_of_thread
        if self._n_contexts == 0:
            self._restore()

    @property
    def _n_contexts_of_thread(self) -> int:
        return getattr(self._of_thread, "n_contexts", 0)

    def _count(self, change: int) -> None:
        self._of_thread.n_contexts = self._n_contexts_of_thread + change
        self._n_contexts += change

    def _limit(self) -> None:
        openblas = _load_openblas()
        if openblas is None:
            return
        # By default, OpenBLAS uses one thread per core. If the number is smaller, the user has set it.
        n_threads = openblas.get_num_threads()
        if n_threads >= min(max(count_physical_cores(), 2), _MAX_OPENBLAS_THREADS):
            self._previous = n_threads
            openblas.set_num_threads(1)

    def _restore(self) -> None:
        openblas = _load_openblas()
        if openblas is not None and self._previous is not None and openblas.get_num_threads() == 1:
            openblas.set_num_threads(self._previous)
        self._previous = None


one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_thread.after_fork)


class _OpenBLAS(NamedTuple):
    """OpenBLAS functions for the number of threads, called with ctypes."""

    get_num_threads: Callable[[], int]
    set_num_threads: Callable[[int], object]


@functools.cache
def _load_openblas() -> _OpenBLAS | None:
    """Load the functions for the number of threads from NumPy's OpenBLAS.

    Return None if NumPy uses another library, or OpenBLAS with OpenMP. With OpenMP, a limit would also apply to torch.
    """
    module = importlib.util.find_spec("numpy._core._multiarray_umath")
    if module is None or module.origin is None:
        return None
    # ctypes also finds symbols in the libraries that this extension module is linked with, such as OpenBLAS.
    library = ctypes.CDLL(module.origin)
    # In NumPy's wheels, the names begin with scipy_. They end with 64_ if indices are 64-bit integers.
    for prefix, suffix in itertools.product(("scipy_openblas_", "openblas_"), ("64_", "")):
        names = [f"{prefix}{name}{suffix}" for name in ("get_parallel", "get_num_threads", "set_num_threads")]
        if all(hasattr(library, name) for name in names):
            get_parallel, get_num_threads, set_num_threads = (getattr(library, name) for name in names)
            return _OpenBLAS(get_num_threads, set_num_threads) if get_parallel() == _PTHREADS else None
    return None
