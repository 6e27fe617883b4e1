"""The group of commands `python -m research`, to which modules add theirs."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer

from spacy_tener.cli import _common

# As spaCy's group of commands is shown.
SETTINGS: Any = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_short": True}
app = typer.Typer(
    name="research", help="Grids of trainings, searches, and tables and figures of their runs.", **SETTINGS
)
command = partial(_common.command, group=app)
"""Add a command, as the package adds its own."""
