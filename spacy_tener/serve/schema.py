"""What requests and answers look like."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _encodable(text: str) -> str:
    """JSON can spell half of a pair of surrogates, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
Model = Annotated[str | None, Field(description="Name of a model, as /v1/models lists them. Default: the first.")]
Offsets = Annotated[
    Literal["characters", "utf16"],
    Field(description="What offsets count: characters (Unicode code points), or UTF-16 units as JavaScript does."),
]
Minimum = Annotated[float, Field(ge=0.0, le=1.0, description="Leave out entities less probable than this.")]


class Options(BaseModel):
    """How entities are wanted."""

    model_config = ConfigDict(extra="forbid")

    model: Model = None
    offsets: Offsets = "characters"
    minimum: Minimum = 0.0


class TextRequest(Options):
    text: Text = Field(examples=["王小明去了上海。"])


class BatchRequest(Options):
    texts: list[Text] = Field(examples=[["王小明去了上海。", "今天天气很好"]])


class ExplanationRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Text = Field(examples=["王小明去了上海。"])
    model: Model = None
    format: Literal["json", "html"] = Field(
        "json", description="Data, or a page that needs neither network nor server."
    )


class Line(BaseModel):
    """A line of a stream."""

    model_config = ConfigDict(extra="forbid")

    text: Text = Field(examples=["王小明去了上海。"])
    id: str | int | None = Field(None, description="Comes back with the answer.")


class Entity(BaseModel):
    start: int
    end: int = Field(description="Behind the last character.")
    label: str
    text: str
    probability: float | None = Field(
        description="Of exactly this entity with this label. None where another component than tener_ner found it."
    )


class TextAnswer(BaseModel):
    model: str
    entities: list[Entity]


class BatchAnswer(BaseModel):
    model: str
    answers: list[list[Entity]] = Field(description="The entities of each text, in the order of the request.")


class ErrorDetail(BaseModel):
    code: str = Field(examples=["text_too_long"])
    message: str


class ErrorAnswer(BaseModel):
    error: ErrorDetail


class LineAnswer(BaseModel):
    """A line of a stream's answer: entities or an error."""

    line: int = Field(description="The number of the line that it answers, from 1.")
    id: str | int | None = None
    entities: list[Entity] | None = None
    error: ErrorDetail | None = None


class ModelInfo(BaseModel):
    name: str
    language: str
    labels: list[str]
    version: str
    description: str


class Bounds(BaseModel):
    characters: int = Field(description="Most characters of a text.")
    explained: int = Field(description="Most characters of a text that is explained.")
    texts: int = Field(description="Most texts of a batch.")
    body: int = Field(description="Most bytes of a request's body.")


class ModelsAnswer(BaseModel):
    models: list[ModelInfo]
    limits: Bounds


class Health(BaseModel):
    status: Literal["ok", "overloaded", "failed", "stopping"]
    models: dict[str, int] = Field(description="Characters that wait for each model.")
