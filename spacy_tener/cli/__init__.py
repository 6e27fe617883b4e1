"""The commands of `python -m spacy tener`, one module for each command.

spaCy imports this module at the start of all its commands, through the entry point `spacy_cli`. To keep them fast, the
module of a command is imported only when the command is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from spacy.cli._util import app
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from .. import renamed

# Names of the commands in the order of `--help`. Each name is the name of a module, with `-` for `_`.
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


class LazyGroup(TyperGroup):
    """A group of commands whose modules are imported on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands without importing them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # Import and return a command.
        if cmd_name in renamed.OLD_COMMANDS:
            ctx.fail(f"The command '{cmd_name}' was renamed. Use '{renamed.OLD_COMMANDS[cmd_name]}'.")
        # For an unknown name, all modules are imported, so that typer can suggest similar commands.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            import_module(f"{__package__}.{name.replace('-', '_')}")
        group: Any = get_command(tener_cli)
        self.commands = group.commands
        return self.commands.get(cmd_name)


class Command(TyperCommand):
    """A command that names the new option if an option was renamed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, unless one of them is a renamed option."""
        for argument in args:
            option = argument.partition("=")[0]
            new = renamed.OLD_OPTIONS.get((str(self.name), option))
            if new:
                ctx.fail(f"The option {option} was renamed. Use {new}.")
        return super().parse_args(ctx, args)


tener_cli = typer.Typer(name="tener", cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_short=True)
app.add_typer(tener_cli, name="tener", no_args_is_help=True)


@tener_cli.callback()
def tener() -> None:
    """Named entity recognition with TENER and its relatives."""
