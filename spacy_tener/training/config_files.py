"""Find config files by name or path, and parse them. Error messages contain the file and the line.

The folder `configs/` contains a config for each corpus. The folder `configs/models/` contains overlays, which are
partial configs.

The repository has a symbolic link to `configs/` at the top level, so that paths such as `configs/weibo.cfg` can be
used. On Windows, git doesn't create symbolic links by default. Names such as `weibo` work on all platforms.
"""

from __future__ import annotations

import configparser
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any

from confection import ConfigValidationError
from thinc.api import Config

from .. import renamed
from ..errors import UserError

# Folder with a config for each corpus.
BASES = Path(__file__).parent / "configs"
# Folder with overlays.
OVERLAYS = BASES / "models"
# Settings that spaCy's `ner` has and `tener_ner` doesn't have.
_NER_SETTINGS = {"moves", "update_with_oracle_cut_size", "beam_width", "beam_density", "beam_update_prob"}
_MIXED_CORPUS = "spacy_tener.MixedCorpus.v1"


class ConfigError(UserError):
    """Raised for an invalid config, overlay or setting."""


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return a suggestion for an unknown name.

    name (str): The unknown name.
    names (Iterable[str]): All valid names.
    otherwise (str): The suggestion if no valid name is similar.
    """
    near = get_close_matches(name, list(names), n=3, cutoff=0.75)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def read_config(path: Path | str) -> Config:
    """Parse a config or an overlay without interpolating variables. Headers of parent sections are optional.

    Raises a ConfigError if the file can't be read or parsed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", "Use the path of a config file.") from error
    parser = _parse(text, path)
    unnamed = [name for name in parser.sections() if "" in name.split(".")]
    if unnamed:
        raise ConfigError(
            f"{path}: the section [{unnamed[0]}] has an empty part in its name", "Correct the name of the section."
        )
    try:
        return Config().from_str(_sort_sections(parser), interpolate=False)
    except ConfigValidationError as error:
        raise ConfigError(f"{path}: {problems(error)}", "Write each section or value once.") from error


def entries(config: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all sections and values in a config with their dotted names, such as `training.max_steps`. Each section
    comes before its values.
    """
    for key, value in config.items():
        yield f"{parent}{key}", value
        if isinstance(value, Mapping):
            yield from entries(value, f"{parent}{key}.")


def keys(config: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of all sections and values in a config."""
    return [name for name, _ in entries(config)]


def problems(error: ConfigValidationError) -> str:
    """Return a validation error's message on a single line.

    The exception's own message is long, because confection appends the whole config.
    """
    found = [f"{'.'.join(map(str, problem.get('loc', [])))}: {problem.get('msg')}" for problem in error.errors or []]
    return "; ".join(found) or " ".join((error.desc or error.title or "").split())


def _parser() -> configparser.ConfigParser:
    """Create a parser that is case-sensitive and doesn't interpolate variables."""
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    return parser


def _parse(text: str, path: Path | str) -> configparser.ConfigParser:
    """Parse a config's text. Raises a ConfigError with the line number if there is a syntax error.

    path (Path | str): The config's path, for the error message.
    """
    parser = _parser()
    try:
        parser.read_string(text)
    except configparser.DuplicateSectionError as error:
        reason, line = f"the section [{error.section}] occurs twice", error.lineno
        fix = "Merge the two sections."
    except configparser.DuplicateOptionError as error:
        reason, line = f"'{error.option}' occurs twice in [{error.section}]", error.lineno
        fix = "Remove one of the two lines."
    except configparser.ParsingError as error:
        # `ParsingError` stores line numbers in `errors`. Its subclass `MissingSectionHeaderError` has `lineno` instead.
        line = getattr(error, "lineno", None) or error.errors[0][0]
        reason = f"'{text.splitlines()[line - 1][:60]}' is neither a [section] nor a `key = value` line in a section"
        fix = "Correct the line."
    else:
        return parser
    raise ConfigError(f"{path}:{line}: {reason}", fix)


def _sort_sections(parser: configparser.ConfigParser) -> str:
    """Return a config's text with sorted sections and headers for all parent sections, as confection requires.

    Overlays may omit headers of empty parent sections.
    """
    names = parser.sections()
    parents = (name[: dot.start()] for name in names for dot in re.finditer(r"\.", name))
    # Add headers for missing parents. The name `*` stands for positional arguments and needs no header.
    wanted = {name: None for name in (*names, *parents) if name in names or "*" not in name.split(".")}
    ordered = _parser()
    for name in sorted(wanted, key=lambda name: name.count(".")):
        ordered.add_section(name)
        for key, value in parser.items(name) if parser.has_section(name) else ():
            ordered.set(name, key, value)
    text = StringIO()
    ordered.write(text)
    return text.getvalue()


def check_no_ner(config: Mapping[str, Any]) -> None:
    """Raise a ConfigError if a `tener_ner` component has settings or the model of spaCy's `ner`.

    This happens if a user starts from a config for `ner` and changes only the component's factory.
    """
    for name, component in config.get("components", {}).items():
        if component.get("factory") != "tener_ner":
            continue
        ner_settings = [key for key in component if key in _NER_SETTINGS]
        model = component.get("model")
        if isinstance(model, Mapping) and "TransitionBasedParser" in str(model.get("@architectures")):
            ner_settings.append("model")
        if ner_settings:
            raise ConfigError(
                f"[components.{name}] has the factory tener_ner, but {', '.join(ner_settings)} of spaCy's ner",
                f"Replace the sections [components.{name}] and [components.{name}.model] with the following lines. "
                f"Keep their subsections, such as [components.{name}.model.tok2vec].\n"
                f'[components.{name}]\nfactory = "tener_ner"\n'
                f'[components.{name}.model]\n@architectures = "spacy_tener.CRFTagger.v1"',
            )


def check_renamed(config: Mapping[str, Any]) -> None:
    """Raise a ConfigError if the config contains an old name of a registered function or argument."""
    for key, value in entries(config):
        section, _, last = key.rpartition(".")
        if last.startswith("@") and value in renamed.OLD_FUNCTIONS:
            raise ConfigError(f"[{section}]: {value} was renamed", f"Use {renamed.OLD_FUNCTIONS[value]}.")
        if isinstance(value, Mapping):
            for argument in value:
                new = renamed_argument(value, argument)
                if new:
                    raise ConfigError(f"[{key}]: the argument '{argument}' was renamed", f"Use '{new}'.")


def renamed_argument(section: Mapping[str, Any], argument: str) -> str:
    """Return an argument's new name, or an empty string if the argument was not renamed.

    section (Mapping[str, Any]): The config section of a registered function.
    argument (str): The argument's name in the section.
    """
    functions = (str(value) for name, value in section.items() if name.startswith("@"))
    return next((renamed.OLD_ARGUMENTS.get(function, {}).get(argument, "") for function in functions), "")


def find_base(config: Path | str) -> Path:
    """Return the path to a corpus config. The argument can be a path, or the name of a config in this package, such as
    `weibo`.
    """
    return find(config, BASES, "config")


def find_overlay(config: Path | str) -> Path:
    """Return the path to an overlay. The argument can be a path, or the name of an overlay in this package, such as
    `flat-atssa`.
    """
    return find(config, OVERLAYS, "overlay")


def names_in(folder: Path) -> list[str]:
    """Return the sorted names of all configs in a folder."""
    return sorted(path.stem for path in folder.glob("*.cfg"))


def find(config: Path | str, folder: Path, kind: str) -> Path:
    """Return the path to a config file.

    config (Path | str): A path, or the name of a config in the folder. If the argument contains a slash, ends with
        `.cfg` or is an existing file, it is a path.
    folder (Path): The folder to search for a name.
    kind (str): `config` or `overlay`, for error messages.
    """
    path, name = Path(config), str(config)
    if path.is_file() or path.suffix == ".cfg" or {"/", os.sep} & set(name):
        return path
    return find_in(
        folder, name, kind, names_in(folder), f"to use a file of your own, pass its path, such as my/{name}.cfg."
    )


def find_in(folder: Path, name: str, kind: str, names: Sequence[str], otherwise: str) -> Path:
    """Return the path to a named config in a folder. Raises a ConfigError if there is no such config.

    folder (Path): The folder to search.
    name (str): The config's name, without suffix.
    kind (str): `config` or `overlay`, for the error message.
    names (Sequence[str]): Valid names, for the error message.
    otherwise (str): Additional advice for the error message, used if no valid name is similar.
    """
    if name in renamed.OLD_OVERLAYS and folder == OVERLAYS:
        raise ConfigError(f"the overlay '{name}' was renamed", f"Use {renamed.OLD_OVERLAYS[name]}.")
    if name not in names_in(folder):
        fix = did_you_mean(name, names, f"Use one of: {', '.join(names)}; {otherwise}")
        raise ConfigError(f"there is no {kind} '{name}'", fix)
    return folder / f"{name}.cfg"


def description(config: Path) -> str:
    """Return a config's description: the comment lines at the beginning of the file, up to the first empty comment
    line.
    """
    lines = config.read_text(encoding="utf8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("# "), lines)
    return "\n".join(line.removeprefix("# ") for line in comment)


def systems() -> list[str]:
    """Return the names of all overlays that specify a complete architecture, in recommended order.

    Other overlays only modify an architecture. An overlay specifies an architecture if the second line of its
    description starts with "Begin here" or "Use it". Overlays with "Begin here" come first.
    """
    advice = {name: description(OVERLAYS / f"{name}.cfg").splitlines()[1] for name in names_in(OVERLAYS)}
    return [name for words in ("Begin here", "Use it ") for name, line in advice.items() if line.startswith(words)]


def corpus_reader(config: Config) -> Mapping[str, Any]:
    """Return the config section of the training corpus's reader.

    For a `MixedCorpus`, which combines several readers, return the section of the reader for gold annotation.
    """
    filled = config.interpolate()
    section: Any = filled
    for name in filled["training"]["train_corpus"].split("."):
        section = section.get(name) if isinstance(section, Mapping) else None
    if isinstance(section, Mapping) and section.get("@readers") == _MIXED_CORPUS:
        # The reader for gold annotation is the reader with the path `paths.train`. Other readers may read
        # silver-standard data.
        readers = list(section["readers"].values())
        path = filled["paths"].get("train")
        section = next((reader for reader in readers if reader.get("path") == path), next(iter(readers), None))
    if not isinstance(section, Mapping):
        raise ConfigError(
            "training.train_corpus is not the name of a section in the config",
            "Set it to the section of a corpus reader, such as corpora.train.",
        )
    return section
