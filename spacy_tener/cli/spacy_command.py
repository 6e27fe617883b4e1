"""Add the commands of this package to spaCy's command line program: `python -m spacy tener`.

spaCy imports this module whenever one of its commands starts, through the entry point `spacy_cli`.
"""

from __future__ import annotations

from spacy.cli._util import app

from . import tener_cli

__all__ = ["app", "tener_cli"]

app.add_typer(tener_cli, name="tener", no_args_is_help=True)
