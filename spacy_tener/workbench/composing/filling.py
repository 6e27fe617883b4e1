"""Configs filled with the defaults of all that they name, as `spacy init fill-config` does, and validated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from confection import ConfigValidationError
from spacy.schemas import ConfigSchemaTraining
from spacy.util import get_sourced_components, load_model_from_config, registry
from thinc.api import Config

from .files import ConfigError, keys, problems

_UNREGISTERED = re.compile(r"Could not find function '(?P<name>[^']+)' in function registry '(?P<kind>[^']+)'")
_AVAILABLE = re.compile(r"Available names: (.*)")
_OTHERWISE = "Mend its name, or install the package that has it."
_NO_FACTORY = re.compile(r"Can't find factory for '(?P<name>[^']+)'")


def fill(config: Config) -> Config:
    """The config with every default in it, variables as they were. All functions that it names must be registered and
    take what it gives them, and the pipeline's components are made once."""
    filled: Config = load_model_from_config(config.copy(), auto_fill=True, validate=True).config
    filled["components"].update(get_sourced_components(config))
    _check_nothing_lost(config, filled)
    registry.resolve(filled.interpolate()["training"], schema=ConfigSchemaTraining)
    return filled


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Say in one line what is wrong with `what`, for all the ways in which spaCy, confection and builders refuse it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{what}: {error.reason}", error.remedy) from error
    except ConfigValidationError as error:
        title = f"{error.title}: " if error.errors else ""
        raise ConfigError(
            f"{what}: {title}{problems(error).removesuffix('.')}", "Mend the value, or take it out."
        ) from error
    except (ValueError, ImportError) as error:
        raise _refused(str(error), what) from error


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """A remedy for a name that does not exist."""
    near = get_close_matches(name, list(names), n=3, cutoff=0.75)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def _check_nothing_lost(config: Config, filled: Config) -> None:
    """Refuse keys that no schema has: filling leaves them out without a word."""
    out = {f"components.{name}" for name in config.get("components", {}) if name not in filled["components"]}
    there = set(keys(filled))
    for key in keys(config):
        if key not in there and ".".join(key.split(".")[:2]) not in out:
            raise ConfigError(f"spaCy knows no '{key}'", did_you_mean(key, sorted(there), "Take it out."))


def _refused(text: str, what: str) -> ConfigError:
    if factory := _NO_FACTORY.search(text):
        return ConfigError(f"{what}: no factory '{factory['name']}' is registered", _OTHERWISE)
    function = _UNREGISTERED.search(text)
    if function is None:
        return ConfigError(f"{what}: {text.removesuffix('.')}", "Mend the value, or take it out.")
    reason = f"there is no '{function['name']}' among the registered {function['kind']}"
    available = _AVAILABLE.search(text)
    names = available[1].split(", ") if available else []
    return ConfigError(f"{what}: {reason}", did_you_mean(function["name"], names, _OTHERWISE))
