"""The uvicorn server that runs the application."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI

from ..errors import RemedyError
from .service import Service

SWITCH = 0.0005
"""Python's thread switch interval in seconds, so short that requests are read while another thread predicts."""


class Server(uvicorn.Server):
    """A uvicorn server that answers the requests in progress before it stops.

    on_startup: Called once requests are accepted.
    access_log: Print client, method, path and status of each request, but neither texts nor keys.
    """

    def __init__(self, app: FastAPI, on_startup: Callable[[], None], *, access_log: bool = False) -> None:
        self._service: Service = app.state.service
        self._on_startup = on_startup
        self._stalled: dict[Any, tuple[Any, float]] = {}
        limits = self._service.limits
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=access_log,
            server_header=False,
            ws="none",
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=int(limits.timeout) + 1,
        )
        super().__init__(config)
        if access_log:
            access = logging.getLogger("uvicorn.access")
            access.setLevel(logging.INFO)  # `log_level` has set it to WARNING
            access.addFilter(_without_query)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_startup()

    async def on_tick(self, counter: int) -> bool:
        """Drop, each second, connections whose client is silent for the timeout. uvicorn would wait forever."""
        if counter % 10 == 0:
            now, stalled = time.monotonic(), {}
            for connection in list(self.server_state.connections):
                if (state := _waits_for_client(connection)) is None:
                    continue
                before, since = self._stalled.get(connection, (None, now))
                stalled[connection] = state, since if state == before else now
                if now - stalled[connection][1] > self._service.limits.timeout:
                    connection.transport.abort()
            self._stalled = stalled
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping = True
        for server in self.servers:
            server.close()
        await asyncio.sleep(0.1)  # lets requests that have arrived be read
        await super().shutdown(sockets)


def _without_query(record: logging.LogRecord) -> bool:
    """Drop the query string, which may hold a key, from uvicorn's line about a request."""
    if isinstance(record.args, tuple):
        record.args = tuple(each.partition("?")[0] if isinstance(each, str) else each for each in record.args)
    return True


def _waits_for_client(connection: Any) -> tuple[Any, int] | None:
    """Return the state of a connection that waits for its client; None while the service works on a request.

    The server waits for a client to send complete headers, or to read a response. The state changes as it does so.
    uvicorn has no timeout for either, and no public view of a connection: these attributes are its protocols' own.
    """
    cycle, unsent = connection.cycle, connection.transport.get_write_buffer_size()
    return (cycle, unsent) if unsent or cycle is None or cycle.response_complete else None


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address. It does not listen yet."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise RemedyError(f"{host}:{port}: {error.strerror}", "Choose another --host or --port.") from error
    return sock


def address(sock: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: FastAPI, sock: socket.socket, on_startup: Callable[[], None], *, access_log: bool = False) -> None:
    """Serve until SIGTERM or Ctrl-C, then answer the accepted requests."""
    # uvicorn raises the signal again after its graceful shutdown, which would count as a failure.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH)
    Server(app, on_startup, access_log=access_log).run([sock])
