"""`python -m spacy tener ...`. spaCy imports this by its entry point `spacy_cli`."""

from spacy.cli._util import app

from ._group import tener_cli

app.add_typer(tener_cli, name="tener", no_args_is_help=True)

__all__ = ["tener_cli"]
