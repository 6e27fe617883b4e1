"""The command group `python -m spacy tener`. Each module in this package defines one command.

spaCy imports this module whenever one of its commands starts, through the entry point `spacy_cli`. To keep the startup
fast, a command's module is only imported when this command is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from spacy.cli._util import app
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from .. import renamed

# Command names, in the order in which `--help` lists them. A command's module has the same name, with `_` instead of
# `-`.
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
    """Group of typer commands that imports a command's module only when the command is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all command names without importing their modules."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in renamed.OLD_COMMANDS:
            ctx.fail(f"The command '{cmd_name}' was renamed. Use '{renamed.OLD_COMMANDS[cmd_name]}'.")
        # Import all modules if the name is unknown, so that typer can suggest commands with similar names.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            import_module(f"{__package__}.{name.replace('-', '_')}")
        group: Any = get_command(tener_cli)
        self.commands = group.commands
        return self.commands.get(cmd_name)


class Command(TyperCommand):
    """Command that reports the new name of a renamed option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line arguments. A renamed option ends the command with an error."""
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
    """Train, evaluate and use pipelines for named entity recognition with TENER and related models."""
