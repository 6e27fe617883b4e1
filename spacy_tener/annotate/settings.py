"""Settings of annotation, and the columns that it adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import RemedyError
from ..pipeline.confidence import Parse
from ..pipeline.entities import FoundEntity


@dataclass(frozen=True)
class AnnotateSettings:
    """Settings of an `Annotator`.

    text: The column of the text.
    probability: Give the probabilities of entities.
    k_best: Add so many of the most probable readings of each text as a whole; 0 for none.
    prefix: Begins the names of the added columns, where a record has columns of their names.
    """

    text: str = "text"
    probability: bool = False
    k_best: int = 0
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.k_best < 0:
            raise RemedyError(f"k_best = {self.k_best}", "Ask for one reading or more, or for 0 to leave them out.")

    @property
    def entities(self) -> str:
        """Name of the column of entities."""
        return f"{self.prefix}entities"

    @property
    def k_best_column(self) -> str:
        """Name of the column of the k best readings."""
        return f"{self.prefix}k_best"

    @property
    def error(self) -> str:
        """Name of the column that says why a text has no entities; null where all went well."""
        return f"{self.prefix}error"

    @property
    def added(self) -> list[str]:
        """Names of the added columns, in order."""
        return [self.entities, *([self.k_best_column] if self.k_best else []), self.error]

    def check_columns(self, names: Sequence[str], *others: str) -> None:
        """Refuse records with columns of the names of the added ones, or with several of one name.

        others: Further names that are added.
        """
        if several := [name for name, count in Counter(names).items() if count > 1]:
            remedy = "Give each column a name of its own."
            raise RemedyError(f"The records have several columns named {', '.join(several)}", remedy)
        taken = [name for name in (*self.added, *others) if name in names]
        if taken:
            remedy = "Give the added columns other names by a prefix (--prefix), as in tener_."
            raise RemedyError(f"The records have columns of their own named {', '.join(taken)}", remedy)


class Answer(NamedTuple):
    """Entities of a text and its k best readings, or the reason why there are none."""

    text: str
    entities: Sequence[FoundEntity] = ()
    k_best: Sequence[Parse] = ()
    error: str | None = None

    def columns(self, settings: AnnotateSettings) -> dict[str, Any]:
        """Return the values of the added columns."""
        values: dict[str, Any] = {settings.entities: self._entities(self.entities, settings)}
        if settings.k_best:
            values[settings.k_best_column] = [
                {"probability": each.probability, "entities": self._entities(each.entities, settings)}
                for each in self.k_best
            ]
        return {**values, settings.error: self.error}

    def _entities(self, entities: Sequence[FoundEntity], settings: AnnotateSettings) -> list[dict[str, Any]]:
        return [
            {"start": each.start, "end": each.end, "label": each.label, "text": self.text[each.start : each.end]}
            | ({"probability": each.probability} if settings.probability else {})
            for each in entities
        ]
