"""Settings of annotation, records, and the values of the added columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import RemedyError
from ..pipeline.entities import FoundEntity

TEXT_COLUMN = "text"
"""The name of the column of texts, where no other is named."""
ID_COLUMN = "id"
"""The name of a column that stays with a text on its way through annotation tools and `silver`."""

Record = dict[str, Any]
"""A text and its columns: a line of a file, a row of a table, or a Doc with its `user_data`."""


@dataclass(frozen=True)
class AnnotateSettings:
    """Settings of an `Annotator`.

    text (str): The column with the text.
    probability (bool): Add the probability of each entity, which a `tener_ner` or a `spancat` gives.
    prefix (str): A prefix of the names of the added columns, for records that have columns of these names.
    """

    text: str = TEXT_COLUMN
    probability: bool = False
    prefix: str = ""

    @property
    def entities(self) -> str:
        """Name of the column of entities."""
        return f"{self.prefix}entities"

    @property
    def error(self) -> str:
        """Name of the column of errors; null in rows that were annotated."""
        return f"{self.prefix}error"

    @property
    def added(self) -> list[str]:
        """Names of the added columns, in order."""
        return [self.entities, self.error]

    def check_columns(self, names: Sequence[str], *others: str) -> None:
        """Refuse records with a column named like an added one, or with several columns of one name.

        others (str): Names of other added columns.
        """
        duplicates = [name for name, count in Counter(names).items() if count > 1]
        if duplicates:
            remedy = "Rename them, so that each column has its own name."
            raise RemedyError(f"The records have several columns named {', '.join(duplicates)}", remedy)
        existing = [name for name in (*self.added, *others) if name in names]
        if existing:
            remedy = "Give the added columns a prefix, as in --prefix tener_."
            raise RemedyError(f"The records have columns of their own named {', '.join(existing)}", remedy)


class Answer(NamedTuple):
    """The entities of a text, or the error at it."""

    text: str
    entities: Sequence[FoundEntity] = ()
    error: str | None = None

    def columns(self, settings: AnnotateSettings) -> dict[str, Any]:
        """Return the values of the added columns."""
        entities = []
        for entity in self.entities:
            text = self.text[entity.start : entity.end]
            entities.append({"start": entity.start, "end": entity.end, "label": entity.label, "text": text})
            if settings.probability:
                entities[-1]["probability"] = entity.probability
        return {settings.entities: entities, settings.error: self.error}
