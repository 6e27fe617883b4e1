"""HTTP services in threads of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import spacy
from spacy.language import Language

from spacy_tener.serve import Limits, Server, address, bind, make_app
from spacy_tener.serve.service import Service

Start = Callable[..., AbstractContextManager["Running"]]


@dataclass(frozen=True)
class Running:
    """A running service, and an HTTP client for it."""

    client: httpx.Client
    service: Service

    @property
    def url(self) -> str:
        return str(self.client.base_url)

    @property
    def socket_address(self) -> tuple[str, int]:
        return self.client.base_url.host, self.client.base_url.port or 0


@contextmanager
def running(
    models: Mapping[str, Language], limits: Limits | None = None, *, send_buffer: int | None = None, **access: Any
) -> Iterator[Running]:
    """Run a service on a free port, and stop it after the block."""
    app, listens = make_app(models, limits, **access), threading.Event()
    server = Server(app, listens.set)
    sock = bind("127.0.0.1", 0)
    if send_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        assert listens.wait(20)
        with httpx.Client(base_url=address(sock), trust_env=False, timeout=20) as client:
            yield Running(client, app.state.service)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def served(saved: Mapping[str, Path]) -> Iterator[Running]:
    """A service with two pipelines and small limits."""
    models = {name: spacy.load(path) for name, path in saved.items()}
    with running(models, Limits(characters=500, explained=100, texts=8, body=20_000, timeout=10.0)) as service:
        yield service


@pytest.fixture(scope="session")
def start() -> Start:
    """A function that starts another service."""
    return running
