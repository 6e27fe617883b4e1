"""Arguments and options that several commands share, so that an option has the same name and meaning in all
commands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    typer.Option(
        "--set",
        "-s",
        help="Override a config setting, as section.key=value (also if an overlay sets it); may be repeated",
    ),
]
Code = Annotated[
    Path | None, typer.Option("--code", "-c", help="Python file with additional code (registered functions) to import")
]
GpuId = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU ID, or -1 for the CPU")]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of the input files, such as gb18030")]
PartSize = Annotated[int, typer.Option("--part-size", help="Maximum number of texts in each output file", min=1)]
Force = Annotated[bool, typer.Option("--force", "-F", help="Overwrite an existing output")]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", help="Number of parallel training runs, which share the CPU cores", min=1)
]


def component(when: str) -> Any:
    """Return the option `--component`, the name of a component.

    when (str): Component that is used without the option, for the help text.
    """
    return typer.Option("--component", help=f"Name of the component ({when})")


Component = Annotated[str | None, component("default: the first tener_ner")]


def output(what: str) -> Any:
    """Return the option `--output`, the output path.

    what (str): Type of the output, such as "a JSON file", for the help text.
    """
    return typer.Option("--output", "-o", help=f"Output path: {what}", show_default=False)


def limit(of: str) -> Any:
    """Return the option `--limit`, the maximum number of texts.

    of (str): Which texts are limited, such as "selected from TEXTS", for the help text.
    """
    return typer.Option("--limit", "-n", help=f"Maximum number of texts ({of})", min=1)


def lang(of: str, *, auto: bool = False) -> Any:
    """Return the option `--lang`, the text language.

    of (str): Purpose or values of the option, such as "determines the tokenizer", for the help text.
    auto (bool): Whether `auto` is a valid value.
    """

    def check(value: str | None) -> str | None:
        if value is not None and not (auto and value == "auto"):
            try:
                get_lang_class(value)
            except ImportError as error:
                raise typer.BadParameter(
                    f"spaCy has no tokenizer for the language '{value}'. Use a code such as de, or xx."
                ) from error
        return value

    return typer.Option("--lang", "-l", help=f"Language of the texts: {of}", callback=check)


def choice(names: tuple[str, ...], what: str, choices: Collection[str], *, several: bool = False) -> Any:
    """Return an option with a fixed set of valid values.

    names (tuple[str, ...]): Option names, such as `("--format", "-f")`.
    what (str): Option description for the help text. The valid values are appended.
    choices (Collection[str]): Valid values. In a dictionary, each value has a description, which is appended in
        parentheses.
    several (bool): Whether the option accepts several values, separated by commas.
    """

    def check(value: str | None) -> str | None:
        for name in value.split(",") if value and several else [value]:
            if name is not None and name not in choices:
                raise typer.BadParameter(f"'{name}' is not one of: {', '.join(choices)}.")
        return value

    described = [f"{name} ({choices[name]})" if isinstance(choices, Mapping) else name for name in choices]
    return typer.Option(*names, help=f"{what}: {', '.join(described)}", callback=check)


def output_format(choices: Collection[str]) -> Any:
    """Return the option `--format`, the output format.

    choices (Collection[str]): Valid formats.
    """
    return choice(("--format", "-f"), "Format of the output", choices)


def fraction(name: str, what: str, *, above: float = 0.0, with_1: bool = False) -> Any:
    """Return an option for a number greater than 0 and less than 1.

    name (str): Option name.
    what (str): Help text.
    above (float): The number must be greater than this bound.
    with_1 (bool): Whether 1 is valid, too.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not (above < value < 1.0 or (with_1 and value == 1.0)):
            raise typer.BadParameter(f"{value} is not between {above:g} and 1. Use a number such as 0.9.")
        return value

    return typer.Option(name, help=what, callback=check)
