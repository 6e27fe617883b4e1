"""A machine learning backend for Label Studio, which predicts entities in Label Studio's tasks.

A Label Studio project specifies its texts and labels in a labelling interface, which is written in XML.
`read_interface` maps the pipeline's labels to the interface's labels. In this example, `PER` is mapped to `Person`:

    <View>
      <Labels name="label" toName="text"><Label value="Person" predicted_values="PER"/></Labels>
      <Text name="text" value="$text"/>
    </View>

Label Studio and Python both count offsets in code points, so offsets need no conversion. The backend is stateless.
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

from ..annotate.tasks import sequence_score
from ..pipeline.decoding import LabelSequence
from ..pipeline.entities import FoundEntity
from .access import Handler, ServiceRoute
from .schema import ERRORS, ErrorResponse, ServiceError, Text
from .service import ServedModel, TheService

_LOG = logging.getLogger(__name__)
_VARIABLE = re.compile(r"\$([\w.]+)")


class LoggingRoute(ServiceRoute):
    """A route that logs errors. Label Studio only shows an error's HTTP status, without the message."""

    async def answer(self, handler: Handler, request: Request) -> Response:
        try:
            return await super().answer(handler, request)
        except ServiceError as error:
            _LOG.warning("Label Studio, %s: %s", request.url.path, error.detail)
            raise


class SetupRequest(BaseModel):
    """The request that Label Studio sends to connect a project to the backend. Only its field `schema` is read.

    label_config (Text): The labelling interface.
    """

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
    """An entity in Label Studio's format. `from_name`, `to_name` and `labels` refer to the labelling interface."""

    id: str
    from_name: str
    to_name: str
    type: Literal["labels"] = "labels"
    value: RegionValue
    score: float | None = Field(
        description="Probability of the entity, or null if its component computes no probabilities."
    )


class Prediction(BaseModel):
    """The prediction for a task, with the entities in all its texts.

    score (float | None): Length-normalized probability of the best label sequences, see `sequence_score`. None if the
        pipeline has no `tener_ner`.
    """

    model_config = ConfigDict(protected_namespaces=())

    result: list[Region]
    score: float | None
    model_version: str


class PredictResponse(BaseModel):
    results: list[Prediction | list[Prediction]] = Field(
        description="A prediction for each task, or an empty list for a task without texts."
    )
    errors: list[TaskError] = Field(description="Errors of the texts that were not predicted.")


class WebhookRequest(BaseModel):
    action: Text


class WebhookResponse(BaseModel):
    status: str
    message: str


async def served_model(request: Request, service: TheService) -> ServedModel:
    """Return the model that the request path specifies, or the default model. Used as a FastAPI dependency."""
    return service.model(request.path_params.get("model"))


Served = Annotated[ServedModel, Depends(served_model)]
router = APIRouter(tags=["Label Studio"], route_class=LoggingRoute)


@router.post("/setup", responses=ERRORS)
async def setup(request: SetupRequest, served: Served) -> SetupResponse:
    """Check that the labelling interface of a project contains texts and labels of the model."""
    tags = read_interface(request.label_config, served.info.labels)
    for tag in tags:
        missing = sorted(set(served.info.labels) - tag.labels.keys())
        if missing:
            _log_once(f"Label Studio has no label for {', '.join(missing)} over the text '{tag.name}'")
    return SetupResponse(model_version=served.model_version)


@lru_cache(maxsize=256)
def _log_once(message: str) -> None:
    """Log a warning only once. Label Studio calls `/setup` before each prediction, which would repeat it."""
    _LOG.warning(message)


@router.post("/predict", responses=ERRORS)
async def predict(request: PredictRequest, served: Served, service: TheService) -> PredictResponse:
    """Predict the entities in Label Studio's tasks, with a score for each entity and for each task.

    Texts that are missing or too long are reported in `errors`.
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
    answers = await service.answers(served, served.sequences, [text for _, _, text in parts])
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
    """Acknowledge an event of a Label Studio project without any effect, since the service does not train."""
    if request.action == "START_TRAINING":
        message = "The service does not train. Export the annotations, and run `spacy tener convert` and `spacy train`."
        raise ServiceError(501, "not_trained", message)
    return WebhookResponse(status="ignored", message="Events have no effect. To train on annotations, export them.")


class TaskText(NamedTuple):
    """A text in a task, with the predicted entities.

    tag (TextTag): The tag for this text in the labelling interface.
    text (str): The text.
    entities (Sequence[FoundEntity]): The predicted entities.
    sequences (Sequence[LabelSequence]): The best label sequence. Empty if the pipeline has no `tener_ner`.
    """

    tag: TextTag
    text: str
    entities: Sequence[FoundEntity]
    sequences: Sequence[LabelSequence]


def _prediction(texts: Sequence[TaskText], model_version: str) -> Prediction | list[Prediction]:
    if not texts:
        return []
    labelled = [(text, entity) for text in texts for entity in text.entities if entity.label in text.tag.labels]
    characters = sum(len(text.text) for text in texts)
    log_probabilities = [sequence.log_probability for text in texts for sequence in text.sequences]
    return Prediction(
        result=[_region(number, text, entity) for number, (text, entity) in enumerate(labelled)],
        score=sequence_score(sum(log_probabilities), characters) if log_probabilities else None,
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
    """A `Text` tag in a labelling interface.

    name (str): The tag's name.
    variable (str): The key of the text in a task's data. For nested data, a path such as `document.text`.
    labels (dict[str, tuple[str, str]]): For each pipeline label, the name of the `Labels` tag and the corresponding
        label in the interface.
    """

    name: str
    variable: str
    labels: dict[str, tuple[str, str]]

    def text_of(self, data: dict[str, Any]) -> str:
        """Return the text from a task's data.

        Raises a ServiceError if the data doesn't contain the text, or if the text can't be encoded in UTF-8.
        """
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
    """Parse a labelling interface. Return the `Text` tags that can be annotated with at least one of the labels.

    Raises a ServiceError if no `Text` tag can be annotated with these labels. Interfaces with a document type
    declaration (DOCTYPE) are rejected as well, to prevent XML external entity (XXE) and entity expansion attacks.

    config (str): The labelling interface as XML.
    labels (Sequence[str]): The pipeline's labels.
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
        raise _unusable(f"needs a Labels tag and a Text tag, but has {names}", "Add both tags.")
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
        fix = 'Add them to the interface, for example as <Label value="Person" predicted_values="PER"/>.'
        raise _unusable(
            f"has no label of the model for its Text. The labels of the model are: {', '.join(labels) or 'none'}",
            fix,
        )
    return text_tags


def _normalised(element: ElementTree.Element) -> tuple[str, dict[str, str]]:
    """Return an XML element's tag name and attributes. All names are lower-cased, since Label Studio is
    case-insensitive.
    """
    return element.tag.lower(), {key.lower(): value for key, value in element.attrib.items()}


def _variable_of(attributes: dict[str, str]) -> str:
    """Return the variable of a `Text` tag, for example `text` if the attribute `value` is `$text`.

    Raises a ServiceError if the attribute doesn't refer to plain text, for example if it refers to a URL.
    """
    variable = _VARIABLE.fullmatch(attributes.get("value", ""))
    plain = attributes.get("valuetype", "text") == "text" and attributes.get("encoding", "none") == "none"
    if not variable or not plain:
        reason = f"has a Text, '{attributes['name']}', whose value is not one plain text of the task"
        raise _unusable(reason, 'Write it as in <Text name="text" value="$text"/>.')
    return variable[1]


def _matches(control: ElementTree.Element, labels: Sequence[str]) -> dict[str, str]:
    """Map the pipeline's labels to the labels in a `Labels` tag. Labels without a match are left out.

    The following matches are tried in this order:

    1. The interface's label lists the pipeline's label in `predicted_values`.
    2. The labels are equal.
    3. The labels are equal except for upper and lower case.
    """
    by_prediction: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for choice, attributes in _choices_of(control):
        for value in attributes.get("predicted_values", "").split(","):
            by_prediction.setdefault(value.strip(), choice)
        for value in (choice, attributes.get("value", choice)):
            by_name.setdefault(value, choice)
    exact = {**by_name, **by_prediction}
    # In a dict, later entries replace earlier entries. Reverse the order, so that the first match has priority.
    folded = {value.casefold(): choice for value, choice in reversed(exact.items())}
    matches = {label: exact.get(label, folded.get(label.casefold())) for label in labels}
    return {label: choice for label, choice in matches.items() if choice}


def _choices_of(control: ElementTree.Element) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the labels in a `Labels` tag with their attributes. Labels in nested `Labels` tags are not included.

    The label is the attribute `alias` or, without an alias, the attribute `value`.
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


def _unusable(reason: str, fix: str) -> ServiceError:
    return ServiceError(422, "unusable_interface", f"The labelling interface {reason}. {fix}")
