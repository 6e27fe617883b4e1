"""What is annotated, how, and where it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spacy.util import get_package_path, is_package

from ...errors import RemedyError, check_choice
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
        return {
            "model": self.annotator.model,
            "weights": digest(self.annotator.model),
            **asdict(self.annotator.settings),
            **asdict(self.reading),
            "format": self.format,
            "inputs": [[each.address, each.size, each.mark] for each in self.sources],
        }


def digest(model: str) -> str:
    """What tells a pipeline from another one that took its place: a digest of all its files."""
    folder = get_package_path(model) if is_package(model) else Path(model)
    found = hashlib.blake2b(digest_size=8)
    for path in _files(folder):
        found.update(path.relative_to(folder).as_posix().encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")
