"""What is asked of each record."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RemedyError


@dataclass(frozen=True)
class Settings:
    """What is read from a record, and what is added to it.

    text: The column that holds the text.
    probability: Whether entities get their probabilities.
    k_best: How many readings of each text as a whole to add; 0 for none.
    prefix: Stands before the names of the columns that are added, where a record has columns of their names.
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
        """The name of the column of entities."""
        return f"{self.prefix}entities"

    @property
    def readings(self) -> str:
        """The name of the column of the k best readings."""
        return f"{self.prefix}readings"

    @property
    def error(self) -> str:
        """The name of the column that says why a text has no entities; null where all went well."""
        return f"{self.prefix}error"

    @property
    def added(self) -> list[str]:
        """The names of the columns that are added, in order."""
        return [self.entities, *([self.readings] if self.k_best else []), self.error]

    def check_columns(self, names: list[str]) -> None:
        """Refuse records that have columns with the names of those that are added."""
        taken = [name for name in self.added if name in names]
        if taken:
            remedy = "Give the added columns other names by a prefix (--prefix), as in tener_."
            raise RemedyError(f"The records have columns of their own named {', '.join(taken)}", remedy)
