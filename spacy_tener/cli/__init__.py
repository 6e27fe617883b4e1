"""`python -m spacy tener ...`: the group of commands. Each command's module is imported when the command is used.

spaCy imports this module, by its entry point `spacy_cli`, before every command of its own, so it must be fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from spacy.cli._util import app
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = (
    "convert",
    "debug-data",
    "suggest",
    "review",
    "silver",
    "config",
    "vectors",
    "extend",
    "evaluate",
    "explain",
    "calibrate",
    "trim",
    "export",
    "annotate",
    "serve",
)
"""In the order of the help. A command's module has its name."""


class LazyGroup(TyperGroup):
    """A group that lists its commands by name, and imports the module of one when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # All modules for an unknown name, so that typer can suggest a similar one.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            import_module(f"{__package__}.{name.replace('-', '_')}")
        group: Any = get_command(tener_cli)
        self.commands = group.commands
        return self.commands.get(cmd_name)


tener_cli = typer.Typer(name="tener", cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_short=True)
app.add_typer(tener_cli, name="tener", no_args_is_help=True)


@tener_cli.callback()
def tener() -> None:
    """Named entity recognition with TENER and its relatives."""
