"""NDJSON in, NDJSON out: a line for each text, in order, with a bounded number of them on their way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..annotate.batches import TOGETHER
from .limits import Limits, RefusedError, invalid, too_slow
from .schema import ErrorDetail, Line, LineAnswer, Options
from .service import Service, wanted

_LINES = 256
"""Lines of a stream that are on their way at most, and of their characters as many as are read together."""


@dataclass(frozen=True)
class Asked:
    """A line that was read, and its entities to come, or why there will be none."""

    number: int
    line: Line | None
    result: asyncio.Future[Any] | RefusedError

    @property
    def size(self) -> int:
        return len(self.line.text) if self.line else 0


class NdjsonResponse(Response):
    media_type = "application/x-ndjson"


class StreamAnswer(NdjsonResponse):
    """Reads the request and writes the answer at the same time, so that a client may wait for each line's answer.

    A client that does not read its answers is not read either: nothing piles up here.
    """

    def __init__(self, service: Service, options: Options) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.service = service
        self.options = options
        self.served = service.model(options.model)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        window = _Window()
        reading = asyncio.ensure_future(self._read(Request(scope, receive), window))
        try:
            while (asked := await window.get()) is not None:
                body = (await self._answer(asked)).model_dump_json(exclude_unset=True).encode() + b"\n"
                message = {"type": "http.response.body", "body": body, "more_body": True}
                await asyncio.wait_for(send(message), self.service.limits.seconds)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # Nobody reads: the server closes the connection.
        finally:
            reading.cancel()
            window.cancel()

    async def _read(self, request: Request, window: _Window) -> None:
        number = 0
        try:
            async for raw in self._lines(request):
                number += 1
                if isinstance(raw, RefusedError):
                    await window.put(Asked(number, None, raw))
                elif raw.strip():
                    await window.put(await self._ask(number, raw))
        except RefusedError as error:
            await window.put(Asked(number + 1, None, error))
        except ClientDisconnect:
            pass
        finally:
            window.end()

    async def _lines(self, request: Request) -> AsyncIterator[bytes | RefusedError]:
        """The lines, and in the place of one that is too long, of which nothing is kept, why it is refused."""
        limits = self.service.limits
        refused = RefusedError(413, "line_too_long", f"The line is longer than {limits.line:,} bytes.")
        rest, is_refused = b"", False
        stream = request.stream()
        while chunk := await _next(stream, limits):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not is_refused:
                    yield line if len(line) <= limits.line else refused
                is_refused = False
            if len(rest) > limits.line and not is_refused:
                yield refused
                is_refused = True
            rest = b"" if is_refused else rest
            if self.service.stopping:
                raise RefusedError(503, "stopping", "The service stops. Send this line and those behind it again.")
        if not is_refused:
            yield rest

    async def _ask(self, number: int, raw: bytes) -> Asked:
        try:
            line = Line.model_validate_json(raw)
        except ValidationError as error:
            return Asked(number, None, invalid(error.errors()))
        try:
            self.service.check(line.text)
        except RefusedError as error:
            return Asked(number, line, error)
        return Asked(number, line, await self.served.worker.submit(self.served.entities, line.text, patient=True))

    async def _answer(self, asked: Asked) -> LineAnswer:
        answer = LineAnswer(line=asked.number)
        if asked.line and asked.line.id is not None:
            answer.id = asked.line.id
        try:
            if isinstance(asked.result, RefusedError):
                raise asked.result
            assert asked.line is not None
            found = await self.served.worker.wait_for(asked.result)
            answer.entities = wanted(asked.line.text, found, self.options)
        except RefusedError as error:
            self.service.metrics.count_error(error.code)
            answer.error = ErrorDetail(code=error.code, message=error.message)
        return answer


async def _next(stream: AsyncIterator[bytes], limits: Limits) -> bytes:
    """The next part of a body; nothing at its end."""
    try:
        return await asyncio.wait_for(anext(stream, b""), limits.seconds)
    except TimeoutError:
        raise too_slow(limits) from None


class _Window:
    """Lines between reading and answering."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Asked | None] = asyncio.Queue()
        self._size = 0
        self._room = asyncio.Event()

    async def put(self, asked: Asked) -> None:
        """Wait for room, and add a line."""
        while self._queue.qsize() >= _LINES or (self._size and self._size + asked.size > TOGETHER):
            self._room.clear()
            await self._room.wait()
        self._size += asked.size
        self._queue.put_nowait(asked)

    async def get(self) -> Asked | None:
        """The next line; None at the end."""
        asked = await self._queue.get()
        self._size -= asked.size if asked else 0
        self._room.set()
        return asked

    def end(self) -> None:
        self._queue.put_nowait(None)

    def cancel(self) -> None:
        """Nobody waits for the rest."""
        while not self._queue.empty():
            asked = self._queue.get_nowait()
            if asked and isinstance(asked.result, asyncio.Future):
                asked.result.cancel()
