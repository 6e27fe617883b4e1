"""Config files: found by name or path, and read.

Errors name the file and the line. The repository's top-level folder `configs` is a symbolic link to the package's.
Where git makes no links (Windows, by default), configs are found by name only.
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

from ..errors import RemedyError

BASES = Path(__file__).parent / "configs"
OVERLAYS = BASES / "models"
_OF_NER = {"moves", "update_with_oracle_cut_size", "beam_width", "beam_density", "beam_update_prob"}
_MIXED = "spacy_tener.MixedCorpus.v1"


class ConfigError(RemedyError):
    """An error about a config."""


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return a remedy for a name that does not exist: similar ones, or else `otherwise`."""
    near = get_close_matches(name, list(names), n=3, cutoff=0.75)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def read_config(path: Path | str) -> Config:
    """Read a config or an overlay, whose parent sections may lack headers. Variables are kept."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text", "Name a config file.") from error
    parser = _parse(text, path)
    unnamed = [name for name in parser.sections() if "" in name.split(".")]
    if unnamed:
        raise ConfigError(f"{path}: the section [{unnamed[0]}] has an empty part in its name", "Correct the name.")
    try:
        return Config().from_str(_in_order(parser), interpolate=False)
    except ConfigValidationError as error:
        raise ConfigError(f"{path}: {problems(error)}", "Write each section or value once.") from error


def entries(config: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all sections and values of a config with their dotted names, a section before its values."""
    for key, value in config.items():
        yield f"{parent}{key}", value
        if isinstance(value, Mapping):
            yield from entries(value, f"{parent}{key}.")


def keys(config: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of all sections and values of a config."""
    return [name for name, _ in entries(config)]


def problems(error: ConfigValidationError) -> str:
    """Return confection's errors on one line, without the config that its message repeats."""
    found = [f"{'.'.join(map(str, problem.get('loc', [])))}: {problem.get('msg')}" for problem in error.errors or []]
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
        reason, line = f"the section [{error.section}] occurs twice", error.lineno
    except configparser.DuplicateOptionError as error:
        reason, line = f"'{error.option}' occurs twice in [{error.section}]", error.lineno
    except configparser.ParsingError as error:
        # MissingSectionHeaderError has `lineno` instead of `errors`.
        line = getattr(error, "lineno", None) or error.errors[0][0]
        reason = f"'{text.splitlines()[line - 1][:60]}' is neither a [section] nor a `key = value` in one"
    else:
        return parser
    raise ConfigError(f"{path}:{line}: {reason}", "Correct the line.")


def _in_order(parser: configparser.ConfigParser) -> str:
    """Return the text of a config with a header for each section, parents first."""
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


def check_no_ner(config: Mapping[str, Any]) -> None:
    """Refuse settings and the model of spaCy's `ner` in a section whose factory alone was changed to `tener_ner`."""
    for name, component in config.get("components", {}).items():
        if component.get("factory") != "tener_ner":
            continue
        of_ner = [key for key in component if key in _OF_NER]
        model = component.get("model")
        if isinstance(model, Mapping) and "TransitionBasedParser" in str(model.get("@architectures")):
            of_ner.append("model")
        if of_ner:
            raise ConfigError(
                f"[components.{name}] has {', '.join(of_ner)} of spaCy's ner",
                f"Write four lines in place of [components.{name}] and [components.{name}.model]. Sections below them, "
                f'as [components.{name}.model.tok2vec], stay.\n[components.{name}]\nfactory = "tener_ner"\n'
                f'[components.{name}.model]\n@architectures = "spacy_tener.CRFTagger.v1"',
            )


def find_base(config: Path | str) -> Path:
    """Find the config of a corpus by its path, or by its name as in `weibo`."""
    return find(config, BASES, "config")


def find_overlay(config: Path | str) -> Path:
    """Find the overlay of a model by its path, or by its name as in `flat-atssa`."""
    return find(config, OVERLAYS, "overlay")


def names_in(folder: Path) -> list[str]:
    """Return the names of the configs in one of the package's folders: BASES or OVERLAYS."""
    return sorted(path.stem for path in folder.glob("*.cfg"))


def find(config: Path | str, folder: Path, kind: str) -> Path:
    """Find a config by its path, or by its name in a folder. kind: What it is, for an error."""
    path, name = Path(config), str(config)
    if path.is_file() or path.suffix == ".cfg" or {"/", os.sep} & set(name):
        return path
    return find_in(folder, name, kind, names_in(folder), f"a file of yours needs its path, as in my/{name}.cfg.")


def find_in(folder: Path, name: str, kind: str, names: Sequence[str], otherwise: str) -> Path:
    """Find a config by its name in a folder. names: Those to offer in an error; otherwise: What to say beside them."""
    if name not in names_in(folder):
        remedy = did_you_mean(name, names, f"There are {', '.join(names)}; {otherwise}")
        raise ConfigError(f"there is no {kind} '{name}'", remedy)
    return folder / f"{name}.cfg"


def description(config: Path) -> str:
    """Return what the first lines of a config file say of it, up to an empty comment."""
    lines = config.read_text(encoding="utf8").splitlines()
    said = itertools.takewhile(lambda line: line.startswith("# "), lines)
    return "\n".join(line.removeprefix("# ") for line in said)


def systems() -> list[str]:
    """Return the overlays that are systems, the first to try before the others; the rest is laid on one.

    What a file says in its second line tells them apart: where to begin, when to take it, or what to lay it on.
    """
    advice = {name: description(OVERLAYS / f"{name}.cfg").splitlines()[1] for name in names_in(OVERLAYS)}
    return [name for words in ("Begin here", "Take it ") for name, line in advice.items() if line.startswith(words)]


def corpus_reader(config: Config) -> Mapping[str, Any]:
    """Return the section of the reader of the training corpus."""
    filled = config.interpolate()
    section: Any = filled
    for name in filled["training"]["train_corpus"].split("."):
        section = section.get(name) if isinstance(section, Mapping) else None
    if isinstance(section, Mapping) and section.get("@readers") == _MIXED:
        # The reader of the gold annotation has the path of [paths]; overlays may add readers around it.
        readers = list(section["readers"].values())
        path = filled["paths"].get("train")
        section = next((reader for reader in readers if reader.get("path") == path), next(iter(readers), None))
    if not isinstance(section, Mapping):
        raise ConfigError("training.train_corpus names no section", "Set it to a section of [corpora].")
    return section
