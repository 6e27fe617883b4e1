"""An ML backend for Label Studio: predictions for its tasks, in the labels of its projects, with scores.

Like Python, Label Studio counts offsets in code points. The backend keeps no state, so that a repeated request is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ..pipeline.decoding import Reading
from ..pipeline.doc_entities import reading_score
from ..pipeline.entities import FoundEntity
from .access import Handler, ServiceRoute
from .labelling_interface import TextTag, read_interface
from .schema import ERRORS, ErrorResponse, ServiceError, Text
from .service import ServedModel, TheService

_LOG = logging.getLogger(__name__)


class LoggingRoute(ServiceRoute):
    """A route that logs its errors: Label Studio shows their status only, and refers its users to the backend's log."""

    async def answer(self, handler: Handler, request: Request) -> Response:
        try:
            return await super().answer(handler, request)
        except ServiceError as error:
            _LOG.warning("Label Studio, %s: %s", request.url.path, error.detail)
            raise


class SetupRequest(BaseModel):
    """The project that connects the backend. Other fields, such as the access token, are ignored."""

    label_config: Text = Field(alias="schema")


class SetupResponse(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_version: str


class TaskIn(BaseModel):
    model_config = ConfigDict(title="Task")

    id: Text | int | None = None
    data: dict[str, Any]


class PredictRequest(BaseModel):
    label_config: Text
    tasks: list[TaskIn]


class TaskError(BaseModel):
    task: str | int | None = None
    message: str


class RegionValue(BaseModel):
    start: int
    end: int = Field(description="Offset after the last character. Characters are code points.")
    text: str
    labels: list[str]


class Region(BaseModel):
    """An entity, with the label and tag names of the labelling interface."""

    id: str
    from_name: str
    to_name: str
    type: Literal["labels"] = "labels"
    value: RegionValue
    score: float | None = Field(description="The probability of the entity; null if its component gives none.")


class Prediction(BaseModel):
    """The entities of a task's texts.

    score (float | None): That of the best reading of all texts, see `reading_score`; None without a `tener_ner`.
    """

    model_config = ConfigDict(protected_namespaces=())

    result: list[Region]
    score: float | None
    model_version: str


class PredictResponse(BaseModel):
    results: list[Prediction | list[Prediction]] = Field(
        description="A prediction for each task; an empty list for a task without one."
    )
    errors: list[TaskError] = Field(description="The errors of texts without a prediction.")


class WebhookRequest(BaseModel):
    action: Text


class WebhookResponse(BaseModel):
    status: str
    message: str


async def served_model(request: Request, service: TheService) -> ServedModel:
    return service.model(request.path_params.get("model"))


Served = Annotated[ServedModel, Depends(served_model)]
router = APIRouter(tags=["Label Studio"], route_class=LoggingRoute)


@router.post("/setup", responses=ERRORS)
async def setup(request: SetupRequest, served: Served) -> SetupResponse:
    """Check that the labelling interface of a project has texts, and labels that the model finds."""
    tags = read_interface(request.label_config, served.info.labels)
    for tag in tags:
        if missing := sorted(set(served.info.labels) - tag.labels.keys()):
            _log_once(f"Label Studio has no label for {', '.join(missing)} over the text '{tag.name}'")
    return SetupResponse(model_version=served.model_version)


@lru_cache(maxsize=256)
def _log_once(message: str) -> None:
    """Log a message once: Label Studio repeats its check before each prediction."""
    _LOG.warning(message)


@router.post("/predict", responses=ERRORS)
async def predict(request: PredictRequest, served: Served, service: TheService) -> PredictResponse:
    """Predict the entities of Label Studio's tasks, with a score for each entity and for each task.

    A text that is missing or too long is left out and reported in `errors`.
    """
    tags = read_interface(request.label_config, served.info.labels)
    parts: list[tuple[int, TextTag, str]] = []
    errors: list[TaskError] = []

    def refuse(number: int, error: ServiceError) -> None:
        task = request.tasks[number].id
        errors.append(TaskError(task=task, message=str(error.detail)))
        _LOG.warning("Label Studio, task %s: %s", task, error.detail)

    for number, task in enumerate(request.tasks):
        for tag in tags:
            try:
                text = tag.text_of(task.data)
                service.check(text, f"The text '{tag.name}'")
                parts.append((number, tag, text))
            except ServiceError as error:
                refuse(number, error)
    answers = await service.answers(served, served.readings, [text for _, _, text in parts])
    predicted: list[list[TaskText]] = [[] for _ in request.tasks]
    for (number, tag, text), answer in zip(parts, answers, strict=True):
        if isinstance(answer, ServiceError):
            refuse(number, answer)
        else:
            predicted[number].append(TaskText(tag, text, *answer))
    return PredictResponse(results=[_prediction(texts, served.model_version) for texts in predicted], errors=errors)


@router.post(
    "/webhook", responses={**ERRORS, 501: {"model": ErrorResponse, "description": "The service does not train."}}
)
async def webhook(request: WebhookRequest) -> WebhookResponse:
    """Acknowledge an event of a Label Studio project, and ignore it: the service does not train."""
    if request.action == "START_TRAINING":
        message = "The service does not train. Export the annotations, and run `spacy tener convert` and `spacy train`."
        raise ServiceError(501, "not_trained", message)
    return WebhookResponse(status="ignored", message="The service learns nothing from events: train on an export.")


class TaskText(NamedTuple):
    """The entities of a text. readings: Its best reading as a whole; empty without a `tener_ner`."""

    tag: TextTag
    text: str
    entities: Sequence[FoundEntity]
    readings: Sequence[Reading]


def _prediction(texts: Sequence[TaskText], model_version: str) -> Prediction | list[Prediction]:
    if not texts:
        return []
    labelled = [(text, entity) for text in texts for entity in text.entities if entity.label in text.tag.labels]
    characters = sum(len(text.text) for text in texts)
    log_probabilities = [reading.log_probability for text in texts for reading in text.readings]
    return Prediction(
        result=[_region(number, text, entity) for number, (text, entity) in enumerate(labelled)],
        score=reading_score(sum(log_probabilities), characters) if log_probabilities else None,
        model_version=model_version,
    )


def _region(number: int, text: TaskText, entity: FoundEntity) -> Region:
    control, label = text.tag.labels[entity.label]
    covered = text.text[entity.start : entity.end]
    return Region(
        id=f"entity-{number}",
        from_name=control,
        to_name=text.tag.name,
        value=RegionValue(start=entity.start, end=entity.end, text=covered, labels=[label]),
        score=entity.probability,
    )
