"""The NDJSON stream: a line of response for each line of the request, in order, with a bounded number pending."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..pipeline.doc_entities import TOGETHER
from ..pipeline.finding import make_listed_text
from .access import unless_disconnected
from .schema import ErrorDetail, LineRequest, LineResponse, Options, ServiceError, invalid, request_timeout
from .service import Service, to_response

_MAX_PENDING = 256
"""Most pending lines of a stream. Their characters are limited to `TOGETHER`."""


@dataclass(frozen=True)
class PendingLine:
    """A line of the request, and its future answer or its error. Its length is that of the text and the id."""

    number: int
    request: LineRequest | None
    answer: asyncio.Future[Any] | ServiceError

    def __len__(self) -> int:
        return len(self.request.text) + len(str(self.request.id or "")) if self.request else 0


class NdjsonResponse(Response):
    media_type = "application/x-ndjson"


class StreamResponse(NdjsonResponse):
    """A response that is written while the request is read, so that a client may wait for each line's answer.

    The request is read no faster than the client reads its answers, so memory stays bounded.
    """

    def __init__(self, service: Service, options: Options) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.service = service
        self.options = options
        self.served = service.model(options.model)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pending = _PendingLines()
        try:
            await unless_disconnected(self._write(send, pending), self._read(Request(scope, receive), pending))
        finally:
            pending.cancel()

    async def _write(self, send: Send, pending: _PendingLines) -> None:
        with suppress(TimeoutError):  # The client does not read: the server closes the connection.
            while (line := await pending.get()) is not None:
                body = (await self._answer(line)).model_dump_json(exclude_unset=True).encode() + b"\n"
                message = {"type": "http.response.body", "body": body, "more_body": True}
                await asyncio.wait_for(send(message), self.service.limits.timeout)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read(self, request: Request, pending: _PendingLines) -> None:
        """Submit the lines of the request, then wait until the client goes away."""
        number = 0
        try:
            async for raw in self._lines(request):
                number += 1
                if number == 1 and isinstance(raw, bytes):
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if isinstance(raw, ServiceError):
                    await pending.put(PendingLine(number, None, raw))
                elif raw.strip():
                    await pending.put(await self._submit(number, raw))
        except ServiceError as error:
            await pending.put(PendingLine(number + 1, None, error))
        except TimeoutError:
            await pending.put(PendingLine(number + 1, None, request_timeout(self.service.limits)))
        except ClientDisconnect:
            return
        pending.end()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    async def _lines(self, request: Request) -> AsyncIterator[bytes | ServiceError]:
        """Split the body into lines. A line that is too long is dropped, and an error takes its place."""
        limits = self.service.limits
        too_long = ServiceError(413, "line_too_long", f"The line is longer than {limits.line:,} bytes.")
        rest, skipped = b"", False
        stream = request.stream()
        while chunk := await asyncio.wait_for(anext(stream, b""), limits.timeout):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not skipped:
                    yield line if len(line) <= limits.line else too_long
                skipped = False
            if len(rest) > limits.line and not skipped:
                yield too_long
                skipped = True
            rest = b"" if skipped else rest
            if self.service.stopping:
                raise ServiceError(503, "stopping", "The service is stopping. Send this line and all after it again.")
        if not skipped:
            yield rest

    async def _submit(self, number: int, raw: bytes) -> PendingLine:
        try:
            request = LineRequest.model_validate_json(raw)
            self.service.check(request.text)
            text = make_listed_text(request.text, request.words)
            future = await self.served.worker.submit(self.served.entities, text, block=True)
            return PendingLine(number, request, future)
        except ValidationError as error:
            return PendingLine(number, None, invalid(error.errors()))
        except ServiceError as error:
            return PendingLine(number, request, error)

    async def _answer(self, line: PendingLine) -> LineResponse:
        response = LineResponse(line=line.number)
        if line.request and line.request.id is not None:
            response.id = line.request.id
        try:
            if isinstance(line.answer, ServiceError):
                raise line.answer
            assert line.request is not None
            (found,) = await self.served.worker.answers([line.answer])
            if isinstance(found, ServiceError):
                raise found
            response.entities = to_response(line.request.text, found, self.options)
        except ServiceError as error:
            self.service.metrics.errors.labels(error.code).inc()
            response.error = ErrorDetail(code=error.code, message=error.detail)
        return response


class _PendingLines:
    """A queue of lines between reading and answering, limited in lines and in characters."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[PendingLine | None] = asyncio.Queue()
        self._size = 0
        self._not_full = asyncio.Event()

    async def put(self, line: PendingLine) -> None:
        while self._queue.qsize() >= _MAX_PENDING or (self._size and self._size + len(line) > TOGETHER):
            self._not_full.clear()
            await self._not_full.wait()
        self._size += len(line)
        self._queue.put_nowait(line)

    async def get(self) -> PendingLine | None:
        """Return the next line; None at the end."""
        line = await self._queue.get()
        self._size -= len(line) if line else 0
        self._not_full.set()
        return line

    def end(self) -> None:
        self._queue.put_nowait(None)

    def cancel(self) -> None:
        """Cancel the remaining lines."""
        while not self._queue.empty():
            line = self._queue.get_nowait()
            if line and isinstance(line.answer, asyncio.Future):
                line.answer.cancel()
