"""The group of commands, each of which is imported when it is asked for.

spaCy imports its plugins' commands whatever command it runs: ours may not make all of them slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info

NAMES = (
    "annotate",
    "calibrate",
    "card",
    "config",
    "convert",
    "debug-data",
    "evaluate",
    "explain",
    "grid",
    "plot",
    "review",
    "search",
    "self-train",
    "serve",
    "silver",
    "suggest",
    "table",
    "trim",
    "vectors",
)
"""Each is in the module of its name, with `_` for `-`, and adds itself to `tener_cli`."""


class Commands(Mapping[str, Any]):
    """The commands by their names."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name not in self._made:
            import_module(f"{__package__}.{name.replace('-', '_')}")
            [info] = [each for each in tener_cli.registered_commands if each.name == name]
            self._made[name] = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
        return self._made[name]


class Group(TyperGroup):
    """Knows its commands' names before it imports them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()


tener_cli = typer.Typer(name="tener", help="Named entity recognition with TENER and its relatives.", cls=Group)
