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
from inspect import signature
from pathlib import Path
from typing import Any

import srsly
from confection import ConfigValidationError
from spacy.language import DEFAULT_CONFIG
from spacy.schemas import ConfigSchemaTraining
from spacy.util import dot_to_dict, get_sourced_components, load_model_from_config, registry
from thinc.api import Config

from ...errors import install
from .files import (
    BASES,
    OVERLAYS,
    ConfigError,
    did_you_mean,
    entries,
    find_base,
    find_overlay,
    keys,
    names_in,
    problems,
    read_config,
)

CONFIG = "config.cfg"
"""The file of a pipeline's config in its directory."""
TOK2VEC = "components.tener_ner.model.tok2vec.@architectures"
VARIABLE = re.compile(r"\$\{([^{}]+)\}")
COMPONENT = re.compile(r"\$\{(?P<key>components\.(?P<name>[^{}.]+)\.[^{}]+)\}")
HERE = re.compile(r"\$\{here(?:\.(?P<part>[^{}]+))?\}")
SECTIONS = ("paths", "system", "nlp", "components", "corpora", "training", "pretraining", "initialize")

_UNREGISTERED = re.compile(r"Could not find function '(?P<name>[^']+)' in function registry '(?P<kind>[^']+)'")
_AVAILABLE = re.compile(r"Available names: (.*)")
_OTHERWISE = "Correct its name, or install the package that has it."
_CORRECT = "Correct or remove the value."
_NO_FACTORY = re.compile(r"Can't find factory for '(?P<name>[^']+)'")


def compose(base: Path | str, overlays: Sequence[Path | str] = (), settings: Sequence[str] = ()) -> Config:
    """Merge overlays into a config, in order, then single settings; fill and validate the result.

    It keeps its variables, as `${paths.train}`.

    base, overlays: Paths, or names of configs of the package: `weibo`, `flat-atssa`. The overlay `tener` changes
        nothing.
    settings: Each as `section.key=value`, with the value as in a config; a string needs no quotes. The filled config of
        all files must have the key.
    """
    if repeated := [str(name) for name, count in Counter(map(str, overlays)).items() if count > 1]:
        raise ConfigError(f"Overlays named twice: {', '.join(repeated)}", "Name each once.")
    config = read_config(find_base(base))
    read = {str(path): read_config(find_overlay(path)) for path in overlays}
    for name, overlay in read.items():
        _check_shape(overlay, name)
        _check_overlay(overlay, config, name)
        _check_values(overlay, config, name)
        _check_system(overlay, config, name)
        config = _merge(*_fill_here(config, overlay, name))
    _check_replaced(read, config)
    _check_initialize(read, config)
    _check_variables(read, config)
    with wrap_config_errors(" + ".join(map(str, [base, *overlays]))):
        config = fill(config)
    return with_settings(config, settings)


def with_settings(config: Config, settings: Sequence[str], what: str = "--set") -> Config:
    """Merge single settings into a filled config, as `compose` does; fill and validate the result.

    what: The name of the settings in messages.
    """
    for setting in settings:
        updates = _read_setting(setting, config, what)
        config = _merge(config, updates)
        if "@" in setting.partition("=")[0]:
            # Fill in the settings of the new function, which the next setting may change.
            with wrap_config_errors(f"{what} {setting}"):
                config = fill(config)
    if settings:
        with wrap_config_errors(f"{what} {' '.join(settings)}"):
            config = fill(config)
    return config


def _merge(config: Config, updates: Config) -> Config:
    """Return the config with the updates merged in."""
    kept = _without_replaced_components(config, updates)
    return Config(_ordered(kept.merge(updates), kept), is_interpolated=False, section_order=kept.section_order)


def _ordered(config: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with its keys in the order of `like`, and other keys after them."""
    ordered = {key: config[key] for key in (*(key for key in like if key in config), *config)}
    for key, value in ordered.items():
        if isinstance(value, Mapping) and isinstance(like.get(key), Mapping):
            ordered[key] = _ordered(value, like[key])
    return ordered


def _without_replaced_components(config: Config, updates: Config) -> Config:
    """Return the config without the components that the updates give another factory, whose settings differ."""
    kept = config.copy()
    for name, component in updates.get("components", {}).items():
        origin = _origin(component)
        if origin and origin != _origin(kept["components"].get(name, {})):
            kept["components"].pop(name, None)
    return kept


def _origin(component: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a component's factory, or the pipeline that it is sourced from."""
    return next(((key, component[key]) for key in ("factory", "source") if key in component), None)


def _check_shape(updates: Config, name: str) -> None:
    """Refuse a value where a component's section is needed, and a pipeline that is not a list."""
    for key in ("components", "initialize.components"):
        section = _get(updates, key) or {}
        if not isinstance(section, Mapping) or not all(isinstance(each, Mapping) for each in section.values()):
            remedy = "Write a section. To remove a component, leave it out of nlp.pipeline."
            raise ConfigError(f"{name}: [{key}] has a value where a section is needed", remedy)
    if not isinstance(_get(updates, "nlp.pipeline") or [], list):
        raise ConfigError(f"{name}: nlp.pipeline is not a list", 'Write names as in ["tener_ner"].')


def _check_overlay(overlay: Config, config: Config, name: str) -> None:
    """Refuse sections and components that the base does not have and the overlay does not define."""
    for section in overlay:
        if section not in SECTIONS and section not in config:
            sections = ", ".join(dict.fromkeys([*config, *SECTIONS]))
            raise ConfigError(f"{name}: the config has no section [{section}]", f"Use one of: {sections}.")
    components = config.get("components", {})
    pipeline = overlay.get("nlp", {}).get("pipeline", config.get("nlp", {}).get("pipeline", []))
    for component, settings in overlay.get("components", {}).items():
        if component not in components and _origin(settings) is None:
            remedy = f"It has: {', '.join(components) or 'none'}. A new component needs a `factory`."
            raise ConfigError(f"{name}: the config has no component '{component}'", remedy)
        if component not in pipeline:
            remedy = f"The pipeline is {srsly.json_dumps(pipeline)}."
            raise ConfigError(f"{name}: the component '{component}' is not named in nlp.pipeline", remedy)


def _check_replaced(overlays: Mapping[str, Config], config: Config) -> None:
    """Refuse an overlay with functions if later ones leave nothing of it. One of plain values may be overridden."""
    left, names = _values(config), list(overlays)
    for place, (name, overlay) in enumerate(overlays.items()):
        later = names[place + 1 :]
        # Two overlays may wrap by the same function: it is of the later one then.
        own = _values(overlay).difference(*(_values(overlays[other]) for other in later))
        has_function = any(not key for key, _ in own)
        if has_function and own.isdisjoint(left):
            reason = f"{name}: nothing of it is left, as {' or '.join(later)} replaces it"
            raise ConfigError(reason, f"Put {name} last, or leave it out.")


def _values(config: Config) -> set[tuple[str, str]]:
    """Return the values of a config that are no variables, with their names but for paths; of functions, the values
    alone, which stay when a later overlay wraps them."""
    rows = ((key, srsly.json_dumps(value)) for key, value in entries(config) if not isinstance(value, Mapping))
    return {
        ("" if "@" in key else key, value) for key, value in rows if not ("${" in value or key.startswith("paths."))
    }


def _check_initialize(overlays: Mapping[str, Config], config: Config) -> None:
    """Refuse an overlay that initializes a component which the final pipeline does not have."""
    pipeline = _get(config, "nlp.pipeline") or []
    for name, overlay in overlays.items():
        for component in _get(overlay, "initialize.components") or {}:
            if component not in pipeline:
                reason = f"{name}: sets [initialize.components.{component}], but the pipeline has no '{component}'"
                raise ConfigError(
                    reason, f"Use it with a config that has one. The pipeline is {srsly.json_dumps(pipeline)}."
                )


def _check_values(overlay: Config, config: Config, name: str) -> None:
    """Refuse a section in place of a plain value, such as `max_rate` of a learning rate without a schedule."""
    for key, section in entries(overlay):
        value = _get(config, key)
        if not isinstance(section, Mapping) or value is None or isinstance(value, Mapping):
            continue
        if not any(own.startswith("@") for own in section):
            bases = [each for each in names_in(BASES) if isinstance(_get(read_config(find_base(each)), key), Mapping)]
            reason = f"{name}: sets '{', '.join(section)}' in [{key}], which is the value {value} here"
            raise ConfigError(reason, f"Use it with one of: {', '.join(bases)}." if bases else "Name a function there.")


def _check_system(overlay: Config, config: Config, name: str) -> None:
    """Refuse an overlay on an architecture that lacks its arguments, and name one that has them."""
    section, function = TOK2VEC.rpartition(".")[0], _get(config, TOK2VEC)
    wanted = {key for key in _get(overlay, section) or {} if not key.startswith("@")}
    if _get(overlay, TOK2VEC) or function is None or wanted <= _arguments(function):
        return
    others = {other: _get(read_config(find_overlay(other)), TOK2VEC) for other in names_in(OVERLAYS)}
    fitting = [other for other, has in others.items() if has and wanted <= _arguments(has)]
    if fitting:
        lacking = " and ".join(f"'{key}'" for key in sorted(wanted - _arguments(function)))
        remedy = f"Put it after {' or '.join(fitting)}."
        raise ConfigError(f"{name}: sets {lacking}, which {function} does not have", remedy)


def _arguments(function: str) -> set[str]:
    """Return the arguments of a registered architecture; nothing if there is none of this name."""
    known = registry.has("architectures", function)
    return set(signature(registry.get("architectures", function)).parameters) if known else set()


def _check_variables(overlays: Mapping[str, Config], config: Config) -> None:
    """Refuse an overlay with a variable that neither the base nor another overlay has, and name what fits instead."""
    there = {*keys(config), *keys(DEFAULT_CONFIG)}
    for name, overlay in overlays.items():
        lacking = _variables(overlay) - there
        if not lacking:
            continue
        bases = [each for each in names_in(BASES) if lacking <= {*keys(read_config(find_base(each)))}]
        remedy = f"Use it with {' or '.join(bases)}." if bases else "Add it to the section, as null."
        for other in names_in(OVERLAYS):
            found, wanted = (_get(each, TOK2VEC) for each in (read_config(find_overlay(other)), overlay))
            if found and found == wanted and _variables(read_config(find_overlay(other))) <= there:
                remedy += f" Here, `{other}` fits."
        reason = f"{name}: needs {' and '.join(sorted(lacking))}, which this config does not have"
        raise ConfigError(reason, remedy)


def _variables(config: Config) -> set[str]:
    """Return the names of the variables in a config, as `paths.train` in `${paths.train}`."""
    names = {name for _, value in entries(config) if isinstance(value, str) for name in VARIABLE.findall(value)}
    return {name for name in names if name.partition(".")[0] != "here"}


def _fill_here(config: Config, overlay: Config, name: str) -> tuple[Config, Config]:
    """Return the config without the sections that `${here}` refers to, and the overlay with them filled in, and with
    the sections of components that it removes."""
    rest, filled = config.copy(), overlay.copy()
    before = _get(config, "nlp.pipeline") or []
    after = _get(overlay, "nlp.pipeline") or before
    for key, value in entries(overlay):
        section, _, last = key.rpartition(".")
        given = COMPONENT.fullmatch(value) if isinstance(value, str) else None
        if given and given["name"] not in after:
            part = _get(config, given["key"]) if given["name"] in before else None
            if part is None:
                remedy = f"Lay it on a config that has one. The pipeline is {srsly.json_dumps(before)}."
                raise ConfigError(f"{name}: the config has no [{given['key']}]", remedy)
            if others := set(before) - {*after, given["name"]}:
                remedy = f"Name them in nlp.pipeline of a copy of {name}, or lay it on a config without them."
                raise ConfigError(f"{name}: removes {', '.join(sorted(others))}", remedy)
            _get(filled, section)[last] = deepcopy(part)
            if _get(config, "pretraining.component") == given["name"]:
                rest["pretraining"]["component"] = section.split(".")[1]
        asked = HERE.fullmatch(value) if isinstance(value, str) else None
        if asked is None:
            continue
        place = _standing_place(config, overlay, section)
        standing = _get(config, f"{place}.{asked['part']}" if asked["part"] else place)
        if standing is None:
            raise ConfigError(f"{name}: the config has no [{section}] for {value}", "Use it with a config that has it.")
        _get(filled, section)[last] = deepcopy(standing)
        if not asked["part"]:
            _get(rest, place).clear()
    return rest, filled


def _standing_place(config: Config, overlay: Config, section: str) -> str:
    """Return the section or, if the config lacks it, the one above it whose function the overlay replaces."""
    place = section
    while place and _get(config, place) is None:
        place = place.rpartition(".")[0]
    replaced = _get(overlay, place) if place else None
    return place if isinstance(replaced, Mapping) and any(key.startswith("@") for key in replaced) else section


def _read_setting(setting: str, config: Config, what: str) -> Config:
    """Return a setting as a config of this one key, which must exist."""
    key, sign, text = setting.partition("=")
    if not sign or "." not in key:
        remedy = "Write section.key=value, as in training.max_steps=1000."
        raise ConfigError(f"{what} {setting}: not a setting", remedy)
    if key.strip() not in set(keys(config)):
        remedy = did_you_mean(key, keys(config), "Only settings of the filled config can be changed.")
        raise ConfigError(f"{what} {setting}: the config has no '{key}'", remedy)
    try:
        value = srsly.json_loads(text.strip())
    except ValueError:  # a string without quotes
        value = text.strip()
    updates = Config(dot_to_dict({key.strip(): value}), is_interpolated=False)
    _check_shape(updates, f"{what} {setting}")
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
    except (ValueError, ImportError, OSError) as error:
        raise _refused(str(error), what) from error


def read_trained_config(path: Path, *, interpolate: bool = True) -> Config:
    """Read the config of a trained pipeline.

    interpolate: Replace variables by their values.
    """
    config = read_config(path)
    with wrap_config_errors(str(path)):
        return config.interpolate() if interpolate else config


def _check_nothing_lost(config: Config, filled: Config) -> None:
    """Refuse unknown keys, which filling drops silently."""
    out = {f"components.{name}" for name in config.get("components", {}) if name not in filled["components"]}
    there = set(keys(filled))
    for key in keys(config):
        if key not in there and ".".join(key.split(".")[:2]) not in out:
            raise ConfigError(f"spaCy knows no '{key}'", did_you_mean(key, sorted(there), "Remove it."))


def _refused(text: str, what: str) -> ConfigError:
    if factory := _NO_FACTORY.search(text):
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
