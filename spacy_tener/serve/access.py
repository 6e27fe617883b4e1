"""Access control: the API key, allowed origins (CORS), and the size and duration of requests."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Message

from ..errors import RemedyError
from .schema import Limits, ServiceError

Result = TypeVar("Result")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
KEY_VARIABLE = "TENER_API_KEY"
_ORIGIN = re.compile(r"\*|https?://[^/\s]+")


def read_api_key(path: Path | None) -> str:
    """Return the API key from a file or, without a file, from the environment. Return "" if no key is set."""
    key, source = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    if path is not None:
        try:
            key, source = path.read_text(encoding="utf8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not text"
            raise RemedyError(f"{path}: {reason}", "Pass a text file that contains only the API key.") from error
    key = key.strip()
    if (path is not None and not key) or not key.isascii() or not key.isprintable() or " " in key:
        raise RemedyError(f"{source} contains no valid API key", "A key consists of ASCII characters without spaces.")
    return key


def check_origins(origins: Iterable[str]) -> list[str]:
    """Return the origins. Raise an error if an origin cannot match the Origin header of a browser."""
    origins = list(origins)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise RemedyError(
                f"'{origin}' is not an origin", "Use https://host, https://host:port, or * for all origins."
            )
    return origins


def has_key(headers: Mapping[str, str], key: str) -> bool:
    """Return whether the Authorization header contains the key: as `Bearer KEY`, or as the password in `Basic`.

    The comparison takes constant time, so that response times reveal nothing about the key.
    """
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            credentials = base64.b64decode(credentials.strip(), validate=True).decode("latin-1").partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return secrets.compare_digest(credentials.strip().encode("latin-1", "replace"), key.encode())


class ServiceRoute(APIRoute):
    """A route that checks the API key, and then receives the body of the request within the limits of the service."""

    def get_route_handler(self) -> Handler:
        return partial(self.answer, super().get_route_handler())

    async def answer(self, handler: Handler, request: Request) -> Response:
        """Return the response of the handler. If the client disconnects, the handler is cancelled."""
        state = request.app.state
        if state.api_key and not has_key(request.headers, state.api_key):
            has_header = "authorization" in request.headers
            reason = "This is not the API key of the service" if has_header else "The service requires an API key"
            message = f"{reason}. Send it in the header Authorization: Bearer KEY."
            raise ServiceError(401, "unauthorized", message, {"www-authenticate": "Bearer"})
        if not self.body_field:
            return await handler(request)
        limits: Limits = state.service.limits
        try:
            async with asyncio.timeout(limits.timeout):
                body = await _read_body(request, limits.body)
        except TimeoutError:
            message = f"The request did not arrive within {limits.timeout:g} seconds. Send it again."
            raise ServiceError(408, "too_slow", message, {"connection": "close"}) from None
        except ClientDisconnect:
            return _client_closed_request()

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        response = handler(Request(request.scope, receive))
        return await unless_disconnected(response, request.receive()) or _client_closed_request()


async def _read_body(request: Request, limit: int) -> bytes:
    """Receive the body of a request. Raise an error if it has more than `limit` bytes."""
    too_large = ServiceError(
        413, "body_too_large", f"The body is larger than {limit:,} bytes. Send fewer texts at once."
    )
    content_length = request.headers.get("content-length", "")
    if content_length.isdecimal() and int(content_length) > limit:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)


async def unless_disconnected(work: Awaitable[Result], disconnect: Awaitable[object]) -> Result | None:
    """Return the result of `work`, or cancel it and return None if the client disconnects first."""
    result, disconnected = asyncio.ensure_future(work), asyncio.ensure_future(disconnect)
    try:
        await asyncio.wait((result, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        disconnected.result()
        return None
    finally:
        result.cancel()
        disconnected.cancel()
        await asyncio.gather(result, disconnected, return_exceptions=True)


def _client_closed_request() -> Response:
    """Return a response for the log. It has the status code of nginx for requests whose client disconnected."""
    return Response(status_code=499)
