"""The service's ASGI application and server: routes, pages and error responses."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from spacy.language import Language
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import explain
from .. import pages as page_parts
from ..about import __version__
from ..errors import UserError
from ..pages import page_policy
from . import ml_backend, schema
from .access import ServiceRoute
from .metrics import MetricsMiddleware
from .schema import ERRORS
from .service import Service, TheService

STATIC = Path(__file__).parent / "static"
PARTS = Path(page_parts.__file__).parent
# The demo page shows explanations in an iframe with inline styles and scripts. The iframe inherits this Content
# Security Policy, so `page_policy` adds the hashes of the inline code.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        page_policy(explain.__name__, "page", also="'self' "),
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'none'",
    ]
)

# Thread switch interval in seconds. While one thread predicts, other requests wait for the GIL for up to this time.
# Python's default is 5 ms.
SWITCH_INTERVAL = 0.0005


def make_app(
    models: Mapping[str, Language],
    limits: schema.Limits | None = None,
    *,
    api_key: str = "",
    allow_origins: Sequence[str] = (),
    gpu_id: int = -1,
) -> FastAPI:
    """Create an ASGI application that serves pipelines.

    models (Mapping[str, Language]): Pipelines by name. The first pipeline is the default model.
    limits (Optional[Limits]): Request limits.
    api_key (str): API key that clients have to send. If empty, no key is required.
    allow_origins (Sequence[str]): Allowed CORS origins, such as `https://host`, or `*` for all origins.
    gpu_id (int): The GPU that the pipelines were loaded on, or -1 for the CPU.
    RETURNS (FastAPI): The application.
    """
    service = Service(models, limits or schema.Limits(), gpu_id)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(title="spacy_tener", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service = service
    app.state.api_key = api_key
    # This dependency only adds the API key to the OpenAPI schema. `ServiceRoute` checks the key.
    protected = [Security(HTTPBearer(auto_error=False, description="The API key of the service."))] if api_key else []
    for router in (api, ml_backend.router, monitoring):
        app.include_router(router, dependencies=protected)
    for router in (health_checks, pages):
        app.include_router(router)
    for router in (ml_backend.router, health_checks):
        # Label Studio identifies a backend by its URL. Each model therefore has its own URL.
        named_model = [Depends(ml_backend.served_model)]
        app.include_router(router, prefix="/label-studio/{model}", dependencies=named_model, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
    app.add_middleware(HeadMiddleware)  # outside of `MetricsMiddleware`, which gets the copy of the scope
    if allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allow_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    for error_type in (RequestValidationError, HTTPException):
        app.add_exception_handler(error_type, _error_response)
    return app


class HeadMiddleware:
    """ASGI middleware that answers HEAD requests like GET requests. The server leaves out the body of the response.

    FastAPI has separate routes for HEAD, which would double the routes in the OpenAPI schema.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server's own scope still says HEAD
        await self.app(scope, receive, send)


# --- Error responses


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        in_body = error.errors()[0]["loc"][0] == "body"
        is_json = request.headers.get("content-type", "").partition(";")[0] == "application/json"
        need_header = schema.ServiceError(422, "invalid", "Send JSON with the header Content-Type: application/json.")
        error = need_header if in_body and not is_json else schema.invalid(error.errors())
    assert isinstance(error, HTTPException)
    # FastAPI returns status 400 if the JSON parser fails with another error than a syntax error.
    if error.status_code == 400:
        error = schema.ServiceError(422, "invalid", _parser_problem(error.__cause__))
    code = error.code if isinstance(error, schema.ServiceError) else HTTPStatus(error.status_code).name.lower()
    # The message may quote invalid text, such as a lone surrogate. `json.dumps` escapes all non-ASCII characters, so
    # encoding the response as UTF-8 can't fail.
    content = json.dumps({"error": {"code": code, "message": error.detail}})
    return Response(content, error.status_code, error.headers, media_type="application/json")


def _parser_problem(error: BaseException | None) -> str:
    """Describe an error of the JSON parser that is not a syntax error."""
    if isinstance(error, UnicodeDecodeError):
        return "The body is not JSON in UTF-8."
    if isinstance(error, RecursionError):
        return "The JSON is nested too deeply. Send the fields of the schema only."
    return "The JSON contains a value that cannot be parsed, such as a number with thousands of digits."


# --- API routes


api = APIRouter(prefix="/v1", tags=["entities"], route_class=ServiceRoute)
monitoring = APIRouter(tags=["operation"], route_class=ServiceRoute)
health_checks = APIRouter(tags=["operation"])
pages = APIRouter(include_in_schema=False)


@api.post("/entities", responses=ERRORS)
async def find_entities(request: schema.TextRequest, service: TheService) -> schema.TextResponse:
    """Find the entities in one text, with their probabilities."""
    served = service.model(request.model)
    service.check(request.text)
    [entities] = await service.entities([request.text], request)
    return schema.TextResponse(model=served.name, entities=entities)


@api.post("/entities/batch", responses=ERRORS)
async def find_entities_of_batch(request: schema.BatchRequest, service: TheService) -> schema.BatchResponse:
    """Find the entities in several texts."""
    served = service.model(request.model)
    return schema.BatchResponse(model=served.name, answers=await service.entities(request.texts, request))


@api.post("/explanation", responses={**ERRORS, 200: {"content": {"text/html": {}, "application/json": {}}}})
async def explain_text(request: schema.ExplanationRequest, service: TheService) -> Any:
    """Explain the entities in a text: alternatives, the best label sequences, and the characters that support each
    entity. The response contains the data of `spacy_tener.explain`, with offsets in characters."""
    explanation = await service.explanation(request.text, request.model, request.words)
    if request.format == "html":
        return Response(await asyncio.to_thread(explanation.to_html), media_type="text/html")
    return Response(await asyncio.to_thread(explanation.to_json), media_type="application/json")


@api.get("/models")
async def list_models(service: TheService) -> schema.ModelsResponse:
    """List the models, beginning with the default model, and the limits of a request."""
    return schema.ModelsResponse(models=[served.info for served in service.models.values()], limits=service.limits)


@health_checks.get("/health", responses={503: {"model": schema.HealthResponse}})
async def health(service: TheService, response: Response) -> schema.HealthResponse:
    """Check that the threads of all models are running. An overloaded service is healthy, but not ready (see
    `/ready`)."""
    return _health(service, response, {"failed"})


@health_checks.get("/ready", responses={503: {"model": schema.HealthResponse}})
async def ready(service: TheService, response: Response) -> schema.HealthResponse:
    """Check that the service accepts more texts."""
    return _health(service, response, {"failed", "overloaded", "stopping"})


def _health(service: Service, response: Response, unavailable: set[str]) -> schema.HealthResponse:
    health = schema.HealthResponse(status=service.status, models=service.waiting)
    response.status_code = 503 if health.status in unavailable else 200
    return health


@monitoring.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: TheService) -> Any:
    """Return metrics in the text format of Prometheus."""
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


# --- Pages. They don't load resources from other hosts.


@pages.get("/")
@pages.get("/docs")
async def page(request: Request) -> Response:
    name = "docs.html" if request.url.path.endswith("/docs") else "page.html"
    headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-cache"}
    return FileResponse(STATIC / name, headers=headers)


@pages.get("/static/parts.css")
@pages.get("/static/found.css")
@pages.get("/static/strings.js")
@pages.get("/static/parts.js")
@pages.get("/static/found.js")
async def shared_parts(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    return FileResponse(PARTS / ("page.css" if name == "parts.css" else name))


# --- Server


class Server(uvicorn.Server):
    """A uvicorn server that completes pending requests before it stops.

    app (FastAPI): The application from `make_app`.
    on_startup (Callable[[], None]): Callback for when the server accepts requests.
    """

    def __init__(self, app: FastAPI, on_startup: Callable[[], None]) -> None:
        self._service: Service = app.state.service
        self._on_startup = on_startup
        limits = self._service.limits
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=int(limits.timeout) + 1,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_startup()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stopping = True
        for server in self.servers:
            server.close()
        # Give the event loop time to accept requests that have already arrived.
        await asyncio.sleep(0.1)
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """Create a socket and bind it to an address. The socket doesn't listen yet.

    Call this function before loading the pipelines, to detect early that a port is already in use. Raises a UserError
    if the address is not available.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UserError(f"{host}:{port}: {error.strerror}", "Choose another --host or --port.") from error
    return sock


def address(sock: socket.socket) -> str:
    """Return the URL that a socket is bound to."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: FastAPI, sock: socket.socket, on_startup: Callable[[], None]) -> None:
    """Run the server until SIGTERM or Ctrl-C. Pending requests are completed before the function returns.

    app (FastAPI): The application from `make_app`.
    sock (socket.socket): The socket from `bind`.
    on_startup (Callable[[], None]): Callback for when the server accepts requests.
    """
    # After a graceful shutdown, uvicorn raises SIGTERM again. Ignore it, so that the process exits with status 0.
    handler, interval = signal.signal(signal.SIGTERM, signal.SIG_IGN), sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        Server(app, on_startup).run([sock])
    finally:
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGTERM, handler)
