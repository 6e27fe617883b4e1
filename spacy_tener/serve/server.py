"""The application as a process of its own, by uvicorn."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from ..errors import RemedyError
from .service import Service

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one have a turn, so that requests are read meanwhile."""


class Server(uvicorn.Server):
    """A uvicorn server that answers what is on its way when it is told to stop.

    on_startup: Called once requests are accepted.
    """

    def __init__(self, app: FastAPI, on_startup: Callable[[], None]) -> None:
        self._service: Service = app.state.service
        self._on_startup = on_startup
        limits = self._service.limits
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=int(limits.timeout) + 1,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_startup()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping = True
        for server in self.servers:
            server.close()
        await asyncio.sleep(0.1)  # for requests that have arrived and are not read yet
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address, which does not listen yet."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise RemedyError(f"{host}:{port}: {error.strerror}", "Choose another by --host and --port.") from error
    return sock


def address(sock: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: FastAPI, sock: socket.socket, on_startup: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. What was accepted until then is answered."""
    # uvicorn raises the signal again behind its graceful stop: that is no failure.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH)
    Server(app, on_startup).run([sock])
