"""`python -m spacy tener ...`. spaCy imports this by its entry point `spacy_cli`."""

from ._app import tener_cli
from .convert import convert_cli

__all__ = ["convert_cli", "tener_cli"]
