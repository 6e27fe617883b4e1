"""The paths of the service."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from .schema import (
    BatchAnswer,
    BatchRequest,
    Bounds,
    ErrorAnswer,
    ExplanationRequest,
    Health,
    Line,
    LineAnswer,
    ModelsAnswer,
    Options,
    TextAnswer,
    TextRequest,
)
from .service import Service
from .stream import NdjsonResponse, StreamAnswer

STREAM = "/v1/entities/stream"
ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorAnswer, "description": "There is no such model."},
    408: {"model": ErrorAnswer, "description": "The request took too long to arrive."},
    413: {"model": ErrorAnswer, "description": "A text, the texts or the body are over a limit."},
    422: {"model": ErrorAnswer, "description": "The request is not what the schema says."},
    503: {"model": ErrorAnswer, "description": "Too many texts are waiting; Retry-After says how many seconds."},
}

NDJSON = str(NdjsonResponse.media_type)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
api = APIRouter(prefix="/v1", tags=["entities"])
operation = APIRouter(tags=["operation"])


@api.get("/models", response_model=ModelsAnswer)
async def models(service: TheService) -> Any:
    """The models that answer here, the default first, and the limits of a request."""
    limits = service.limits
    bounds = Bounds.model_validate(limits, from_attributes=True)
    return ModelsAnswer(models=[served.info for served in service.models.values()], limits=bounds)


@api.post("/entities", response_model=TextAnswer, responses=ERRORS)
async def entities(request: TextRequest, service: TheService) -> Any:
    """The entities of one text, each with its probability."""
    served = service.model(request.model)
    found = await service.entities(request.text, request)
    return _json(TextAnswer(model=served.name, entities=found).model_dump_json())


@api.post("/entities/batch", response_model=BatchAnswer, responses=ERRORS)
async def batch(request: BatchRequest, service: TheService) -> Any:
    """The entities of several texts."""
    served = service.model(request.model)
    found = await service.batch(request.texts, request)
    return _json(BatchAnswer(model=served.name, answers=found).model_dump_json())


@api.post(
    "/entities/stream",
    response_class=NdjsonResponse,
    responses={200: {"model": LineAnswer}, 404: ERRORS[404], 422: ERRORS[422]},
    openapi_extra={"requestBody": {"content": {NDJSON: {"schema": Line.model_json_schema()}}, "required": True}},
)
async def stream(options: Annotated[Options, Query()], service: TheService) -> Any:
    """The entities of any number of texts, a JSON object on each line, answered line by line and in order.

    Answers come while texts are sent: read them at the same time. A line that cannot be read, or a text that is too
    long, gets a line with an error, and the stream goes on.
    """
    return StreamAnswer(service, options)


@api.post("/explanation", responses={**ERRORS, 200: {"content": {"text/html": {}, "application/json": {}}}})
async def explanation(request: ExplanationRequest, service: TheService) -> Any:
    """Why the entities of a text were found: rivals, the best readings, and the characters that each rests on. The data
    is what `spacy_tener.explain` returns; its places are characters."""
    content = await service.explanation(request.text, request.model, request.format)
    return Response(content, media_type="text/html" if request.format == "html" else "application/json")


@operation.get("/health", response_model=Health, responses={503: {"model": Health}})
async def health(service: TheService) -> Any:
    """Whether the models' threads run. An overloaded service is healthy: ask `/ready` before sending it more."""
    return _state(service, {"failed"})


@operation.get("/ready", response_model=Health, responses={503: {"model": Health}})
async def ready(service: TheService) -> Any:
    """Whether further texts would be taken."""
    return _state(service, {"failed", "overloaded", "stopping"})


@operation.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: TheService) -> Any:
    """Counters in Prometheus' text form."""
    return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _state(service: Service, bad: set[str]) -> Response:
    health = Health(status=service.status, models=service.waiting)
    return _json(health.model_dump_json(), 503 if health.status in bad else 200)


def _json(content: str, status: int = 200) -> Response:
    """An answer that is valid as it is: FastAPI would check and write it once more."""
    return Response(content, status, media_type="application/json")
