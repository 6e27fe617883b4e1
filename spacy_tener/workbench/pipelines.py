"""Blank pipelines, and trained ones on disk: written to new directories, and their size."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import spacy
from spacy.language import Language

from ..errors import RemedyError
from ..files import replaced
from ..pipeline.tokenizer import Script, make_multilingual_tokenizer


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline with only the tokenizer of a language.

    That of `xx` makes each character of a script without spaces a token, and of Hangul. So no entity there begins or
    ends within a token, whatever tokens a pipeline will have.
    """
    try:
        nlp = spacy.blank(lang)
    except ImportError as error:
        reason = f"spaCy has no tokenizer for the language '{lang}': {error}"
        raise RemedyError(reason, "Install what it needs, or name `xx`, which needs nothing.") from error
    if lang == "xx":
        nlp.tokenizer = make_multilingual_tokenizer(list(get_args(Script)))(nlp)
    return nlp


def check_new(output: Path, force: bool) -> None:
    """Refuse an existing output, before anything is computed. With `force` a pipeline may be there."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / "meta.json").is_file():
        raise RemedyError(f"--output {output}: exists already, and is no pipeline", "Name a new directory.")
    if not force:
        raise RemedyError(f"--output {output}: exists already", "Name a new directory, or overwrite it by --force.")


def write_pipeline(nlp: Language, output: Path) -> None:
    """Write a pipeline to a directory, atomically."""
    with replaced(output) as folder:
        nlp.to_disk(folder)


def size_mb(folder: Path) -> float:
    """Return the size of all files in a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
