"""What a process may use, how signals end it, and what works in one that was forked."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
