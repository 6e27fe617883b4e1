"""The application: routes, bounds, counters, and how errors leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from spacy.language import Language
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..about import __version__
from .bodies import Bounded, refusal
from .limits import Limits, RefusedError, invalid
from .metrics import Measured
from .pages import add_pages
from .routes import STREAM, api, operation
from .service import Service


def make_app(models: Mapping[str, Language], limits: Limits | None = None) -> FastAPI:
    """An ASGI application that serves pipelines by their names."""
    service = Service(models, limits or Limits())

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(title="spacy_tener", version=__version__, docs_url=None, redoc_url=None, lifespan=running)
    app.state.service = service
    app.include_router(api)
    app.include_router(operation)
    app.add_middleware(Bounded, limits=service.limits, streamed={STREAM})
    app.add_middleware(Measured, metrics=service.metrics)
    add_pages(app)
    for kind in (RefusedError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    refused = _as_refused(request, error)
    request.app.state.service.metrics.count_error(refused.code)
    return refusal(refused)


def _as_refused(request: Request, error: Exception) -> RefusedError:
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, RequestValidationError):
        in_body = error.errors()[0]["loc"][0] == "body"
        if in_body and request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return RefusedError(422, "invalid", "Send JSON with the header Content-Type: application/json.")
        return invalid(error.errors())
    assert isinstance(error, HTTPException)
    codes: dict[int, str] = {400: "invalid", 404: "not_found", 405: "method_not_allowed"}
    return RefusedError(error.status_code, codes.get(error.status_code, "refused"), str(error.detail))
