"""What is found in one text, and as values of the columns that are added to its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..pipeline.confidence import Reading
from .damaged import Damaged
from .finding import Found
from .settings import Settings


class Answer(NamedTuple):
    """What was found in a text, or why nothing was."""

    text: str
    entities: Sequence[Found] = ()
    readings: Sequence[Reading] = ()
    error: str | None = None

    @classmethod
    def of_no_text(cls, value: Any) -> Answer | None:
        """The answer to what cannot be read as a text; None for a text."""
        if isinstance(value, Damaged):
            return cls(value, error=value.reason)
        if value is None:
            return cls("", error="there is no text")
        if not isinstance(value, str):
            return cls("", error=f"the text is of type {type(value).__name__}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return cls(value, error=f"character {error.start} of the text is half of a surrogate pair")
        return None

    @classmethod
    def of(cls, text: str, answer: Any) -> Answer:
        if isinstance(answer, Exception):
            return cls(text, error=f"the pipeline failed at this text: {type(answer).__name__}: {answer}")
        return cls(text, *answer) if isinstance(answer, tuple) else cls(text, answer)

    def replacing(self, names: list[str]) -> Answer:
        """With an error where the record has columns of the names of those that are added."""
        if not names:
            return self
        return self._replace(error=f"the record's own {', '.join(names)} made way for what is added: choose a prefix")

    def columns(self, settings: Settings) -> dict[str, Any]:
        """As values of the added columns."""
        values: dict[str, Any] = {settings.entities: [self._entity(each, settings) for each in self.entities]}
        if settings.k_best:
            values[settings.readings] = [
                {"probability": each.probability, "entities": [self._entity(one, settings) for one in each.entities]}
                for each in self.readings
            ]
        values[settings.error] = self.error
        return values

    def _entity(self, each: Any, settings: Settings) -> dict[str, Any]:
        found = {"start": each.start, "end": each.end, "label": each.label, "text": self.text[each.start : each.end]}
        return {**found, "probability": each.probability} if settings.probability else found
