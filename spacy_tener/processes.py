"""Processes and threads: cores, signals, objects that survive a fork, and the number of NumPy's threads."""

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

# Environment variables with which users set the number of threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# The largest number of threads that the OpenBLAS of NumPy's wheels uses by default, whatever the number of cores.
_MAX_OPENBLAS_THREADS = 64
# Returned by OpenBLAS' `get_parallel` if it creates its own threads; OpenMP is 2.
_PTHREADS = 1

if TYPE_CHECKING:
    # Type checkers treat the class below like functools.cached_property.
    from functools import cached_property as cached_property  # noqa: TID251
else:

    class cached_property:  # noqa: N801 - named like functools.cached_property
        """A property that is computed on first access and then stored in the instance, without a lock.

        `functools.cached_property` of Python 3.11 holds a lock while it computes, one for all instances of the class.
        If the process is forked during that time (`nlp.pipe(texts, n_process=2)` while another thread predicts), the
        child inherits a locked lock that no thread of it will release, and waits forever. Python 3.12 has removed the
        lock. Once 3.12 is the oldest supported version, `functools.cached_property` can be used instead, as long as
        nothing requires that threads that compute at the same time get the same object, which this class ensures.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # If several threads compute the value at the same time, dict.setdefault keeps the first one for all.
            return instance.__dict__.setdefault(self.name, self.function(instance))


def make_lock() -> AbstractContextManager[bool]:
    """Return a reentrant lock that the process does not hold in a forked child.

    `os.fork` waits until the lock is free. Otherwise, if another thread held it, the child would inherit a locked lock
    without the thread that releases it.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def count_cores() -> int:
    """Return the number of logical cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def count_physical_cores() -> int:
    """Return the number of physical cores that this process may use; of logical cores if the topology is unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return count_cores()
    topology = [Path(f"/sys/devices/system/cpu/cpu{core}/topology/core_cpus_list") for core in os.sched_getaffinity(0)]
    return len({path.read_text(encoding="ascii") for path in topology if path.exists()}) or count_cores()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, as on Ctrl-C. Ignored signals, as with nohup, stay ignored."""
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

    The matrices of a prediction are small: more threads would mostly wait for each other
    (research/results/threads-predicting.md). A number of threads that the user has set is kept.

    OpenBLAS has one number of threads for the whole process. So the contexts of all Python threads are counted: the
    first thread to enter sets the limit, and the last one to leave restores the previous number, unless the user has
    set another number in the meantime. In a forked child only the thread that forked runs on, so it counts anew.

    threadpoolctl 3.8 cannot replace this class. Its OpenBLAS controller lets only one thread of the process set the
    number, the first one that does so, and silently ignores the others. With several threads that predict, NumPy would
    be left with one thread for good. Besides, `threadpool_limits` searches all loaded libraries, 1 to 3 ms per call,
    and its contexts do not know of each other: the first to leave lifts the limit while others still compute.
    """

    def __init__(self) -> None:
        self._lock = make_lock()
        self._n_contexts = 0
        self._of_thread = threading.local()
        # The number of threads to restore; None if it has not been changed.
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
        """In a forked child, count only the contexts of the thread that forked."""
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
        # By default OpenBLAS uses as many threads as there are cores. A smaller number has been set by the user.
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
    """Functions of OpenBLAS, called with ctypes."""

    get_num_threads: Callable[[], int]
    set_num_threads: Callable[[int], object]


@functools.cache
def _load_openblas() -> _OpenBLAS | None:
    """Return the functions of NumPy's OpenBLAS, or None if NumPy uses another library or OpenBLAS with OpenMP.

    OpenBLAS with OpenMP shares its number of threads with torch, which must not change.
    """
    module = importlib.util.find_spec("numpy._core._multiarray_umath")
    if module is None or module.origin is None:
        return None
    # Symbols are also looked up in the libraries that this extension module is linked with, one of which is OpenBLAS.
    library = ctypes.CDLL(module.origin)
    # The names in NumPy's wheels begin with scipy_, and end with 64_ if indices are 64-bit integers.
    for prefix, suffix in itertools.product(("scipy_openblas_", "openblas_"), ("64_", "")):
        names = [f"{prefix}{name}{suffix}" for name in ("get_parallel", "get_num_threads", "set_num_threads")]
        if all(hasattr(library, name) for name in names):
            get_parallel, get_num_threads, set_num_threads = (getattr(library, name) for name in names)
            return _OpenBLAS(get_num_threads, set_num_threads) if get_parallel() == _PTHREADS else None
    return None
