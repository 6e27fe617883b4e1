"""What is annotated, how, and where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spacy.util import get_package_path, is_package

from ...errors import RemedyError, check_choice
from ...files import digest
from ..annotator import Annotator
from ..reading.addresses import Source
from ..reading.parts import Reading
from ..writing.encoding import OUTPUTS, PARQUET, check_pyarrow


@dataclass(frozen=True)
class Job:
    """Files, what adds entities to their records, and an output.

    output: A directory, local or by an address of fsspec.
    format: That of the output's parts: parquet, jsonl or spacy.
    processes: How many annotate; 1 for the calling one alone.
    """

    annotator: Annotator
    sources: Sequence[Source]
    output: str
    reading: Reading
    format: str = PARQUET
    processes: int = 1

    def __post_init__(self) -> None:
        check_choice("output format", self.format, OUTPUTS)
        if self.format == PARQUET:
            check_pyarrow()
        if self.processes < 1:
            raise RemedyError(f"processes = {self.processes}", "Give one or more.")

    @property
    def made_of(self) -> dict[str, Any]:
        """All that the output depends on."""
        model = self.annotator.model
        return {
            "model": model,
            "weights": digest(get_package_path(model) if is_package(model) else Path(model)),
            **asdict(self.annotator.settings),
            **asdict(self.reading),
            "format": self.format,
            "inputs": [[each.address, each.size, each.mark] for each in self.sources],
        }
