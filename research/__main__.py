"""The entry point of `python -m research COMMAND`: grid, search, table, plot, speed, radicals, attention, languages,
vectors."""

from __future__ import annotations

from . import pipeline_commands, report_commands, text_commands, train_commands  # noqa: F401 - add their commands
from .app import app

if __name__ == "__main__":
    app(prog_name="python -m research")
