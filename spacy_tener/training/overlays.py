"""Composition of a config: a corpus' config, overlays that override it, and single settings that override both.

An overlay is a part of a config. A section of it with another registered function (`@architectures` and so on) or
another component `factory` replaces the section below it, with all subsections; any other section is merged key by key.
Nothing else removes a key: an overlay switches a setting off by `null`, and removes a component by an `nlp.pipeline`
without it. Headers of empty parent sections may be left out.

An overlay can wrap the section that it replaces: the value `${here}` is that whole section, and `${here.learn_rate}` a
part of it. One that removes a component can give its parts to another: the value
`${components.tener_ner.model.tok2vec}` is then that whole section.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import srsly
from confection import ConfigValidationError
from spacy.language import DEFAULT_CONFIG
from spacy.schemas import ConfigSchemaTraining
from spacy.util import dot_to_dict, get_sourced_components, load_model_from_config, registry
from thinc.api import Config

from ..errors import install
from .config_files import (
    ConfigError,
    check_no_ner,
    did_you_mean,
    entries,
    find_base,
    find_overlay,
    keys,
    problems,
    read_config,
)

CONFIG = "config.cfg"
"""The file of a pipeline's config in its directory."""
VARIABLE = re.compile(r"\$\{([^{}]+)\}")
COMPONENT = re.compile(r"\$\{(?P<key>components\.(?P<name>[^{}.]+)\.[^{}]+)\}")
HERE = re.compile(r"\$\{here(?:\.(?P<part>[^{}]+))?\}")
_MOST_TRIED = 3
"""Of more overlays that do not go together, no other order is tried: each takes a third of a second."""
SECTIONS = ("paths", "system", "nlp", "components", "corpora", "training", "pretraining", "initialize")

_UNREGISTERED = re.compile(r"Could not find function '(?P<name>[^']+)' in function registry '(?P<kind>[^']+)'")
_AVAILABLE = re.compile(r"Available names: (.*)")
_OTHERWISE = "Correct its name, or install the package that has it."
_CORRECT = "Correct or remove the value."
_NO_FACTORY = re.compile(r"Can't find factory for '(?P<name>[^']+)'")


def compose(base: Path | str, overlays: Sequence[Path | str] = (), settings: Sequence[str] = ()) -> Config:
    """Merge overlays into a config, in order, then single settings; fill and validate the result.

    It keeps its variables, as `${paths.train}`.

    base (Union[Path, str]): The path of a config, or the name of one of the package, as `weibo`.
    overlays (Sequence[Union[Path, str]]): Paths or names, as `flat-atssa`. The overlay `tener` changes nothing.
    settings (Sequence[str]): Each as `section.key=value`, with the value as in a config; a string needs no quotes. A
        dictionary replaces the one that is there. The filled config of all files must have the key.
    """
    repeated = [str(name) for name, count in Counter(map(str, overlays)).items() if count > 1]
    if repeated:
        raise ConfigError(f"Overlays named twice: {', '.join(repeated)}", "Name each once.")
    read = {str(path): read_config(find_overlay(path)) for path in overlays}
    config = read_config(find_base(base))
    try:
        config = _lay(config, read, base)
    except ConfigError as error:
        remedy = _what_works(config, read) if 1 < len(overlays) <= _MOST_TRIED else ""
        raise ConfigError(error.reason, remedy or error.remedy) from error
    return with_settings(config, settings)


def _lay(config: Config, overlays: Mapping[str, Config], base: Path | str = "") -> Config:
    """Merge overlays into a config, and fill it.

    base (Union[Path, str]): The name of the config, for messages.
    """
    for name, overlay in overlays.items():
        _check_shape(overlay, name)
        _check_sections(overlay, config, name)
        config = _merge(*_fill_references(config, _mark_functions(overlay, name), name))
    _check_replaced(overlays, config)
    _check_initialize(overlays, config)
    _check_variables(overlays, config)
    with wrap_config_errors(" + ".join(map(str, [base, *overlays]))):
        return fill(config)


def _what_works(config: Config, overlays: Mapping[str, Config]) -> str:
    """Return a remedy for overlays that do not go together: another order, or which to leave out; none if all fail."""

    def works(*chosen: str) -> bool:
        try:
            return bool(_lay(config, {name: overlays[name] for name in chosen}))
        except ConfigError:
            return False

    for order in islice(permutations(overlays), 1, None):
        if works(*order):
            return f"They work in the order {' '.join(order)}."
    without = [name for name in overlays if works(*(other for other in overlays if other != name))]
    return f"In no order do all of them work, but they do without {' or '.join(without)}." if without else ""


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """Merge single settings into a filled config, as `compose` does; fill and validate the result."""
    for setting in settings:
        key, updates = setting.partition("=")[0].strip(), _read_setting(setting, config)
        if isinstance(_get(updates, key), Mapping):
            # It takes the place of what is there: which of an optimizer's `rates` comes first decides.
            section, _, last = key.rpartition(".")
            config = config.copy()
            _get(config, section).pop(last)
        config = _merge(config, updates)
        if "@" in key:
            # Fill in the settings of the new function, which the next setting may change.
            with wrap_config_errors(f"--set {setting}"):
                config = fill(config)
    if settings:
        with wrap_config_errors(f"--set {' '.join(settings)}"):
            config = fill(config)
    return config


def _merge(config: Config, updates: Config) -> Config:
    """Return the config with the updates merged in. A component with another factory is replaced, not merged."""
    rest = config.copy()
    for name, component in updates.get("components", {}).items():
        origin = _origin(component)
        if origin and origin != _origin(rest["components"].get(name, {})):
            rest["components"].pop(name, None)
    merged = _in_order(rest.merge(updates), rest)
    return Config(merged, is_interpolated=False, section_order=rest.section_order)


def _in_order(config: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with its keys in the order of a model, and other keys after them."""
    ordered = {key: config[key] for key in (*(key for key in model if key in config), *config)}
    for key, value in ordered.items():
        if isinstance(value, Mapping) and isinstance(model.get(key), Mapping):
            ordered[key] = _in_order(value, model[key])
    return ordered


def _origin(component: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a component's factory, or the pipeline that it is sourced from."""
    return next(((key, component[key]) for key in ("factory", "source") if key in component), None)


# References to what an overlay replaces


def _fill_references(config: Config, overlay: Config, name: str) -> tuple[Config, Config]:
    """Return the config without the sections that the overlay takes over, and the overlay with them in their places.

    name (str): The overlay's name, for messages.
    """
    rest, filled = config.copy(), overlay.copy()
    for key, value in entries(overlay):
        section, _, last = key.rpartition(".")
        if not isinstance(value, str):
            continue
        reference = HERE.fullmatch(value)
        if reference:
            replaced = _replaced_section(config, overlay, section)
            part = _get(config, f"{replaced}.{reference['part']}" if reference["part"] else replaced)
            if part is None:
                reason = f"{name}: the config has no [{section}] for {value}"
                raise ConfigError(reason, "Use it with a config that has it.")
            _get(filled, section)[last] = deepcopy(part)
            if not reference["part"]:
                _get(rest, replaced).clear()
        elif (reference := COMPONENT.fullmatch(value)) and reference["name"] not in _pipeline(overlay, config):
            _get(filled, section)[last] = deepcopy(_part_of_removed(reference, config, overlay, name))
            if _get(config, "pretraining.component") == reference["name"]:
                rest["pretraining"]["component"] = section.split(".")[1]
    return rest, filled


def _replaced_section(config: Config, overlay: Config, section: str) -> str:
    """Return the section or, if the config lacks it, the one above it whose function the overlay replaces."""
    above = section
    while above and _get(config, above) is None:
        above = above.rpartition(".")[0]
    replacement = _get(overlay, above) if above else None
    is_replaced = isinstance(replacement, Mapping) and any(key.startswith("@") for key in replacement)
    return above if is_replaced else section


def _part_of_removed(reference: re.Match[str], config: Config, overlay: Config, name: str) -> Any:
    """Return the part of a component that the overlay removes from the pipeline. It may remove no other one."""
    pipeline = _pipeline(config)
    part = _get(config, reference["key"]) if reference["name"] in pipeline else None
    if part is None:
        remedy = f"Lay it on a config that has one. The pipeline is {srsly.json_dumps(pipeline)}."
        raise ConfigError(f"{name}: the config has no [{reference['key']}]", remedy)
    removed = set(pipeline) - {*_pipeline(overlay, config), reference["name"]}
    if removed:
        remedy = f"Name them in nlp.pipeline of a copy of {name}, or lay it on a config without them."
        raise ConfigError(f"{name}: removes {', '.join(sorted(removed))}", remedy)
    return part


def _pipeline(*configs: Config) -> list[str]:
    """Return the pipeline of the first config that names one."""
    return next(filter(None, (_get(config, "nlp.pipeline") for config in configs)), [])


# Checks, whose messages name the overlay


def _check_shape(updates: Config, name: str) -> None:
    """Refuse a value where a component's section is needed, and a pipeline that is not a list."""
    for key in ("components", "initialize.components"):
        section = _get(updates, key) or {}
        if not isinstance(section, Mapping) or not all(isinstance(part, Mapping) for part in section.values()):
            remedy = "Write a section. To remove a component, leave it out of nlp.pipeline."
            raise ConfigError(f"{name}: [{key}] has a value where a section is needed", remedy)
    if not isinstance(_pipeline(updates), list):
        raise ConfigError(f"{name}: nlp.pipeline is not a list", 'Write names as in ["tener_ner"].')


def _check_sections(overlay: Config, config: Config, name: str) -> None:
    """Refuse sections and components that the config lacks and the overlay does not define."""
    for section in overlay:
        if section not in SECTIONS and section not in config:
            sections = ", ".join(dict.fromkeys([*config, *SECTIONS]))
            raise ConfigError(f"{name}: the config has no section [{section}]", f"Use one of: {sections}.")
    components, pipeline = config.get("components", {}), _pipeline(overlay, config)
    for component, settings in overlay.get("components", {}).items():
        if component not in components and _origin(settings) is None:
            remedy = f"It has: {', '.join(components) or 'none'}. A new component needs a `factory`."
            raise ConfigError(f"{name}: the config has no component '{component}'", remedy)
        if component not in pipeline:
            remedy = f"The pipeline is {srsly.json_dumps(pipeline)}."
            raise ConfigError(f"{name}: the component '{component}' is not named in nlp.pipeline", remedy)
    for key, section in entries(overlay):
        value = _get(config, key)
        if not isinstance(section, Mapping) or value is None or isinstance(value, Mapping):
            continue
        if not any(setting.startswith("@") for setting in section):  # as `max_rate` of a rate without a schedule
            reason = f"{name}: sets '{', '.join(section)}' in [{key}], which is the value {value} here"
            raise ConfigError(reason, "Name a function there, or use it with a config that has one.")


class _Function(str):
    """The name of a function in a config, with the overlay that it is of."""

    overlay: str


def _functions(config: Config) -> dict[str, str]:
    """Return the names of a config's functions by their keys, as `training.optimizer.@optimizers`."""
    return {key: value for key, value in entries(config) if key.rpartition(".")[2].startswith("@")}


def _mark_functions(overlay: Config, name: str) -> Config:
    marked = overlay.copy()
    for key, value in _functions(overlay).items():
        section, _, last = key.rpartition(".")
        function = _get(marked, section)[last] = _Function(value)
        function.overlay = name
    return marked


def _check_replaced(overlays: Mapping[str, Config], config: Config) -> None:
    """Refuse an overlay with functions if later ones leave none of them. One of plain values may be overridden."""
    remaining = {value.overlay for value in _functions(config).values() if isinstance(value, _Function)}
    names = list(overlays)
    for index, (name, overlay) in enumerate(overlays.items()):
        later = names[index + 1 :]
        # Where a later one has the same function in the same place, it is of that one.
        repeated = {pair for other in later for pair in _functions(overlays[other]).items()}
        if _functions(overlay).items() - repeated and name not in remaining:
            reason = f"{name}: nothing of it is left, as {' or '.join(later)} replaces it"
            raise ConfigError(reason, "Leave one of them out.")


def _check_initialize(overlays: Mapping[str, Config], config: Config) -> None:
    """Refuse an overlay that initializes a component which the final pipeline does not have."""
    pipeline = _pipeline(config)
    for name, overlay in overlays.items():
        initialize = _get(overlay, "initialize") or {}
        callbacks = (part["component"] for part in initialize.values() if "component" in (part or {}))
        for component in (*(initialize.get("components") or {}), *callbacks):
            if component not in pipeline:
                reason = f"{name}: sets [initialize] for '{component}', which the pipeline does not have"
                remedy = f"Use it with a config that has one. The pipeline is {srsly.json_dumps(pipeline)}."
                raise ConfigError(reason, remedy)


def _check_variables(overlays: Mapping[str, Config], config: Config) -> None:
    """Refuse an overlay with a variable that neither the base nor another overlay has."""
    available = {*keys(config), *keys(DEFAULT_CONFIG)}
    for name, overlay in overlays.items():
        values = [value for _, value in entries(overlay) if isinstance(value, str)]
        variables = {variable for value in values for variable in VARIABLE.findall(value)}
        missing = {variable for variable in variables if variable.partition(".")[0] != "here"} - available
        if missing:
            reason = f"{name}: needs {' and '.join(sorted(missing))}, which this config does not have"
            raise ConfigError(reason, "Use it with a config that has it, or add it to the section, as null.")


# Settings, filling, errors


def _read_setting(setting: str, config: Config) -> Config:
    """Return a setting as a config of this one key, which must exist."""
    key, sign, text = setting.partition("=")
    if not sign or "." not in key:
        remedy = "Write section.key=value, as in training.max_steps=1000."
        raise ConfigError(f"--set {setting}: not a setting", remedy)
    if key.strip() not in set(keys(config)):
        remedy = did_you_mean(key, keys(config), "Only settings of the filled config can be changed.")
        raise ConfigError(f"--set {setting}: the config has no '{key}'", remedy)
    try:
        value = srsly.json_loads(text.strip())
    except ValueError:  # a string without quotes
        value = text.strip()
    updates = Config(dot_to_dict({key.strip(): value}), is_interpolated=False)
    _check_shape(updates, f"--set {setting}")
    return updates


def _get(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, or None."""
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def fill(config: Config) -> Config:
    """Return the config with all defaults filled in, and its variables kept. Validates it: its functions must be
    registered and accept its arguments, and the pipeline's components are created once."""
    check_no_ner(config)
    filled: Config = load_model_from_config(config.copy(), auto_fill=True, validate=True).config
    filled["components"].update(get_sourced_components(config))
    _check_nothing_lost(config, filled)
    registry.resolve(filled.interpolate()["training"], schema=ConfigSchemaTraining)
    return filled


@contextmanager
def wrap_config_errors(what: str) -> Iterator[None]:
    """Turn the errors of spaCy, confection and builders about `what` into a ConfigError of one line."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{what}: {error.reason}", error.remedy) from error
    except ConfigValidationError as error:
        title = f"{error.title}: " if error.errors else ""
        raise ConfigError(f"{what}: {title}{problems(error).removesuffix('.')}", _CORRECT) from error
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise _refused(str(error), what) from error


def read_trained_config(path: Path, *, interpolate: bool = True) -> Config:
    """Read the config of a trained pipeline.

    interpolate (bool): Replace variables by their values.
    """
    config = read_config(path)
    with wrap_config_errors(str(path)):
        return config.interpolate() if interpolate else config


def _check_nothing_lost(config: Config, filled: Config) -> None:
    """Refuse unknown keys, which filling drops silently."""
    removed = {f"components.{name}" for name in config.get("components", {}) if name not in filled["components"]}
    available = set(keys(filled))
    for key in keys(config):
        if key not in available and ".".join(key.split(".")[:2]) not in removed:
            raise ConfigError(f"spaCy knows no '{key}'", did_you_mean(key, sorted(available), "Remove it."))


def _refused(text: str, what: str) -> ConfigError:
    factory = _NO_FACTORY.search(text)
    if factory:
        remedy = (
            install("torch", "transformers", "spacy-transformers") if factory["name"] == "transformer" else _OTHERWISE
        )
        return ConfigError(f"{what}: no factory '{factory['name']}' is registered", remedy)
    function = _UNREGISTERED.search(text)
    if function is None:
        return ConfigError(f"{what}: {text.removesuffix('.')}", _CORRECT)
    reason = f"there is no '{function['name']}' among the registered {function['kind']}"
    available = _AVAILABLE.search(text)
    names = available[1].split(", ") if available else []
    return ConfigError(f"{what}: {reason}", did_you_mean(function["name"], names, _OTHERWISE))
