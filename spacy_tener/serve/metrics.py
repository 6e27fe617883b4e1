"""Prometheus metrics of the service, and a middleware that records the number and latency of requests."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Upper bounds of the histogram buckets.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Prometheus metrics of a single service.

    Each instance has its own registry, so that several services can run in the same process.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("tener_requests", "Requests answered", ["path", "status"], registry=registry)
        self.latency = Histogram(
            "tener_request_seconds", "Seconds of a request", ["path"], buckets=_SECONDS, registry=registry
        )
        self.batch_texts = Histogram(
            "tener_batch_texts", "Texts of a batch", ["model"], buckets=_TEXTS, registry=registry
        )
        self.batch_seconds = Histogram(
            "tener_batch_seconds", "Seconds of a batch", ["model"], buckets=_SECONDS, registry=registry
        )
        self.characters = Counter("tener_characters", "Characters predicted", ["model"], registry=registry)
        self.waiting_characters = Gauge(
            "tener_waiting_characters", "Characters in the queue", ["model"], registry=registry
        )


class MetricsMiddleware:
    """ASGI middleware that records the number and latency of requests per route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 0

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note_status)
        finally:
            # All unknown paths have the same label. Otherwise, clients could create an unlimited number of time series.
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.latency.labels(path).observe(time.perf_counter() - start)
