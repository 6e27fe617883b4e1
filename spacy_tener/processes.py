"""What a process may use, and how signals end it."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
