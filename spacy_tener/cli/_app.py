"""The `tener` group of spaCy's command line, and how its commands end."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import spacy
import typer
from spacy.cli._util import app
from spacy.language import Language
from wasabi import util
from wasabi.printer import Printer

from ..errors import RemedyError

INTERRUPTED = 130  # what shells report of a command that Ctrl-C ended

tener_cli = typer.Typer(name="tener", help="Named entity recognition with TENER and its relatives.")
app.add_typer(tener_cli, name="tener", no_args_is_help=True)


class Messages(Printer):
    """wasabi's Printer, but a list below a title keeps its lines, which wasabi wraps into one paragraph."""

    def text(  # type: ignore[override]
        self, title: Any = "", text: Any = "", *, spaced: bool = False, exits: int | None = None, **options: Any
    ) -> None:
        if options.pop("show", True):
            heading = super().text(title, no_print=True, **options)
            printed = "\n".join([heading, *(util.wrap(line, indent=0) for line in str(text).splitlines())])
            print(f"\n{printed}\n" if spaced or exits is not None else printed)
        if exits is not None:
            sys.exit(exits)


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
