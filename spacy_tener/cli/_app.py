"""The `tener` group of spaCy's command line."""

from __future__ import annotations

from typing import NoReturn

import spacy
import typer
from spacy.cli._util import app
from spacy.language import Language
from wasabi.printer import Printer

from ..errors import RemedyError

tener_cli = typer.Typer(name="tener", help="Named entity recognition with TENER and its relatives.")
app.add_typer(tener_cli, name="tener", no_args_is_help=True)


def fail(msg: Printer, error: RemedyError) -> NoReturn:
    """End the command with what is wrong and, below it, what to do about it."""
    msg.fail(f"{error.place}: {error.reason}" if error.place else error.reason, error.remedy, exits=1)


def load_pipeline(msg: Printer, name: str) -> Language:
    try:
        return spacy.load(name)
    except OSError as error:
        # spaCy's own words, without the number of its message.
        msg.fail(f"{name}: {str(error).partition('] ')[2] or error}", exits=1)
        raise
