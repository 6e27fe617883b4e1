"""Connection to a Ray cluster, for `--engine ray`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from spacy_tener.errors import RemedyError, install

_TIMEOUT = 10.0  # seconds to wait for an answer of the cluster's head


@contextmanager
def connected(address: str | None = None) -> Iterator[ModuleType]:
    """Connect to a Ray cluster. An existing connection is used, and is not closed.

    address: Address of the cluster; None for that in RAY_ADDRESS, a cluster that this machine belongs to, or a new one
        on this machine alone, which ends with the connection.
    """
    try:
        import ray
    except ImportError as error:
        raise RemedyError("--engine ray needs Ray", install('"ray[data]"')) from error
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS", "")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # for a cluster that is started here
    try:
        _check_reachable(address)
        ray.init(address or None, include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError) as error:
        remedy = "Start one by `ray start --head`, name its address by --address, or leave that out."
        raise RemedyError(
            f"There is no Ray cluster at {address or 'this machine'}: {reason_of(error)}", remedy
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def work_in(directory: Path) -> None:
    """Change to the directory of the command, in a process on another node."""
    try:
        os.chdir(directory)
    except OSError as error:
        raise OSError(
            f"{directory} is not on the node {socket.gethostname()}: all nodes need the same files"
        ) from error


def reason_of(error: BaseException) -> str:
    """Return the root cause of an error of Ray, in one line."""
    while isinstance(inner := getattr(error, "cause", None) or error.__cause__, BaseException):
        error = inner
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).strip().removesuffix(".")


def _check_reachable(address: str) -> None:
    """Raise an OSError if nothing answers at the address. Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=_TIMEOUT).close()
