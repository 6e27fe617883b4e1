"""What a run is grouped or drawn by: its corpus, its system, its seed, or any setting of its config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from confection import ConfigValidationError
from spacy.util import load_config

from .errors import ReportError
from .runs import CONFIG, MODEL, Place

PLACE = ("corpus", "system", "seed")


class MissingSettingError(ReportError):
    """A run's config lacks a setting that others may have."""


def value_of(run: Place, name: str) -> Any:
    """What a run has for a name.

    name: `corpus`, `system`, `seed`, a setting of the config as in `components.tener_ner.model.tok2vec.k`, or the end
        of one, as in `k` or `tok2vec.k`, if only one setting of the config ends so.
    """
    if name in PLACE:
        return getattr(run, name)
    settings = _settings(run.folder)
    if name in settings:
        return settings[name]
    matches = [path for path in settings if path.endswith(f".{name}")]
    if not matches:
        remedy = "Use corpus, system, seed or a setting's path, as in components.tener_ner.model.tok2vec.k."
        raise MissingSettingError(f"{run.name}: its config has no setting '{name}'", remedy)
    if len(matches) > 1:
        raise ReportError(f"{run.name}: several settings end in '{name}'", f"Use one of: {', '.join(matches)}.")
    return settings[matches[0]]


def has_value(run: Place, name: str) -> bool:
    """Whether a run has anything for a name: systems have settings that others lack."""
    try:
        value_of(run, name)
    except MissingSettingError:
        return False
    return True


def order_of(value: Any) -> tuple[bool, float, str]:
    """Sorts numbers by value, and everything else as text behind them."""
    number = is_number(value)
    return (not number, value if number else 0.0, str(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@cache
def _settings(folder: Path) -> Mapping[str, Any]:
    """Every setting of a run's config by its dotted path."""
    paths = [path for path in (folder / MODEL / CONFIG, folder / CONFIG) if path.is_file()]
    if not paths:
        raise ReportError(f"{folder}: there is neither {MODEL}/{CONFIG} nor {CONFIG}", "Train the run again.")
    try:
        return dict(_flat(load_config(paths[0], interpolate=True), ""))
    except (ConfigValidationError, OSError, ValueError) as error:
        raise ReportError(f"{paths[0]}: cannot be read as a config: {error}", "Train the run again.") from error


def _flat(section: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
