"""JSON schemas of requests and responses, limits, and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import HTTPException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ..pipeline.entity_lists import is_label

# The constraint makes pydantic refuse lone surrogates, which JSON can spell.
Text = Annotated[str, Field(min_length=0)]
ModelName = Annotated[str | None, Field(description="Name of a model, as /v1/models lists them. Default: the first.")]
Offsets = Annotated[
    Literal["characters", "utf16"],
    Field(description="What offsets count: characters (Unicode code points), or UTF-16 units as JavaScript does."),
]
Minimum = Annotated[
    float,
    Field(ge=0.0, le=1.0, description="Leave out entities less probable than this. Those without a probability stay."),
]


def _check_label(label: str) -> str:
    if not is_label(label):
        raise PydanticCustomError("blank", "Label should not be blank")
    return label


Words = Annotated[
    dict[
        Annotated[str, Field(min_length=2, max_length=40)],
        Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_check_label)],
    ],
    Field(
        default_factory=dict,
        max_length=1000,
        description="Words that are entities wherever they occur in the text, each with its label.",
        examples=[{"云海一号": "PRODUCT"}],
    ),
]


class Options(BaseModel):
    """Options of a request for entities."""

    model_config = ConfigDict(extra="forbid")

    model: ModelName = None
    offsets: Offsets = "characters"
    minimum: Minimum = 0.0
    words: Words


class TextRequest(Options):
    text: Text = Field(examples=["王小明去了上海。"])


class BatchRequest(Options):
    texts: list[Text] = Field(examples=[["王小明去了上海。", "今天天气很好"]])


class ExplanationRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Text = Field(examples=["王小明去了上海。"])
    words: Words
    model: ModelName = None
    format: Literal["json", "html"] = Field("json", description="Data, or a page that needs no network.")


class EntityOut(BaseModel):
    model_config = ConfigDict(title="Entity")

    start: int = Field(examples=[0])
    end: int = Field(description="Offset after the last character.", examples=[3])
    label: str = Field(examples=["PER"])
    text: str = Field(examples=["王小明"])
    probability: float | None = Field(
        description="Probability of this entity with this label. null if the component that found it gives none.",
        examples=[0.98],
    )


class TextResponse(BaseModel):
    model: str = Field(examples=["zh"])
    entities: list[EntityOut]


class BatchResponse(BaseModel):
    model: str = Field(examples=["zh"])
    answers: list[list[EntityOut]] = Field(description="The entities of each text, in the order of the request.")


class ErrorDetail(BaseModel):
    code: str = Field(examples=["text_too_long"])
    message: str


class ErrorResponse(BaseModel):
    error: ErrorDetail


class ModelInfo(BaseModel):
    name: str
    language: str
    labels: list[str]
    version: str
    description: str
    explained: bool = Field(description="Whether /v1/explanation explains its entities, which needs a tener_ner.")


class Limits(BaseModel):
    """Limits of a request and of a process. `/v1/models` tells clients the first four."""

    model_config = ConfigDict(frozen=True)

    characters: int = Field(default=20_000, description="Most characters of a text.")
    explained: int = Field(
        default=2_000,
        description="Most characters of a text to explain, which takes as long as predicting it many times.",
    )
    texts: int = Field(default=256, description="Most texts of a batch.")
    body: int = Field(default=2 * 2**20, description="Most bytes of a request's body.")
    timeout: float = Field(
        default=30.0, exclude=True, description="Seconds for a request to arrive, and for a text to be answered."
    )
    queue: int = Field(default=1_000_000, exclude=True, description="Most characters in the queue of a model.")
    connections: int = Field(default=512, exclude=True, description="Most connections.")


class ModelsResponse(BaseModel):
    models: list[ModelInfo]
    limits: Limits


class HealthResponse(BaseModel):
    status: Literal["ok", "overloaded", "failed", "stopping"]
    models: dict[str, int] = Field(description="Characters in the queue of each model.")


class ServiceError(HTTPException):
    """An error response: the HTTP status, a code for programs, and a message for people."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        401: "The API key is missing or wrong.",
        404: "There is no such model.",
        408: "The request took too long to arrive.",
        413: "A text, the number of texts or the body is over a limit.",
        422: "The request does not match the schema.",
        503: "Too many texts are waiting; Retry-After says how many seconds.",
    }.items()
}
"""The errors of a route, for the schema."""


def invalid(errors: Sequence[Mapping[str, Any]]) -> ServiceError:
    """Return pydantic's errors as one: the unknown and missing fields, or else the first error.

    The message quotes no values: they may be large, or invalid text.
    """
    unknown, missing = (_fields(errors, error_type) for error_type in ("extra_forbidden", "missing"))
    if unknown:
        needed = f" Missing: {', '.join(missing)}." if missing else ""
        return ServiceError(422, "invalid", f"Unknown field: {', '.join(unknown)}.{needed}")
    if errors[0]["type"] == "json_invalid":
        return ServiceError(422, "invalid", "The body is not JSON.")
    field = _field(errors[0])
    rest = f" ({len(errors) - 1} more like this)" if len(errors) > 1 else ""
    message = f"{errors[0]['msg']}.{rest}"
    return ServiceError(422, "invalid", f"{field}: {message}" if field else message)


def _fields(errors: Sequence[Mapping[str, Any]], error_type: str) -> list[str]:
    """Return the fields with errors of one error_type, at most three."""
    fields = [_field(error) for error in errors if error["type"] == error_type and _field(error)]
    return [*fields[:3], "..."] if len(fields) > 3 else fields


def _field(error: Mapping[str, Any]) -> str:
    parts = [str(part) for part in error["loc"] if part not in ("body", "query")]
    return ".".join(part if len(part) <= 40 else f"{part[:40]}..." for part in parts)
