"""`python -m spacy tener ...`: the group of commands. Each command's module is imported when the command is used.

spaCy imports this module, by its entry point `spacy_cli`, before every command of its own, so it must be fast.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

import typer
from spacy.cli._util import app
from typer.core import TyperGroup
from typer.main import get_command_from_info

GROUPS = {
    "Data": {"convert": "data", "debug-data": "data"},
    "Annotating": {"suggest": "annotation", "review": "annotation", "silver": "annotation"},
    "Training": {"config": "config"},
    "Looking": {"evaluate": "scores", "explain": "texts"},
    "Running": {
        "calibrate": "models",
        "trim": "models",
        "annotate": "texts",
        "serve": "texts",
    },
}
"""Group in the help -> its commands, each with the module that adds it to `tener_cli`."""
MODULES = {name: module for commands in GROUPS.values() for name, module in commands.items()}


class Commands(UserDict[str, Any]):
    """Name -> command, imported at the first access."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if isinstance(command, str):
            import_module(f"{__package__}.{command}")
            [info] = [each for each in tener_cli.registered_commands if each.name == name]
            command = self[name] = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        return command


class Group(TyperGroup):
    """A group that knows the names of commands without importing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands(MODULES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by groups."""
        width = formatter.width - 6 - max(map(len, MODULES))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


tener_cli = typer.Typer(name="tener", help="Named entity recognition with TENER and its relatives.", cls=Group)
app.add_typer(tener_cli, name="tener", no_args_is_help=True)
