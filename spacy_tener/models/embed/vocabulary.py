"""What strings an embedder knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ...features.keys import Keys
from ...features.tables import StringTable
from ..shims.checksum import pack, unpack


@dataclass(frozen=True)
class Reading:
    """What an embedder reads of a batch of Docs.

    keys: Of everything that wants a row, for each table. *Shape* [n] each
    others: What the embedder's module is called with besides the rows.
    """

    keys: dict[str, Keys]
    others: tuple[Any, ...] = ()


class Vocabulary(ABC):
    """Which strings an embedder knows: a table of keys for each of its module's tables of rows.

    names: The tables.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        """How many rows of a table, from the first, came from a vectors file."""

    @abstractmethod
    def read(self, docs: list[Doc]) -> Reading: ...

    def clear(self) -> None:
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained = {}

    def heights(self) -> dict[str, int]:
        """The number of rows of each table, with its unknown row."""
        return {name: len(table) for name, table in self.tables.items()}

    def to_bytes(self) -> bytes:
        # "<u8" whatever the machine's own byte order, so that a pipeline moves between machines.
        keys = {name: table.keys.astype("<u8").tobytes() for name, table in self.tables.items()}
        return pack(keys)

    def from_bytes(self, data: bytes) -> Vocabulary:
        saved = unpack(data)
        if set(saved) != set(self.tables):
            raise ValueError(
                f"The saved embedder has the tables {sorted(saved)}, but the config asks for {sorted(self.tables)}. "
                "Load it with the config that it was trained with."
            )
        self.tables = {
            name: StringTable(np.frombuffer(keys, dtype="<u8").astype(np.uint64)) for name, keys in saved.items()
        }
        self.pretrained = {}
        return self


@serialize_attr.register(Vocabulary)
def _serialize_vocabulary(_: Any, value: Vocabulary, name: str, model: Model[Any, Any]) -> bytes:
    return value.to_bytes()


@deserialize_attr.register(Vocabulary)
def _deserialize_vocabulary(default: Vocabulary, value: bytes, name: str, model: Model[Any, Any]) -> Vocabulary:
    return default.from_bytes(value)
