"""For what happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Fail where it does not become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
