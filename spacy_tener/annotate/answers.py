"""Data types of the `Annotator`: its input records, its settings, and its result for each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UserError
from ..pipeline.entities import FoundEntity

# Default name of the text column.
TEXT_COLUMN = "text"
# Name of the column with the text IDs. Files for annotation tools and the output of `silver` include this column.
ID_COLUMN = "id"

# A dict with a text and other columns. A record is read from a line in a file, a row in a table, or a Doc with its
# `user_data`.
Record = dict[str, Any]


@dataclass(frozen=True)
class AnnotateSettings:
    """Settings of an `Annotator`.

    text (str): Name of the column with the text.
    probability (bool): Add a probability to each entity. This requires a `tener_ner` or `spancat` component.
    prefix (str): Prefix for the output column names `entities` and `error`. Set a prefix if the records already have
        columns with these names.
    """

    text: str = TEXT_COLUMN
    probability: bool = False
    prefix: str = ""

    @property
    def entities(self) -> str:
        """Name of the output column for the entities."""
        return f"{self.prefix}entities"

    @property
    def error(self) -> str:
        """Name of the output column for the error message. The message is null if the record was annotated."""
        return f"{self.prefix}error"

    @property
    def added(self) -> list[str]:
        """Names of the columns that the annotator adds to the records."""
        return [self.entities, self.error]

    def check_columns(self, names: Sequence[str], *others: str) -> None:
        """Raise an error if an output column has the same name as an input column, or if column names are not unique.

        names (Sequence[str]): Input column names.
        others (str): Other output column names, in addition to `entities` and `error`.
        """
        duplicates = [name for name, count in Counter(names).items() if count > 1]
        if duplicates:
            fix = "Give each column a different name."
            raise UserError(f"The records have several columns named {', '.join(duplicates)}", fix)
        existing = [name for name in (*self.added, *others) if name in names]
        if existing:
            fix = "Set a prefix for the added columns, for example --prefix tener_."
            raise UserError(f"The records already have columns named {', '.join(existing)}", fix)


class Answer(NamedTuple):
    """The result for a text: its entities, or an error message if the text could not be annotated."""

    text: str
    entities: Sequence[FoundEntity] = ()
    error: str | None = None

    def columns(self, settings: AnnotateSettings) -> dict[str, Any]:
        """Return a dict from output column names to values."""
        entities = []
        for entity in self.entities:
            text = self.text[entity.start : entity.end]
            entities.append({"start": entity.start, "end": entity.end, "label": entity.label, "text": text})
            if settings.probability:
                entities[-1]["probability"] = entity.probability
        return {settings.entities: entities, settings.error: self.error}
