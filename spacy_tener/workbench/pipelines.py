"""Blank pipelines, and trained ones on disk: written to new directories, and their size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language

from ..errors import RemedyError
from ..files import replaced, write_text
from ..pipeline.finding import find_crf_pipe


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline with only the tokenizer of a language."""
    try:
        return spacy.blank(lang)
    except ImportError as error:
        raise RemedyError(
            f"spaCy has no tokenizer for the language '{lang}': {error}", "Choose another language."
        ) from error


def check_new(output: Path, force: bool) -> None:
    """Refuse an existing output, before anything is computed. With `force` a pipeline may be there."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / "meta.json").is_file():
        raise RemedyError(f"--output {output}: exists already, and is no pipeline", "Name a new directory.")
    if not force:
        raise RemedyError(f"--output {output}: exists already", "Name a new directory, or overwrite it by --force.")


def change_cfg(nlp: Language, name: str, changes: Mapping[str, Any], output: Path | None) -> Path:
    """Change a component's `cfg`, atomically: in the pipeline's own directory, or in a copy at `output`. Returns the
    directory."""
    find_crf_pipe(nlp, name).cfg.update(changes)
    if output is not None:
        write_pipeline(nlp, output)
        return output
    path = nlp.path / name / "cfg"
    cfg = {**json.loads(path.read_text(encoding="utf8")), **changes}
    write_text(path, json.dumps(cfg, indent=2, ensure_ascii=False))
    return Path(nlp.path)


def write_pipeline(nlp: Language, output: Path) -> None:
    """Write a pipeline to a directory, atomically."""
    with replaced(output) as folder:
        nlp.to_disk(folder)


def size_mb(folder: Path) -> float:
    """Return the size of all files in a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
