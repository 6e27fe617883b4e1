"""Arguments and options of the commands.

What several commands take is written here, so that a letter and a name mean the same in all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.util import get_lang_class

Model = Annotated[str, typer.Argument(help="Pipeline: its directory or package")]
RawTexts = Annotated[
    list[str], typer.Argument(help="Text, JSONL, CSV, Parquet, .spacy; directories; - for standard input")
]
Overlays = Annotated[list[str] | None, typer.Argument(help="Overlays: names from the package, as mect, or paths")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="section.key=value, overrides all files; may be repeated")
]
Code = Annotated[
    Path | None, typer.Option("--code", "-c", help="Python file with additional code (registered functions) to import")
]
GpuId = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU, or -1 for the CPU")]
Component = Annotated[str | None, typer.Option("--component", help="Component of the pipeline (default: the NER)")]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of the inputs, as gb18030")]
PartSize = Annotated[int, typer.Option("--part-size", help="Maximum number of texts in a file of the output", min=1)]
Force = Annotated[bool, typer.Option("--force", "-F", help="Overwrite an output that exists")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Trainings at once, which share the cores", min=1)]


def output(what: str) -> Any:
    """Return the option that names what a command writes."""
    return typer.Option("--output", "-o", help=f"Where to write: {what}", show_default=False)


def limit(of: str) -> Any:
    """Return the option for the number of texts that a command takes."""
    return typer.Option("--limit", "-n", help=f"Maximum number of texts ({of})", min=1)


def renamed(old: str, new: str) -> Any:
    """Return a hidden flag with the former name of an option. If it is used, the error names the new option."""

    def refuse(is_used: bool) -> bool:
        if is_used:
            raise typer.BadParameter(f"This option is now called {new}.")
        return is_used

    return typer.Option(old, hidden=True, callback=refuse)


def lang(of: str, *, auto: bool = False) -> Any:
    """Return the option for the language of texts."""

    def check(value: str) -> str:
        if not (auto and value == "auto"):
            try:
                get_lang_class(value)
            except ImportError as error:
                raise typer.BadParameter(f"spaCy has no tokenizer for the language '{value}'.") from error
        return value

    return typer.Option("--lang", "-l", help=f"Language of the texts: {of}", callback=check)


def choice(names: tuple[str, ...], what: str, choices: Collection[str], *, several: bool = False) -> Any:
    """Return an option with few values. several: With commas between them."""

    def check(value: str | None) -> str | None:
        for name in value.split(",") if value and several else [value]:
            if name is not None and name not in choices:
                raise typer.BadParameter(f"'{name}' is not one of: {', '.join(choices)}.")
        return value

    return typer.Option(*names, help=f"{what}: {', '.join(choices)}", callback=check)


def output_format(choices: Collection[str]) -> Any:
    """Return the option for the format that a command writes."""
    return choice(("--format", "-f"), "Format of the output", choices)


def share(name: str, what: str, *, above: float = 0.0, with_1: bool = False) -> Any:
    """Return an option with a number between 0, or `above`, and 1. with_1: It may be 1."""

    def check(value: float | None) -> float | None:
        if value is not None and not (above < value < 1.0 or (with_1 and value == 1.0)):
            raise typer.BadParameter(f"{value} is not between {above:g} and 1, as 0.9 is.")
        return value

    return typer.Option(name, help=what, callback=check)
