"""Trained pipelines written to new directories."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from spacy.language import Language

from ..errors import RemedyError
from ..files import writing


def check_new(output: Path) -> None:
    """Refuse a place that cannot be written before anything is computed."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RemedyError(f"--output {output}: is there already", "Name a new directory.")


def write_pipeline(nlp: Language, output: Path) -> None:
    """As a whole or not at all."""
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.")
    with temporary as folder, writing(output):
        nlp.to_disk(Path(folder) / "model")
        os.replace(Path(folder) / "model", output)
