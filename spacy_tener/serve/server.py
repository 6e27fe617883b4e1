"""The uvicorn server that runs the application."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from ..errors import RemedyError
from .service import Service

SWITCH = 0.0005
"""Python's thread switch interval in seconds, so short that requests are read while another thread predicts."""


class Server(uvicorn.Server):
    """A uvicorn server that answers the requests in progress before it stops.

    on_startup (Callable[[], None]): Called once requests are accepted.
    access_log (bool): Print client, method, path and status of each request, but neither texts nor keys.
    """

    def __init__(self, app: FastAPI, on_startup: Callable[[], None], *, access_log: bool = False) -> None:
        self._service: Service = app.state.service
        self._on_startup = on_startup
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping = True
        for server in self.servers:
            server.close()
        await asyncio.sleep(0.1)  # lets requests that have arrived be read
        await super().shutdown(sockets)


def _without_query(record: logging.LogRecord) -> bool:
    """Drop the query string, which may hold a key, from uvicorn's line about a request."""
    if isinstance(record.args, tuple):
        record.args = tuple(arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args)
    return True


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
