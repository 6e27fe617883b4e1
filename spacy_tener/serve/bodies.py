"""Bodies of requests: as much of them, and for as long, as the limits allow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Collection
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .limits import Limits, RefusedError, too_slow


class Bounded:
    """ASGI middleware: takes a request's whole body before the application sees it, and stops the work of a client
    that has gone.

    streamed: Paths whose routes read their bodies themselves.
    """

    def __init__(self, app: ASGIApp, limits: Limits, streamed: Collection[str]) -> None:
        self.app = app
        self.limits = limits
        self.streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Mounted in another application, the path begins with that application's.
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) in self.streamed:
            return await self.app(scope, receive, send)
        try:
            body = await asyncio.wait_for(read(Request(scope, receive), self.limits.body), self.limits.seconds)
        except ClientDisconnect:
            return
        except RefusedError as error:
            return await refusal(error)(scope, receive, send)
        except TimeoutError:
            return await refusal(too_slow(self.limits), close=True)(scope, receive, send)
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await unless_gone(self.app(scope, replay, send), receive)


async def read(request: Request, most: int) -> bytes:
    """A whole body, of at most so many bytes."""
    too_large = RefusedError(
        413, "body_too_large", f"The body is larger than {most:,} bytes. Send fewer texts at once."
    )
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return bytes(body)


async def unless_gone(work: Awaitable[None], receive: Receive) -> None:
    """Do the work, or stop it where the client goes before it is done."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def refusal(error: RefusedError, *, close: bool = False) -> Response:
    """What a client gets that is refused.

    close: End the connection, whatever else it was about to bring.
    """
    headers = {**error.headers, "connection": "close"} if close else error.headers
    # In ASCII: what the message repeats of the request may hold half of a surrogate pair.
    return Response(json.dumps(error.body), error.status, headers, media_type="application/json")
