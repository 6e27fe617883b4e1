"""An ML backend for Label Studio: predictions for its tasks, in the labels of its projects, with scores.

Like Python, Label Studio counts offsets in code points. The backend keeps no state, so that a repeated request is safe.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple
from xml.etree import ElementTree

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ..pipeline.decoding import Reading
from ..pipeline.doc_entities import reading_score
from ..pipeline.entities import FoundEntity
from .access import Handler, ServiceRoute
from .schema import ERRORS, ErrorResponse, ServiceError, Text
from .service import ServedModel, TheService

_LOG = logging.getLogger(__name__)
_VARIABLE = re.compile(r"\$([\w.]+)")


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
        missing = sorted(set(served.info.labels) - tag.labels.keys())
        if missing:
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


@dataclass(frozen=True)
class TextTag:
    """A `Text` tag of a labelling interface.

    variable (str): The key of the text in a task's data, or a path of keys with dots between them.
    labels (dict[str, tuple[str, str]]): Label of the pipeline -> name of the `Labels` tag over this text, and its label
        there.
    """

    name: str
    variable: str
    labels: dict[str, tuple[str, str]]

    def text_of(self, data: dict[str, Any]) -> str:
        value: Any = data.get(self.variable)
        if value is None:
            value = data
            for part in self.variable.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, str):
            raise ServiceError(422, "no_text", f"The task has no text '{self.variable}' in its data.")
        try:
            value.encode("utf8")
        except UnicodeEncodeError:
            message = f"The text '{self.variable}' has a lone surrogate, which is not a character."
            raise ServiceError(422, "invalid", message) from None
        return value


def read_interface(config: str, labels: Sequence[str]) -> list[TextTag]:
    """Return the `Text` tags of a labelling interface in which entities of these labels can be marked.

    Refuses an interface that does not fit, and a document type, which could define XML entities to fetch or expand.
    """
    if "<!DOCTYPE" in config:
        raise _unusable("has a document type (<!DOCTYPE>), which is not accepted", "Remove it.")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise _unusable(f"is not XML: {error}", "Start from one of Label Studio's templates.") from None
    tags = [(element, *_normalised(element)) for element in root.iter()]
    controls = [
        (attributes.get("name", ""), attributes.get("toname", "").split(","), _matches(element, labels))
        for element, name, attributes in tags
        if name == "labels"
    ]
    texts = [attributes for _, name, attributes in tags if name == "text" and attributes.get("name")]
    if not texts or not controls:
        names = ", ".join(sorted({element.tag for element, *_ in tags if element is not root})) or "nothing"
        raise _unusable(f"has no Labels for a Text, but {names}", "Add both: entities are found in plain text only.")
    by_text: dict[str, dict[str, tuple[str, str]]] = {attributes["name"]: {} for attributes in texts}
    for control, to_names, matches in controls:
        for name in map(str.strip, to_names):
            for label, choice in matches.items():
                by_text.get(name, {}).setdefault(label, (control, choice))
    text_tags = [
        TextTag(attributes["name"], _variable_of(attributes), choices)
        for attributes in texts
        if (choices := by_text[attributes["name"]])
    ]
    if not text_tags:
        remedy = 'Name them in the interface, as in <Label value="Person" predicted_values="PER"/>.'
        raise _unusable(
            f"has, for its Text, none of the labels that the model finds: {', '.join(labels) or 'none'}", remedy
        )
    return text_tags


def _normalised(element: ElementTree.Element) -> tuple[str, dict[str, str]]:
    """Return the name of a tag and its attributes in lower case, since Label Studio ignores case."""
    return element.tag.lower(), {key.lower(): value for key, value in element.attrib.items()}


def _variable_of(attributes: dict[str, str]) -> str:
    """Return the variable that a `Text` shows."""
    variable = _VARIABLE.fullmatch(attributes.get("value", ""))
    plain = attributes.get("valuetype", "text") == "text" and attributes.get("encoding", "none") == "none"
    if not variable or not plain:
        reason = f"has a Text, '{attributes['name']}', whose value is not one plain text of the task"
        raise _unusable(reason, 'Write it as in <Text name="text" value="$text"/>.')
    return variable[1]


def _matches(control: ElementTree.Element, labels: Sequence[str]) -> dict[str, str]:
    """Return label of the pipeline -> label in Label Studio: the one whose `predicted_values` names it, the same one,
    or one that differs in case only."""
    by_prediction: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for choice, attributes in _choices_of(control):
        for value in attributes.get("predicted_values", "").split(","):
            by_prediction.setdefault(value.strip(), choice)
        for value in (choice, attributes.get("value", choice)):
            by_name.setdefault(value, choice)
    exact = {**by_name, **by_prediction}
    folded = {value.casefold(): choice for value, choice in reversed(exact.items())}
    matches = {label: exact.get(label, folded.get(label.casefold())) for label in labels}
    return {label: choice for label, choice in matches.items() if choice}


def _choices_of(control: ElementTree.Element) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the labels of a `Labels` tag, by alias or value as in results, with their attributes.

    Labels in a nested `Labels` belong to that one alone.
    """
    stack = control[::-1]
    while stack:
        element = stack.pop()
        name, attributes = _normalised(element)
        if name != "labels":
            stack += element[::-1]
        choice = attributes.get("alias") or attributes.get("value")
        if name == "label" and choice:
            yield choice, attributes


def _unusable(reason: str, remedy: str) -> ServiceError:
    return ServiceError(422, "unusable_interface", f"The labelling interface {reason}. {remedy}")
