"""The typer application behind `python -m research`. The modules `*_commands.py` add their commands to `app`."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer

from spacy_tener.cli import _common

# The same appearance as the help pages of `python -m spacy`.
SETTINGS: Any = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_short": True}
app = typer.Typer(
    name="research", help="Grids of trainings, searches, and tables and figures of their runs.", **SETTINGS
)
# Decorator that adds a command with the error handling of the package's own commands.
command = partial(_common.command, group=app)
