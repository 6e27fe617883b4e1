"""Records, the settings of an `Annotator`, and the columns that it adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import RemedyError
from ..pipeline.entities import FoundEntity

# Default name of the text column.
TEXT_COLUMN = "text"
# Name of the column that identifies a text. Annotation tools and `silver` keep its value.
ID_COLUMN = "id"

# A text and its other columns: a line of a file, a row of a table, or a Doc with its `user_data`.
Record = dict[str, Any]


@dataclass(frozen=True)
class AnnotateSettings:
    """Settings of an `Annotator`.

    text (str): Name of the column with the text.
    probability (bool): Whether to add the probability of each entity. The pipeline needs a `tener_ner` or a `spancat`.
    prefix (str): Prefix of the names of the added columns, for records that already have columns with these names.
    """

    text: str = TEXT_COLUMN
    probability: bool = False
    prefix: str = ""

    @property
    def entities(self) -> str:
        """Name of the added column with the entities."""
        return f"{self.prefix}entities"

    @property
    def error(self) -> str:
        """Name of the added column with the error, which is null if the record was annotated."""
        return f"{self.prefix}error"

    @property
    def added(self) -> list[str]:
        """Names of all added columns, in order."""
        return [self.entities, self.error]

    def check_columns(self, names: Sequence[str], *others: str) -> None:
        """Raise an error if the name of an added column is already in use, or if two columns have the same name.

        names (Sequence[str]): Names of the columns of the records.
        others (str): Names of columns that will also be added.
        """
        duplicates = [name for name, count in Counter(names).items() if count > 1]
        if duplicates:
            remedy = "Rename the columns, so that all names differ."
            raise RemedyError(f"The records have several columns named {', '.join(duplicates)}", remedy)
        existing = [name for name in (*self.added, *others) if name in names]
        if existing:
            remedy = "Set a prefix for the added columns, for example --prefix tener_."
            raise RemedyError(f"The records already have columns named {', '.join(existing)}", remedy)


class Answer(NamedTuple):
    """The entities of a text, or the error if it could not be annotated."""

    text: str
    entities: Sequence[FoundEntity] = ()
    error: str | None = None

    def columns(self, settings: AnnotateSettings) -> dict[str, Any]:
        """Return the added columns as a dict."""
        entities = []
        for entity in self.entities:
            text = self.text[entity.start : entity.end]
            entities.append({"start": entity.start, "end": entity.end, "label": entity.label, "text": text})
            if settings.probability:
                entities[-1]["probability"] = entity.probability
        return {settings.entities: entities, settings.error: self.error}
