"""What is said of the entities of some texts: data, and what they are written as."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, cast

from ..pipeline.confidence import Parse
from ..pipeline.entities import FoundEntity
from .encoders import HeatMap
from .page import listed, packed, page
from .words import LexiconWord


@dataclass(frozen=True)
class Evidence:
    """A unit of the text that an entity rests on, or that speaks against it.

    start, end: characters of the text.
    drop: by how much the entity's log-odds fall where the unit is masked. Below 0, they rise.
    """

    start: int
    end: int
    drop: float


@dataclass(frozen=True)
class ExplainedEntity(FoundEntity):
    """An entity that was found, or that is possible.

    rivals: what else there may be in its place, with other edges or another label, likeliest first.
    evidence: what it rests on, in the order of the text. Empty where nothing was masked.
    """

    rivals: list[FoundEntity] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True)
class Passage:
    """A stretch of a text, and what the encoder made of it.

    start, end: characters of the text.
    units: what the model reads: start and end of each token or character.
    words: of the lexicon, those that lie in the passage. Their places are units of the passage.
    maps: of the encoder, the part over the units and words of the passage: a row of `attention` may add up to less
        than 1, where a query looks at what lies outside.
    """

    start: int
    end: int
    units: list[tuple[int, int]]
    words: list[LexiconWord] = field(default_factory=list)
    maps: list[HeatMap] = field(default_factory=list)


@dataclass(frozen=True)
class ExplainedText:
    """One text.

    possible: entities of other readings than the best, and what they would rest on.
    entropy: of the distribution over all readings, in nats.
    gold: the entities that it is annotated with, where it is: start, end and label.
    radicals: what its characters are made of, where the model reads that.
    """

    text: str
    entities: list[ExplainedEntity]
    possible: list[ExplainedEntity]
    readings: list[Parse]
    passages: list[Passage]
    entropy: float = 0.0
    gold: list[tuple[int, int, str]] | None = None
    radicals: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """Some texts, explained by one pipeline. All places in texts are characters.

    pipeline: its name, version and language, and the view that the component has of a text.
    labels: the entity types that it can find.
    notes: what was masked, and which parts of an explanation the pipeline has nothing for.
    """

    pipeline: dict[str, str]
    labels: list[str]
    notes: list[str]
    texts: list[ExplainedText]

    def to_dict(self) -> dict[str, Any]:
        """All of it as lists, strings and numbers, rounded to six digits."""
        return cast("dict[str, Any]", _plain(self, {HeatMap: listed}))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False) + "\n"

    def to_html(self, *, title: str = "Why these entities") -> str:
        """One page that needs neither network nor server."""
        return page(_plain(self, {HeatMap: packed, Evidence: _short}), title=title)


def _plain(value: Any, writers: Mapping[type, Callable[[Any], Any]]) -> Any:
    """What JSON can hold. writers: of what is not written part by part."""
    if (write := writers.get(type(value))) is not None:
        return write(value)
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name), writers) for part in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(part, writers) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _short(evidence: Evidence) -> list[float]:
    """Of a long text there is much, so that its page has no names for the numbers."""
    return [evidence.start, evidence.end, round(evidence.drop, 3)]
