"""Configs and parts of configs as files, with errors that name the file and the line."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from confection import ConfigValidationError
from thinc.api import Config

from ...errors import RemedyError


class ConfigError(RemedyError):
    """A config that cannot be made as asked: what is wrong, and what to do about it."""


def read_config(path: Path | str) -> Config:
    """A config, or a part of one whose parent sections may go without headers. Variables stay as they are written."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", "Is it a config?") from error
    parser = _parse(text, path)
    try:
        return Config().from_str(_in_order(parser), interpolate=False)
    except ConfigValidationError as error:
        raise ConfigError(f"{path}: {problems(error)}", "Give each section or value one place.") from error


def entries(config: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    """All sections and values of a config with their dotted names, a section before what is in it."""
    for key, value in config.items():
        yield f"{parent}{key}", value
        if isinstance(value, Mapping):
            yield from entries(value, f"{parent}{key}.")


def keys(config: Mapping[str, Any]) -> list[str]:
    """The dotted names of all sections and values of a config."""
    return [name for name, _ in entries(config)]


def problems(error: ConfigValidationError) -> str:
    """What confection found wrong, on one line and without the whole config behind it."""
    found = [f"{'.'.join(map(str, each.get('loc', [])))}: {each.get('msg')}" for each in error.errors or []]
    return "; ".join(found) or " ".join((error.desc or error.title or "").split())


def _parser() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    return parser


def _parse(text: str, path: Path | str) -> configparser.ConfigParser:
    parser = _parser()
    try:
        parser.read_string(text)
    except configparser.DuplicateSectionError as error:
        reason, line = f"the section [{error.section}] stands there twice", error.lineno
    except configparser.DuplicateOptionError as error:
        reason, line = f"'{error.option}' stands twice in [{error.section}]", error.lineno
    except configparser.ParsingError as error:
        # One that stands before the first section has a line of its own instead of a list of errors.
        line = getattr(error, "lineno", None) or error.errors[0][0]
        reason = f"'{text.splitlines()[line - 1][:60]}' is neither a [section] nor a `key = value` in one"
    else:
        return parser
    raise ConfigError(f"{path}:{line}: {reason}", "Mend the line.")


def _in_order(parser: configparser.ConfigParser) -> str:
    """The text of a config with each section behind its parents, whether they have headers or not."""
    names = parser.sections()
    parents = (name[: dot.start()] for name in names for dot in re.finditer(r"\.", name))
    wanted = {name: None for name in (*names, *parents) if name in names or "*" not in name.split(".")}
    ordered = _parser()
    for name in sorted(wanted, key=lambda name: name.count(".")):
        ordered.add_section(name)
        for key, value in parser.items(name) if parser.has_section(name) else ():
            ordered.set(name, key, value)
    text = StringIO()
    ordered.write(text)
    return text.getvalue()
