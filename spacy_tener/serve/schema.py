"""Request and response models, request limits and errors. Their descriptions are shown in the API documentation at
`/docs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import HTTPException
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ..errors import UserError
from ..features.lexicon import is_valid_word
from ..pipeline.entity_lists import labelled_entries
from ..pipeline.tags import is_label

# The constraint `min_length=0` makes pydantic validate the encoding. This rejects lone surrogates, which are valid in
# JSON but not in UTF-8.
Text = Annotated[str, Field(min_length=0)]
ModelName = Annotated[
    str | None, Field(description="Name of a model in the list of /v1/models. The default is the first model.")
]
Offsets = Annotated[
    Literal["characters", "utf16"],
    Field(description="Unit of offsets: characters (Unicode code points), or UTF-16 code units, as in JavaScript."),
]
Minimum = Annotated[
    float,
    Field(ge=0.0, le=1.0, description="Minimum probability. Entities without a probability are always included."),
]


def _check_label(label: str) -> str:
    if not is_label(label):
        raise PydanticCustomError("blank", "Label should not be blank")
    return label


def _check_word(word: str) -> str:
    if not is_valid_word(word.strip()):
        raise PydanticCustomError("word", "Word should have 2 characters without white space around it, and no NUL")
    return word


def _check_words(words: dict[str, str]) -> dict[str, str]:
    """Reject two spellings of a word, such as 云海 and 雲海, with different labels."""
    try:
        labelled_entries(words.items())
    except UserError as error:
        message = "{reason}. Traditional and simplified spellings count as one word. Give it one label"
        raise PydanticCustomError("words", message, {"reason": error.reason}) from None
    return words


Words = Annotated[
    dict[
        Annotated[str, Field(min_length=2, max_length=40), AfterValidator(_check_word)],
        Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_check_label)],
    ],
    AfterValidator(_check_words),
    Field(
        default_factory=dict,
        max_length=1000,
        description="Words that are labelled as entities wherever they occur in the text, with their labels.",
        examples=[{"云海一号": "PRODUCT"}],
    ),
]


class Options(BaseModel):
    """Common options of all requests for entities."""

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
    format: Literal["json", "html"] = Field(
        "json", description="JSON data, or an HTML page that works without a network."
    )


class EntityOut(BaseModel):
    model_config = ConfigDict(title="Entity")

    start: int = Field(examples=[0])
    end: int = Field(description="Offset after the last character.", examples=[3])
    label: str = Field(examples=["PER"])
    text: str = Field(examples=["王小明"])
    probability: float | None = Field(
        description="Probability of the entity and its label, or null if its component computes no probabilities.",
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
    explained: bool = Field(description="Whether /v1/explanation supports the model, which requires a tener_ner.")
    uncalibrated: bool = Field(description="Whether its probabilities were not calibrated by `tener calibrate`.")


class Limits(BaseModel):
    """Limits for requests and for the server process. The response from `/v1/models` only contains the request limits:
    `characters`, `explained`, `texts` and `body`.
    """

    model_config = ConfigDict(frozen=True)

    characters: int = Field(default=20_000, description="Maximum number of characters in a text.")
    explained: int = Field(
        default=2_000,
        description="Maximum number of characters in a text to explain. An explanation takes many predictions.",
    )
    texts: int = Field(default=256, description="Maximum number of texts in a batch.")
    body: int = Field(default=2 * 2**20, description="Maximum size of the body of a request in bytes.")
    timeout: float = Field(
        default=30.0, exclude=True, description="Maximum number of seconds to receive a request, and to predict a text."
    )
    queue: int = Field(
        default=1_000_000, exclude=True, description="Maximum number of characters in the queue of a model."
    )
    connections: int = Field(default=512, exclude=True, description="Maximum number of connections.")


class ModelsResponse(BaseModel):
    models: list[ModelInfo]
    limits: Limits


class HealthResponse(BaseModel):
    status: Literal["ok", "overloaded", "failed", "stopping"]
    models: dict[str, int] = Field(description="Characters in the queue of each model.")


class ServiceError(HTTPException):
    """An exception that is returned to the client as an error response.

    status (int): The HTTP status.
    code (str): A machine-readable error code, such as `text_too_long`.
    message (str): A human-readable message.
    headers (Mapping[str, str] | None): Additional response headers.
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code


# Possible error responses of all API routes, for the OpenAPI schema.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        401: "The API key is missing or wrong.",
        404: "There is no such model.",
        408: "The request was not received in time.",
        413: "A text, the number of texts or the body exceeds a limit.",
        422: "The request does not match the schema.",
        503: "Too many texts are in the queue. Retry-After contains the number of seconds to wait.",
    }.items()
}


def invalid(errors: Sequence[Mapping[str, Any]]) -> ServiceError:
    """Convert pydantic's validation errors to a single `ServiceError`.

    The message lists all unknown and missing fields. If there are no unknown fields, it describes only the first error.
    Invalid values are not quoted, since they could be very long or contain invalid Unicode.

    errors (Sequence[Mapping[str, Any]]): Errors from `ValidationError.errors()`.
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
    """Return the names of fields with errors of the given pydantic type. Only the first three names are returned,
    followed by "...".
    """
    fields = [_field(error) for error in errors if error["type"] == error_type and _field(error)]
    return [*fields[:3], "..."] if len(fields) > 3 else fields


def _field(error: Mapping[str, Any]) -> str:
    parts = [str(part) for part in error["loc"] if part not in ("body", "query")]
    return ".".join(part if len(part) <= 40 else f"{part[:40]}..." for part in parts)
