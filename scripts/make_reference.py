"""Write the reference of registered functions and classes to the pages of the documentation.

The reference consists of signatures and docstrings. Two comments mark its position on a page:

    <!-- reference: spacy_tener.TENER.v1 -->
    <!-- end of reference -->

The first comment contains a registered name, or the dotted path of a class, followed by the names of the methods to
include. The word `short`, followed by registered names, results in one line for each of them, with the defaults of
their arguments. Tests in tests/docs check that the pages are up to date.

On the website, the comment `<!-- options: COMMAND -->` is replaced by the options of a command.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Collection, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import spacy
import typer

from spacy_tener.cli import tener_cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
OPTIONS = re.compile(r"^<!-- options: ([\w-]+) -->$", re.M)
REFERENCE = re.compile(r"^(<!-- reference: (.+?) -->)\n.*?^(<!-- end of reference -->)$", re.M | re.S)
ARGUMENT = re.compile(r"^\*{0,2}(\w+)(?: \((.+?)\))?: ")
# Options that the page about commands explains only once.
SHARED = {"--gpu-id", "--code", "--component", "--force"}
RETURNED = ("RETURNS", "YIELDS", "RAISES")


def fill(page: str) -> str:
    """Return a page with updated references."""
    return REFERENCE.sub(lambda match: f"{match[1]}\n{reference(match[2])}\n{match[3]}", page)


def fill_options(page: str) -> str:
    """Return a page in which the comments for options are replaced by the options."""
    return OPTIONS.sub(lambda match: options(match[1]), page)


def reference(name: str) -> str:
    """Return the reference of a registered name or a class as Markdown."""
    name, *listed = name.split()
    if name == "short":
        return "\n".join(["", *map(short, listed), ""])
    target = load(name)
    if name in entry_points():
        return "\n".join(["", f"### `{name}`", "", *described(target, defaults(name, target)), ""])
    return "\n".join(["", f"### `{target.__name__}`", "", *described(target, {}), *methods(target, listed), ""])


def short(name: str) -> str:
    """Return a line with a registered name, the first paragraph of its docstring, and its arguments with defaults."""
    text, _, _ = parse(inspect.getdoc(load(name)) or "", inspect.signature(load(name)).parameters)
    arguments = ", ".join(
        f"`{argument}`" if default == "required" else f"`{argument} = {default}`"
        for argument, default in defaults(name, load(name)).items()
    )
    shown = f" Arguments with their defaults: {arguments}." if arguments else ""
    return f"- `{name}`: {line(text.split(chr(10) * 2)[0])}{shown}"


def entry_points() -> dict[str, str]:
    """Return the registered names of the package, with their locations as `module:attribute`."""
    found = distribution("spacy_tener").entry_points
    return {entry.name: entry.value for entry in found}


def load(name: str) -> Any:
    """Import the object with a registered name or a dotted path."""
    module, _, attribute = entry_points().get(name, ":".join(name.rsplit(".", 1))).partition(":")
    return getattr(importlib.import_module(module), attribute)


def options(command: str) -> str:
    """Return a list of the arguments and options of a command. Options in `SHARED` are only mentioned."""
    group: Any = typer.main.get_command(tener_cli)
    entries, shared = [], []
    for parameter in group.get_command(None, command).params:
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.opts[0] in SHARED:
            shared.append(f"`{parameter.opts[0]}`")
            continue
        if parameter.param_type_name == "argument":
            names = [parameter.name.upper()]
        default = parameter.default
        shown = "" if default in (None, False, "", [], ()) or callable(default) else f" (`{default}`)"
        entries.append(f"- {', '.join(f'`{name}`' for name in names)}{shown}: {line(parameter.help or '')}")
    return "\n".join([*entries, *([f"- also {', '.join(shared)}"] if shared else [])])


def defaults(name: str, function: Any) -> dict[str, str]:
    """Return the default of each argument as it is written in a config, or "required"."""
    parameters = inspect.signature(function).parameters
    if name in ("tener_ner", "lac", "entity_lists"):
        config = spacy.blank("zh").get_factory_meta(name).default_config or {}
        return {argument: f"{config[argument]!r}" for argument in parameters if argument in config}
    return {
        argument: "required" if parameter.default is inspect.Parameter.empty else f"{parameter.default!r}"
        for argument, parameter in parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def methods(owner: type, listed: list[str]) -> Iterator[str]:
    """Yield the reference of the given methods and properties of a class."""
    for name in listed:
        member = inspect.getattr_static(owner, name)
        function = member.fget if isinstance(member, property) else member
        yield from ("", f"#### `{owner.__name__}.{name}`", "", *described(function, optional(function)))


def optional(method: Any) -> dict[str, str]:
    """Return the default of each argument of a method, or an empty string. Properties have no arguments."""
    return {
        name: "" if parameter.default is inspect.Parameter.empty else f"{parameter.default!r}"
        for name, parameter in list(inspect.signature(method).parameters.items())[1:]
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def described(target: Any, defaults: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a docstring in spaCy's style, as text and a list of arguments."""
    text, arguments, returned = parse(inspect.getdoc(target) or "", inspect.signature(target).parameters)
    text = re.sub(r"^Registered as `[^`]+`\.\s*", "", text, flags=re.M)
    yield re.sub(r"\n{3,}", "\n\n", text).strip()
    names = [*defaults, *(name for name in arguments if name not in defaults)]
    if names:
        yield ""
    for name in names:
        kind, meaning = arguments.get(name, ("", ""))
        default = defaults.get(name, "")
        shown = ", ".join(f"`{part}`" for part in (kind, default) if part)
        yield f"- `{name}`" + (f" ({shown})" if shown else "") + f": {line(meaning)}"
    for name, (kind, meaning) in returned.items():
        yield from ("", f"{name.capitalize()} `{kind}`: {line(meaning)}")


def parse(
    docstring: str, accepted: Collection[str]
) -> tuple[str, dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Split a docstring into its text, its arguments (name to type and description), and RETURNS, YIELDS and RAISES.

    accepted: Names of arguments. Other lines that start with a word and a colon are part of the text.
    """
    text: list[str] = []
    entries: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    current = ""
    for line in docstring.splitlines():
        found = ARGUMENT.match(line)
        if found and found[1] in (*accepted, *RETURNED):
            current = found[1]
            kinds[current] = found[2] or ""
            entries[current] = [line[found.end() :]]
        elif current and line.startswith("    "):
            entries[current].append(line.strip())
        else:
            current = ""
            text.append(line)
    rows = {name: (kinds[name], " ".join(lines)) for name, lines in entries.items()}
    returned = {name: rows.pop(name) for name in RETURNED if name in rows}
    return "\n".join(text), rows, returned


def line(text: str) -> str:
    """Join the lines of a text."""
    return " ".join(text.split())


def main(paths: list[Path]) -> None:
    for path in paths:
        before = path.read_text(encoding="utf8")
        after = fill(before)
        if after != before:
            path.write_text(after, encoding="utf8")
            print(f"{path.relative_to(ROOT)}: reference written")


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]] or PAGES)
