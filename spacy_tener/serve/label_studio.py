"""A machine learning backend of Label Studio: pre-annotations for its projects, in its labels, with scores.

Label Studio counts offsets in code points, as Python does, and keeps a text as it was imported. Nothing is kept between
its requests, so that one that is sent again changes nothing.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from xml.etree import ElementTree

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ..pipeline.entities import FoundEntity
from .routes import ERRORS, ProtectedRoute, TheService
from .schema import ServiceError, Text
from .service import ServedModel

_LOG = logging.getLogger(__name__)
_VARIABLE = re.compile(r"\$([\w.]+)")


class LoggingRoute(ProtectedRoute):
    """A route that logs why it refuses: Label Studio shows the status, and sends people to the backend's log."""

    def get_route_handler(self) -> Any:
        handler = super().get_route_handler()

        async def logging_handler(request: Request) -> Response:
            try:
                response: Response = await handler(request)
            except ServiceError as error:
                _LOG.warning("Label Studio, %s: %s", request.url.path, error.detail)
                raise
            return response

        return logging_handler


class SetupRequest(BaseModel):
    """A project that a backend is connected to. Its other fields, the access token among them, are not read."""

    label_config: Text = Field(alias="schema")


class SetupResponse(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_version: str


class TaskIn(BaseModel):
    model_config = ConfigDict(title="Task")

    id: Any = None
    data: dict[str, Any]


class PredictRequest(BaseModel):
    label_config: Text
    tasks: list[TaskIn]


class TaskError(BaseModel):
    task: Any = None
    message: str


class PredictResponse(BaseModel):
    results: list[Any] = Field(
        description="A prediction for each task in Label Studio's format; an empty list for a task without one."
    )
    errors: list[TaskError] = Field(description="Why texts have no prediction.")


class WebhookRequest(BaseModel):
    action: Text


class WebhookResponse(BaseModel):
    status: str
    message: str


async def _served(request: Request, service: TheService) -> ServedModel:
    return service.model(request.path_params.get("model"))


Served = Annotated[ServedModel, Depends(_served)]
router = APIRouter(tags=["Label Studio"], route_class=LoggingRoute)


@router.post("/setup", responses=ERRORS)
async def setup(request: SetupRequest, served: Served) -> SetupResponse:
    """Check that a project of Label Studio's has texts, and labels that the model finds."""
    tags = read_interface(request.label_config, served.info.labels)
    for tag in tags:
        if lacking := sorted(set(served.info.labels) - tag.labels.keys()):
            _LOG.warning("Label Studio has no label for %s over the text '%s'", ", ".join(lacking), tag.name)
    return SetupResponse(model_version=served.model_version)


@router.post("/predict", responses=ERRORS)
async def predict(request: PredictRequest, served: Served, service: TheService) -> PredictResponse:
    """Find the entities of tasks of Label Studio's, with a score for each of them and for each task.

    A task without a text, or with one that is too long, gets no prediction, and the others theirs.
    """
    tags = read_interface(request.label_config, served.info.labels)
    places: list[tuple[int, TextTag]] = []
    texts: list[str] = []
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
            except ServiceError as error:
                refuse(number, error)
            else:
                places.append((number, tag))
                texts.append(text)
    predictions = [Prediction() for _ in request.tasks]
    answers = await service.answers(served, served.readings, texts)
    for (number, tag), text, answer in zip(places, texts, answers, strict=True):
        if isinstance(answer, ServiceError):
            refuse(number, answer)
        else:
            found, parses = answer
            predictions[number].add(tag, text, found, parses[0].log_probability if parses else math.nan)
    return PredictResponse(results=[each.to_json(served.model_version) for each in predictions], errors=errors)


@router.post("/webhook", responses=ERRORS)
async def webhook(request: WebhookRequest) -> WebhookResponse:
    """Take note of an event in a project of Label Studio's. Nothing is done about it: the service does not train."""
    if request.action == "START_TRAINING":
        message = "The service does not train. Export the annotation, `spacy tener convert` it, and train."
        raise ServiceError(501, "not_trained", message)
    return WebhookResponse(status="ignored", message="Annotation stays in Label Studio, whose exports are read.")


@dataclass(frozen=True)
class TextTag:
    """A `Text` of a labelling interface.

    variable: Where a task's data has its text: a key, or several with dots between them.
    labels: For each label of the pipeline the name of the `Labels` over this text, and its label there.
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
            message = f"The text '{self.variable}' holds half of a surrogate pair, which is no character."
            raise ServiceError(422, "invalid", message) from None
        return value


@dataclass
class Prediction:
    """The entities of a task's texts as Label Studio's regions, and the score that its active learning sorts by."""

    regions: list[dict[str, Any]] = field(default_factory=list)
    characters: int = 0
    log_probability: float = 0.0
    read: bool = False

    def add(self, tag: TextTag, text: str, found: Sequence[FoundEntity], log_probability: float) -> None:
        self.read = True
        self.characters += len(text)
        self.log_probability += log_probability
        for entity in found:
            if entity.label in tag.labels:
                control, label = tag.labels[entity.label]
                self.regions.append(
                    {
                        "id": f"entity-{len(self.regions)}",
                        "from_name": control,
                        "to_name": tag.name,
                        "type": "labels",
                        "value": {
                            "start": entity.start,
                            "end": entity.end,
                            "text": text[entity.start : entity.end],
                            "labels": [label],
                        },
                        "score": entity.probability,
                    }
                )

    @property
    def score(self) -> float | None:
        """The probability of the best reading of all texts, over the root of their length in its exponent, so that
        neither the longest nor the shortest come first; None where no `tener_ner` gives one."""
        if math.isnan(self.log_probability):
            return None
        return math.exp(self.log_probability / math.sqrt(max(1, self.characters)))

    def to_json(self, model_version: str) -> dict[str, Any] | list[Any]:
        if not self.read:
            return []
        return {"result": self.regions, "score": self.score, "model_version": model_version}


def read_interface(config: str, labels: Sequence[str]) -> list[TextTag]:
    """Return the texts of a labelling interface that entities of these labels can be marked in, or raise what is wrong.

    A document type, and with it any entity of XML's, is refused: nothing is fetched, and nothing expanded.
    """
    if "<!DOCTYPE" in config:
        raise _unusable("has a document type, which is not read", "Take it out.")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise _unusable(f"is not XML: {error}", "Write it as Label Studio's own templates are.") from None
    tags = [(each, *_normalised(each)) for each in root.iter()]
    controls = [
        (attributes.get("name", ""), attributes.get("toname", "").split(","), _matches(element, labels))
        for element, name, attributes in tags
        if name == "labels"
    ]
    texts = [attributes for _, name, attributes in tags if name == "text" and attributes.get("name")]
    if not texts or not controls:
        others = ", ".join(sorted({element.tag for element, *_ in tags if element is not root})) or "nothing"
        raise _unusable(f"has no Labels over a Text, but {others}", "Entities are found in plain text alone.")
    found = []
    for attributes in texts:
        known: dict[str, tuple[str, str]] = {}
        for control, to_names, matches in controls:
            if attributes["name"] in (each.strip() for each in to_names):
                known = {**{own: (control, shown) for own, shown in matches.items()}, **known}
        if known:
            found.append(TextTag(attributes["name"], _variable_of(attributes), known))
    if not found:
        remedy = 'Name them in the interface, as in <Label value="Person" predicted_values="PER"/>.'
        raise _unusable(
            f"has none of the labels over a Text that the model finds: {', '.join(labels) or 'none'}", remedy
        )
    return found


def _normalised(element: ElementTree.Element) -> tuple[str, dict[str, str]]:
    """Return the name of a tag and its attributes, whose case Label Studio does not mind."""
    return element.tag.lower(), {key.lower(): value for key, value in element.attrib.items()}


def _variable_of(attributes: dict[str, str]) -> str:
    """Return the variable that a `Text` shows."""
    variable = _VARIABLE.fullmatch(attributes.get("value", ""))
    plain = attributes.get("valuetype", "text") == "text" and attributes.get("encoding", "none") == "none"
    if not variable or not plain:
        reason = f"has a Text, '{attributes['name']}', that does not show one text of a task as it is"
        raise _unusable(reason, 'Write it as in <Text name="text" value="$text"/>.')
    return variable[1]


def _matches(control: ElementTree.Element, labels: Sequence[str]) -> dict[str, str]:
    """Return the label in Label Studio for each label of the pipeline that has one: where `predicted_values` names it,
    where it is the same, or the same but for its case."""
    named: dict[str, str] = {}
    same: dict[str, str] = {}
    for shown, attributes in _labels_of(control):
        for value in attributes.get("predicted_values", "").split(","):
            named.setdefault(value.strip(), shown)
        for value in (shown, attributes.get("value", shown)):
            same.setdefault(value, shown)
    by_name = {**same, **named}
    folded = {value.casefold(): shown for value, shown in reversed(by_name.items())}
    matches = {own: by_name.get(own, folded.get(own.casefold())) for own in labels}
    return {own: shown for own, shown in matches.items() if shown}


def _labels_of(control: ElementTree.Element) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the labels of a `Labels` as results name them, by their alias or value, with their attributes."""
    for element in control.iter():
        name, attributes = _normalised(element)
        shown = attributes.get("alias") or attributes.get("value")
        if name == "label" and shown:
            yield shown, attributes


def _unusable(reason: str, remedy: str) -> ServiceError:
    return ServiceError(422, "unusable_interface", f"The labelling interface {reason}. {remedy}")
