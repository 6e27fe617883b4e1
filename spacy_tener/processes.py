"""What a process may use, how signals end it, what works in one that was forked, and NumPy's threads."""

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

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
"""Environment variables by which a user sets the number of threads."""
_MAX_CHOSEN = 64
"""The most threads that NumPy's OpenBLAS chooses, however many cores there are."""
_PTHREADS = 1
"""OpenBLAS' number for threads of its own."""

if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: TID251 - as which mypy checks this one
else:

    class cached_property:  # noqa: N801 - the name that it stands for
        """A property that is computed once, without a lock.

        `functools` of Python 3.11 holds one while it computes: a process that is forked meanwhile would wait for ever.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # Threads may compute at once: all of them get the first one's value.
            return instance.__dict__.setdefault(self.name, self.function(instance))


def make_lock() -> AbstractContextManager[bool]:
    """Return a lock that a thread may take again. While another one holds it, no process is forked.

    A child that is forked in the middle of a change would have the lock, and nobody to release it.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def count_physical_cores() -> int:
    """Return the number of physical cores that this process may use, or of all cores where they are unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return count_cores()
    topology = [Path(f"/sys/devices/system/cpu/cpu{core}/topology/core_cpus_list") for core in os.sched_getaffinity(0)]
    return len({path.read_text(encoding="ascii") for path in topology if path.exists()}) or count_cores()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, unless they are ignored, as under nohup."""
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in signals}
    try:
        for number in (number for number in signals if handlers[number] != signal.SIG_IGN):
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


_NUMBER_LOCK = make_lock()


class _OneThread(ContextDecorator):
    """A context in which NumPy multiplies on one thread, unless the user has set a number.

    More would wait for each other (research/results/threads-predicting.md).

    The number is the process': the last thread that leaves restores it, unless the user has set another one meanwhile.
    """

    def __init__(self) -> None:
        self._n_inside = self._before = 0
        self._of_thread = threading.local()

    def __enter__(self) -> None:
        with _NUMBER_LOCK:
            self._count(1)
            if (
                self._n_inside > 1
                or any(name in os.environ for name in THREAD_VARIABLES)
                or (library := _openblas()) is None
            ):
                return
            # By itself it chooses the number of the cores; a smaller one is the user's.
            if library.get_number() >= min(max(count_physical_cores(), 2), _MAX_CHOSEN):
                self._before = library.get_number()
                library.set_number(1)

    def __exit__(self, *error: object) -> None:
        with _NUMBER_LOCK:
            self._count(-1)
            self._restore()

    def after_fork(self) -> None:
        """Forget the threads that the parent has: a child has only that which forked."""
        self._n_inside = self._n_of_thread
        self._restore()

    @property
    def _n_of_thread(self) -> int:
        return getattr(self._of_thread, "n_inside", 0)

    def _count(self, change: int) -> None:
        self._of_thread.n_inside = self._n_of_thread + change
        self._n_inside += change

    def _restore(self) -> None:
        library = _openblas() if self._before and not self._n_inside else None
        if library is not None:
            if library.get_number() == 1:
                library.set_number(self._before)
            self._before = 0


one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_thread.after_fork)


class _Library(NamedTuple):
    """Functions of OpenBLAS, by ctypes."""

    get_number: Callable[[], int]
    set_number: Callable[[int], object]


@functools.cache
def _openblas() -> _Library | None:
    """Return how OpenBLAS in NumPy's wheels reads and sets its threads, or None if NumPy has another library.

    With OpenMP, as conda has it, the number would be that of torch, too.
    """
    module = importlib.util.find_spec("numpy._core._multiarray_umath")
    if module is None or module.origin is None:
        return None
    library = ctypes.CDLL(module.origin)  # finds functions in the libraries of this one
    for prefix, suffix in itertools.product(("scipy_openblas_", "openblas_"), ("64_", "")):
        names = [f"{prefix}{name}{suffix}" for name in ("get_parallel", "get_num_threads", "set_num_threads")]
        if all(hasattr(library, name) for name in names):
            layer, get_number, set_number = (getattr(library, name) for name in names)
            return _Library(get_number, set_number) if layer() == _PTHREADS else None
    return None
