"""Route classes that limit the body and check the API key, with the dependency and errors that routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from . import schema
from .access import has_key
from .service import Service

Handler = Callable[[Request], Awaitable[Response]]

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.ErrorResponse, "description": description}
    for status, description in {
        401: "The API key is missing or wrong.",
        404: "There is no such model.",
        408: "The request took too long to arrive.",
        413: "A text, the number of texts or the body is over a limit.",
        422: "The request does not match the schema.",
        503: "Too many texts are waiting; Retry-After says how many seconds.",
    }.items()
}


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]


class BoundedRoute(APIRoute):
    """A route that limits the size and time of a body, and cancels the work if the client disconnects."""

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()

        async def bounded_handler(request: Request) -> Response:
            limits: schema.Limits = request.app.state.service.limits
            try:
                async with asyncio.timeout(limits.timeout):
                    await _read_body(request, limits.body)
            except TimeoutError:
                raise schema.request_timeout(limits) from None
            except ClientDisconnect:
                return _client_closed_request()
            return await _unless_disconnected(handler, request)

        return bounded_handler if self.body_field else handler


class ProtectedRoute(BoundedRoute):
    """A bounded route that checks the API key, if the service has one, before it reads a body."""

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()

        async def protected_handler(request: Request) -> Response:
            key: str = request.app.state.api_key
            if key and not has_key(request.headers, key):
                raise schema.unauthorized("authorization" in request.headers)
            response: Response = await handler(request)
            return response

        return protected_handler


async def _read_body(request: Request, limit: int) -> None:
    """Read a body of at most `limit` bytes, and keep it where `request.body()` finds it."""
    too_large = schema.ServiceError(
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
    request._body = bytes(body)


async def _unless_disconnected(handler: Handler, request: Request) -> Response:
    """Return the handler's response. Cancel the handler if the client disconnects first."""
    response = asyncio.ensure_future(handler(request))
    disconnect = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((response, disconnect), return_when=asyncio.FIRST_COMPLETED)
        return response.result() if response.done() else _client_closed_request()
    finally:
        response.cancel()
        disconnect.cancel()


def _client_closed_request() -> Response:
    """Return a response that nobody reads, with nginx' status for such requests."""
    return Response(status_code=499)
