"""What is counted, for `/metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("tener_requests", "Requests answered", ["path", "status"], registry=registry)
        self._latency = Histogram(
            "tener_request_seconds", "Seconds of a request", ["path"], buckets=_SECONDS, registry=registry
        )
        self._errors = Counter("tener_errors", "Requests and lines refused", ["code"], registry=registry)
        self._batch = Histogram("tener_batch_texts", "Texts of a batch", ["model"], buckets=_TEXTS, registry=registry)
        self._busy = Histogram(
            "tener_batch_seconds", "Seconds of a batch", ["model"], buckets=_SECONDS, registry=registry
        )
        self._characters = Counter("tener_characters", "Characters read", ["model"], registry=registry)
        self._waiting = Gauge("tener_waiting_texts", "Texts in the queue", ["model"], registry=registry)
        self._load = Gauge("tener_waiting_characters", "Characters in the queue", ["model"], registry=registry)

    def watch(self, model: str, texts: Callable[[], float], characters: Callable[[], float]) -> None:
        """Ask for the length of a model's queue whenever somebody looks."""
        self._waiting.labels(model).set_function(texts)
        self._load.labels(model).set_function(characters)

    def count_batch(self, model: str, lengths: Sequence[int], seconds: float) -> None:
        self._batch.labels(model).observe(len(lengths))
        self._busy.labels(model).observe(seconds)
        self._characters.labels(model).inc(sum(lengths))

    def count_error(self, code: str) -> None:
        self._errors.labels(code).inc()

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._latency.labels(path).observe(seconds)

    def page(self) -> bytes:
        """Prometheus' text form."""
        return generate_latest(self._registry)


class Measured:
    """ASGI middleware: counts each request, by the path of its route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            # A client may ask for any path: one that is no route's is not counted by its name.
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.count_request(path, status, time.perf_counter() - start)
