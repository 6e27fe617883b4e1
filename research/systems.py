"""Look up systems by name. `grid` and `search` use this file.

The name of a system lists overlays separated by `+`: overlays of the package, files in `overlays`, and ablations
defined in ablations.cfg. `flat-atssa-k-4` is the overlay `flat-atssa` with another k; `flat-atssa+flat-atssa-k-4` is
the same system. `tener` is the config of a corpus without changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import srsly

from spacy_tener.training.config_files import OVERLAYS, find_in, names_in, read_config
from spacy_tener.training.overlays import SECTIONS

FOLDERS = (OVERLAYS, Path(__file__).with_name("overlays"))
_ANY = "any"
_TOK2VEC = "components.tener_ner.model.tok2vec"


@dataclass(frozen=True)
class System:
    """The overlays of a system, and the settings that are applied after them, as arguments for `compose`."""

    overlays: tuple[str, ...]
    settings: tuple[str, ...]


@cache
def ablations() -> Mapping[str, System]:
    """Return the systems in ablations.cfg by name."""
    found: dict[str, System] = {}
    for over, named in read_config(Path(__file__).with_name("ablations.cfg")).items():
        for name, settings in named.items():
            lines = tuple(f"{_whole(key)}={srsly.json_dumps(value)}" for key, value in settings.items())
            found[name] = System(() if over == _ANY else (over,), lines)
    return found


def _whole(setting: str) -> str:
    return setting if setting.partition(".")[0] in SECTIONS else f"{_TOK2VEC}.{setting}"


def system_of(name: str, own_overlays: Sequence[str] = ()) -> System:
    """Return a system by its name. Repeated overlays are applied once.

    own_overlays: Names of the user's overlays, which take precedence over ablations with the same names.
    """
    systems = {part: system for part, system in ablations().items() if part not in own_overlays}
    parts = [systems.get(part, System((part,), ())) for part in name.split("+")]
    overlays = dict.fromkeys(overlay for part in parts for overlay in part.overlays)
    return System(tuple(overlays), tuple(line for part in parts for line in part.settings))


def find_system(name: str, own_folder: Path | None = None) -> tuple[list[Path], tuple[str, ...]]:
    """Return the overlay files and the settings of a system. Raises a ConfigError for unknown names.

    own_folder: Directory with the user's overlays, which take precedence over the package's overlays with the same
        names.
    """
    folders = FOLDERS if own_folder is None else (*FOLDERS, own_folder)
    overlay_folders = {overlay: folder for folder in folders for overlay in names_in(folder)}
    system = system_of(name, names_in(own_folder) if own_folder else ())
    existing = sorted({*overlay_folders, *ablations()})
    fix = "--configs names a directory of yours."
    files = [find_in(overlay_folders.get(name, OVERLAYS), name, "overlay", existing, fix) for name in system.overlays]
    return files, system.settings


def parts_of(name: str) -> frozenset[str]:
    """Return a canonical form of a system's name, for comparison with published results. `mect+mect-no-cross` equals
    `mect-no-cross`. Overlays that all English configs include, or that only change the size, are ignored."""
    system = system_of(name)
    plain = {"tener", "paper-size", "chars-adapted", "encoder-adapted"}
    return frozenset({*system.overlays, *system.settings} - plain)
