"""Configs by name: those that come with the package, of corpora, of models (overlays), and of search spaces.

The repository's top-level folder `configs` is a link to the package's, so that there is one copy of each. Where git
makes no links (Windows, unless told to), only the names work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .files import ConfigError
from .filling import did_you_mean

SHIPPED = Path(__file__).parents[1] / "configs"
BASES, OVERLAYS, SPACES = SHIPPED, SHIPPED / "models", SHIPPED / "search"


def find_base(config: Path | str) -> Path:
    """The config of a corpus, by its path or by its name: `weibo`."""
    return _find(config, BASES, "config")


def find_overlay(config: Path | str) -> Path:
    """The overlay of a model, by its path or by its name: `flat-atssa`."""
    return _find(config, OVERLAYS, "overlay")


def find_space(config: Path | str) -> Path:
    """What a search draws from, by its path or by its name: `mect`."""
    return _find(config, SPACES, "search space")


def names_in(folder: Path) -> list[str]:
    """The names of the configs in one of the package's folders: BASES, OVERLAYS or SPACES."""
    return sorted(path.stem for path in folder.glob("*.cfg"))


def _find(config: Path | str, folder: Path, kind: str) -> Path:
    path, name = Path(config), str(config)
    if path.is_file() or path.suffix == ".cfg" or {"/", os.sep} & set(name):
        return path
    return find_in(folder, name, kind, names_in(folder), f"a file of yours needs its path, as in my/{name}.cfg.")


def find_in(folder: Path, name: str, kind: str, names: Sequence[str], otherwise: str) -> Path:
    """The config of this name in a folder. names: what there is; otherwise: what to say beside that if it is none."""
    if name not in names_in(folder):
        remedy = did_you_mean(name, names, f"There are {', '.join(names)}; {otherwise}")
        raise ConfigError(f"there is no {kind} '{name}'", remedy)
    return folder / f"{name}.cfg"
