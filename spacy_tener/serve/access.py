"""Access control for the HTTP service: API key, allowed CORS origins, maximum body size and timeout."""

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

from ..errors import UserError
from .schema import Limits, ServiceError

Result = TypeVar("Result")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
KEY_VARIABLE = "TENER_API_KEY"
_ORIGIN = re.compile(r"\*|https?://[^/\s]+")


def read_api_key(path: Path | None) -> str:
    """Read the API key from a file or, without a path, from the environment variable `TENER_API_KEY`.

    RETURNS (str): The API key, or an empty string if the environment variable is not set.
    """
    key, source = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    if path is not None:
        try:
            key, source = path.read_text(encoding="utf8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not text"
            raise UserError(f"{path}: {reason}", "Pass a text file that contains only the API key.") from error
    key = key.strip()
    if (path is not None and not key) or not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(f"{source} contains no valid API key", "A key consists of ASCII characters without spaces.")
    return key


def check_origins(origins: Iterable[str]) -> list[str]:
    """Validate the allowed CORS origins, and return them as a list.

    Raises a UserError for values that are not origins, such as URLs with a path. They would never match a browser's
    Origin header.
    """
    origins = list(origins)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise UserError(
                f"'{origin}' is not an origin", "Use https://host, https://host:port, or * for all origins."
            )
    return origins


def has_key(headers: Mapping[str, str], key: str) -> bool:
    """Return whether the Authorization header contains the API key, either as `Bearer KEY` or as the password of Basic
    authentication.

    Keys are compared in constant time to prevent timing attacks.
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
    """A route that requires the API key, and enforces the body size limit and the timeout."""

    def get_route_handler(self) -> Handler:
        return partial(self.answer, super().get_route_handler())

    async def answer(self, handler: Handler, request: Request) -> Response:
        """Return the handler's response. The handler is cancelled if the client disconnects.

        Raises a ServiceError if the API key is wrong or the request exceeds a limit.
        """
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
    """Read the request body. Raises a ServiceError if the body has more than `limit` bytes."""
    too_large = ServiceError(
        413, "body_too_large", f"The body is larger than {limit:,} bytes. Send fewer texts at once."
    )
    # Reject a declared length early. Also count the received bytes, because the header may be missing or wrong.
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
    """Wait until `work` is done or the client disconnects.

    RETURNS (Result | None): The result of `work`. If the client disconnects first, `work` is cancelled and None is
        returned.
    """
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
    """Return a response with status 499. It only appears in metrics and logs, since the client has disconnected.

    nginx uses this non-standard status for the same purpose.
    """
    return Response(status_code=499)
