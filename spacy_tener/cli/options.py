"""Arguments and options that several commands have in common, so that a name means the same in all of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.util import get_lang_class

Model = Annotated[str, typer.Argument(help="Pipeline: a directory or an installed package")]
RawTexts = Annotated[
    list[str], typer.Argument(help="Files (text, JSONL, CSV, Parquet, .spacy), directories, or - for standard input")
]
Overlays = Annotated[list[str] | None, typer.Argument(help="Overlays: names such as mect, or paths")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="Setting as section.key=value, which overrides all files; may be repeated"),
]
Code = Annotated[
    Path | None, typer.Option("--code", "-c", help="Python file with additional code (registered functions) to import")
]
GpuId = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU, or -1 for the CPU")]
Component = Annotated[
    str | None, typer.Option("--component", help="Name of the component (default: the only tener_ner)")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of the inputs, such as gb18030")]
PartSize = Annotated[int, typer.Option("--part-size", help="Maximum number of texts in each output file", min=1)]
Force = Annotated[bool, typer.Option("--force", "-F", help="Overwrite an existing output")]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", help="Number of parallel training runs, which share the CPU cores", min=1)
]


def output(what: str) -> Any:
    """Return the option for the output path of a command.

    what (str): Type of the output, for the help.
    """
    return typer.Option("--output", "-o", help=f"Output path: {what}", show_default=False)


def limit(of: str) -> Any:
    """Return the option for the maximum number of texts.

    of (str): Which texts are limited, for the help.
    """
    return typer.Option("--limit", "-n", help=f"Maximum number of texts ({of})", min=1)


def lang(of: str, *, auto: bool = False) -> Any:
    """Return the option for the language of texts.

    of (str): Use of the language, for the help.
    auto (bool): Whether `auto` is valid.
    """

    def check(value: str) -> str:
        if not (auto and value == "auto"):
            try:
                get_lang_class(value)
            except ImportError as error:
                raise typer.BadParameter(f"spaCy has no tokenizer for the language '{value}'.") from error
        return value

    return typer.Option("--lang", "-l", help=f"Language of the texts: {of}", callback=check)


def choice(names: tuple[str, ...], what: str, choices: Collection[str], *, several: bool = False) -> Any:
    """Return an option with a fixed set of values.

    names (tuple[str, ...]): Names of the option.
    what (str): Beginning of the help, which is followed by the values.
    choices (Collection[str]): Valid values.
    several (bool): Whether several values, separated by commas, are valid.
    """

    def check(value: str | None) -> str | None:
        for name in value.split(",") if value and several else [value]:
            if name is not None and name not in choices:
                raise typer.BadParameter(f"'{name}' is not one of: {', '.join(choices)}.")
        return value

    return typer.Option(*names, help=f"{what}: {', '.join(choices)}", callback=check)


def output_format(choices: Collection[str]) -> Any:
    """Return the option for the format of the output."""
    return choice(("--format", "-f"), "Format of the output", choices)


def fraction(name: str, what: str, *, above: float = 0.0, with_1: bool = False) -> Any:
    """Return an option whose value is a number between 0 and 1, exclusive.

    name (str): Name of the option.
    what (str): Help of the option.
    above (float): Lower bound, exclusive.
    with_1 (bool): Whether 1 is valid.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not (above < value < 1.0 or (with_1 and value == 1.0)):
            raise typer.BadParameter(f"{value} is not between {above:g} and 1. Use a number such as 0.9.")
        return value

    return typer.Option(name, help=what, callback=check)
