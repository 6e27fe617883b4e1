"""The `tener` group of spaCy's command line."""

from __future__ import annotations

import typer
from spacy.cli._util import app

tener_cli = typer.Typer(name="tener", help="Named entity recognition with TENER and its relatives.")
app.add_typer(tener_cli, name="tener", no_args_is_help=True)
