"""Cached properties that are accessed by several threads, or in forked processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from spacy_tener.processes import cached_property


class Computed:
    """An object with a cached property.

    compute (Callable): Function that computes the value.
    """

    def __init__(self, compute: Callable[[], object]) -> None:
        self.compute = compute

    @cached_property
    def value(self) -> object:
        return self.compute()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_process_computes_property_despite_lock() -> None:
    is_computing, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        is_computing.set()
        may_end.wait(60)

    thread = threading.Thread(target=lambda: Computed(wait).value)
    thread.start()
    is_computing.wait(60)
    if not (child := os.fork()):
        signal.alarm(10)
        os._exit(7 if Computed(lambda: 7).value == 7 else 1)
    may_end.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_concurrent_threads_get_same_cached_object() -> None:
    barrier = threading.Barrier(2, timeout=60)

    def compute() -> object:
        barrier.wait()
        return object()

    computed, values = Computed(compute), []
    threads = [threading.Thread(target=lambda: values.append(computed.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(values) == 2
    assert values[0] is values[1] is computed.value
