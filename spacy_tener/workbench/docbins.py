"""Docs in spaCy's binary format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from ..errors import InputError


def read_docs(path: Path, vocab: Vocab | None = None, *, remedy: str = "Make it with `convert`.") -> Iterator[Doc]:
    """Read the Docs of a `.spacy` file. remedy: What to do about a file of another kind."""
    try:
        docs = DocBin().from_disk(path)
    except FileNotFoundError as error:
        raise InputError(str(path), "cannot be read: No such file or directory", "Check the path.") from error
    except Exception as error:  # whatever zlib and msgpack make of a file of another kind
        raise InputError(str(path), f"is no .spacy file ({error})", remedy) from error
    yield from docs.get_docs(vocab or Vocab())
