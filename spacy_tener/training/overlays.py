"""Compose a training config from a corpus config, overlays and single settings.

An overlay is a partial config. Overlays are merged into the corpus config in the given order, according to these rules:

* Sections are merged key by key, and the overlay takes precedence.
* If the overlay changes a section's registered function (for example `@architectures`) or a component's `factory`, the
  whole section is replaced, including its subsections.
* An overlay can't delete keys. To disable a setting, set it to `null`. To remove a component, omit it in
  `nlp.pipeline`.
* Headers of empty parent sections are optional.

An overlay that replaces a section can refer to the original section as `${here}`, and to its values as
`${here.learn_rate}`. For example, this overlay wraps the config's optimizer:

    [training.optimizer]
    @optimizers = "my.LookAhead.v1"
    inner = ${here}

An overlay that removes a component from the pipeline can move the component's sections to another component. For
example, `${components.tener_ner.model.tok2vec}` is replaced by the section from the removed `tener_ner`.
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

from ..errors import MissingPackageError, UserError, install, reason_of
from .config_files import (
    ConfigError,
    check_no_ner,
    check_renamed,
    did_you_mean,
    entries,
    find_base,
    find_overlay,
    keys,
    problems,
    read_config,
    renamed_argument,
)

# File name of the config in a pipeline directory.
CONFIG = "config.cfg"
VARIABLE = re.compile(r"\$\{([^{}]+)\}")
COMPONENT = re.compile(r"\$\{(?P<key>components\.(?P<name>[^{}.]+)\.[^{}]+)\}")
HERE = re.compile(r"\$\{here(?:\.(?P<part>[^{}]+))?\}")
# For at most this number of overlays, `_suggest_fix` tries all permutations. Each permutation takes about 0.3 s.
_MAX_PERMUTED = 3
SECTIONS = ("paths", "system", "nlp", "components", "corpora", "training", "pretraining", "initialize")

# Registered functions whose data covers a single language: the language, and what the function provides.
_LANGUAGES = {
    "spacy_tener.GloVe.v1": ("en", "the vectors of English words"),
    "spacy_tener.LacEncoder.v1": ("zh", "an encoder for Chinese"),
    "spacy_tener.JiebaLexicon.v1": ("zh", "a dictionary of Chinese words"),
    "spacy_tener.HanziChaizi.v1": ("zh", "the radicals of Chinese characters"),
    "spacy_tener.SegmentEmbed.v1": ("zh", "a segmenter for Chinese"),
}

_UNKNOWN_FUNCTION = re.compile(r"Could not find function '(?P<name>[^']+)' in function registry '(?P<kind>[^']+)'")
_AVAILABLE = re.compile(r"Available names: (.*)")
_INSTALL_FUNCTION = "Correct the name, or install the package that provides it."
_CORRECT_VALUE = "Correct or remove the value."
_UNKNOWN_FACTORY = re.compile(r"Can't find factory for '(?P<name>[^']+)'")


def compose(base: Path | str, overlays: Sequence[Path | str] = (), settings: Sequence[str] = ()) -> Config:
    """Merge overlays and single settings into a corpus config, fill in defaults and validate the result.

    Variables such as `${paths.train}` are not interpolated. Raises a ConfigError that names the invalid overlay or
    setting.

    base (Path | str): Path to a corpus config, or the name of a config in this package, such as `weibo`.
    overlays (Sequence[Path | str]): Paths or names of overlays, such as `flat-atssa`. They are applied in this order.
    settings (Sequence[str]): Settings in the form `section.key=value`. Values are written as in a config, but strings
        don't need quotes. Dictionaries are replaced, not merged. The key must exist in the filled config.
    RETURNS (Config): The filled config.
    """
    repeated = [str(name) for name, count in Counter(map(str, overlays)).items() if count > 1]
    if repeated:
        raise ConfigError(f"Overlays given twice: {', '.join(repeated)}", "Remove the duplicates.")
    read = {str(path): read_config(find_overlay(path)) for path in overlays}
    config = read_config(find_base(base))
    try:
        config = _apply_overlays(config, read, base)
    except ConfigError as error:
        fix = _suggest_fix(config, read) if 1 < len(overlays) <= _MAX_PERMUTED else ""
        raise ConfigError(error.reason, fix or error.fix) from error
    return with_settings(config, settings)


def unfit_languages(config: Config) -> list[str]:
    """Return a message for each registered function in a config that is for another language than `nlp.lang`."""
    lang = config["nlp"]["lang"]
    return [
        f"[{key.rpartition('.')[0]}] is {what} ({function}), but nlp.lang is {lang}"
        for key, function in _functions(config).items()
        if function in _LANGUAGES
        for language, what in [_LANGUAGES[function]]
        if language != lang
    ]


def _apply_overlays(config: Config, overlays: Mapping[str, Config], base: Path | str = "") -> Config:
    """Apply overlays to a config. Check, fill and return the result.

    overlays (Mapping[str, Config]): Overlays by name.
    base (Path | str): The config's name, for error messages.
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


def _suggest_fix(config: Config, overlays: Mapping[str, Config]) -> str:
    """Find out how to fix an invalid combination of overlays. Try to reorder the overlays, and to remove each one.

    RETURNS (str): A suggestion for the error message. Empty if no fix was found.
    """

    def works(*chosen: str) -> bool:
        try:
            composed = _apply_overlays(config, {name: overlays[name] for name in chosen})
        except ConfigError:
            return False
        # Don't suggest an order in which another overlay overrides an invalid value. This would hide the error.
        return not any(_lost_values(composed, overlays[name]) for name in chosen)

    for order in islice(permutations(overlays), 1, None):
        if works(*order):
            return f"Use them in the order {' '.join(order)}."
    without = [name for name in overlays if works(*(other for other in overlays if other != name))]
    return f"These overlays cannot be combined in any order. Remove {' or '.join(without)}." if without else ""


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """Merge single settings into a filled config. Fill in new defaults and validate the result.

    settings (Sequence[str]): Settings in the form `section.key=value`, see `compose`.
    """
    for setting in settings:
        key, updates = setting.partition("=")[0].strip(), _read_setting(setting, config)
        if isinstance(_get(updates, key), Mapping):
            # Replace dictionaries instead of merging them, because merging keeps the order of existing keys. The order
            # may matter: an optimizer applies the first entry of `rates` that matches a parameter.
            section, _, last = key.rpartition(".")
            config = config.copy()
            _get(config, section).pop(last)
        config = _merge(config, updates)
        if "@" in key:
            # The setting selects another function. Fill in its default arguments now, so that the next settings can
            # override them.
            with wrap_config_errors(f"--set {setting}"):
                config = fill(config)
    if settings:
        with wrap_config_errors(f"--set {' '.join(settings)}"):
            config = fill(config)
    return config


def _merge(config: Config, updates: Config) -> Config:
    """Merge an overlay into a config. A component is replaced instead of merged if its factory or source changes."""
    rest = config.copy()
    for name, component in updates.get("components", {}).items():
        origin = _origin(component)
        if origin and origin != _origin(rest["components"].get(name, {})):
            rest["components"].pop(name, None)
    merged = _order_like(rest.merge(updates), rest)
    return Config(merged, is_interpolated=False, section_order=rest.section_order)


def _order_like(config: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Sort a config's keys in the order of a template. Keys that the template doesn't contain come last.

    model (Mapping[str, Any]): The template.
    """
    ordered = {key: config[key] for key in (*(key for key in model if key in config), *config)}
    for key, value in ordered.items():
        if isinstance(value, Mapping) and isinstance(model.get(key), Mapping):
            ordered[key] = _order_like(value, model[key])
    return ordered


def _origin(component: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a component's factory or source, as a (key, value) pair. Return None if the section specifies neither."""
    return next(((key, component[key]) for key in ("factory", "source") if key in component), None)


# --- References in overlays


def _fill_references(config: Config, overlay: Config, name: str) -> tuple[Config, Config]:
    """Resolve the references in an overlay: `${here}`, and sections from removed components.

    name (str): The overlay's name, for error messages.
    RETURNS (tuple[Config, Config]): The config without the sections that the overlay replaces, and the resolved
        overlay.
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
                reason = f"{name}: uses {value} in [{section}], but the config does not have this section"
                raise ConfigError(reason, "Use the overlay with a config that has this section.")
            _get(filled, section)[last] = deepcopy(part)
            if not reference["part"]:
                _get(rest, replaced).clear()
        elif (reference := COMPONENT.fullmatch(value)) and reference["name"] not in _pipeline(overlay, config):
            _get(filled, section)[last] = deepcopy(_part_of_removed(reference, config, overlay, name))
            if _get(config, "pretraining.component") == reference["name"]:
                rest["pretraining"]["component"] = section.split(".")[1]
    return rest, filled


def _replaced_section(config: Config, overlay: Config, section: str) -> str:
    """Return the name of the section that `${here}` refers to.

    This is usually the section with the same name in the config. If there is no such section, use the closest parent
    section in the config, but only if the overlay replaces the parent's function.
    """
    above = section
    while above and _get(config, above) is None:
        above = above.rpartition(".")[0]
    replacement = _get(overlay, above) if above else None
    is_replaced = isinstance(replacement, Mapping) and any(key.startswith("@") for key in replacement)
    return above if is_replaced else section


def _part_of_removed(reference: re.Match[str], config: Config, overlay: Config, name: str) -> Any:
    """Return the section that an overlay moves from a removed component to another component.

    Raises a ConfigError if the section doesn't exist, or if the overlay would remove additional components. The latter
    happens if the config has components that the overlay's author did not expect.
    """
    pipeline = _pipeline(config)
    part = _get(config, reference["key"]) if reference["name"] in pipeline else None
    if part is None:
        reason = (
            f"{name}: requires the section [{reference['key']}] of a component in nlp.pipeline, which the config does "
            "not have"
        )
        fix = f"Use the overlay with a config that has this section. {_describe_pipeline(pipeline)}"
        raise ConfigError(reason, fix)
    removed = set(pipeline) - {*_pipeline(overlay, config), reference["name"]}
    if removed:
        fix = f"Add them to nlp.pipeline in a copy of {name}, or apply {name} to a config without them."
        raise ConfigError(f"{name}: removes the components {', '.join(sorted(removed))}", fix)
    return part


def _pipeline(*configs: Config) -> list[str]:
    """Return `nlp.pipeline` from the first config that contains it."""
    return next(filter(None, (_get(config, "nlp.pipeline") for config in configs)), [])


def _describe_pipeline(names: list[str]) -> str:
    """Return a sentence with the component names in `nlp.pipeline`, for error messages."""
    return f"The components in nlp.pipeline are {srsly.json_dumps(names)}."


# --- Validation of overlays


def _check_shape(updates: Config, name: str) -> None:
    """Raise a ConfigError if a component is not a section, or if `nlp.pipeline` is not a list."""
    for key in ("components", "initialize.components"):
        section = _get(updates, key) or {}
        if not isinstance(section, Mapping) or not all(isinstance(part, Mapping) for part in section.values()):
            fix = "Use a section. To remove a component, remove its name from nlp.pipeline."
            raise ConfigError(f"{name}: [{key}] has a value where a section is needed", fix)
    if not isinstance(_pipeline(updates), list):
        raise ConfigError(f"{name}: nlp.pipeline is not a list", 'Use a list of names such as ["tener_ner"].')


def _check_sections(overlay: Config, config: Config, name: str) -> None:
    """Raise a ConfigError if the overlay changes sections or components that don't exist, or components outside the
    pipeline.

    Overlays may add spaCy's standard sections, and components with a factory or a source.
    """
    for section in overlay:
        if section not in SECTIONS and section not in config:
            sections = ", ".join(dict.fromkeys([*config, *SECTIONS]))
            raise ConfigError(f"{name}: the config has no section [{section}]", f"Use one of: {sections}.")
    components, pipeline = config.get("components", {}), _pipeline(overlay, config)
    for component, settings in overlay.get("components", {}).items():
        if component not in components and _origin(settings) is None:
            fix = f"Its components are: {', '.join(components) or 'none'}. A new component needs a `factory`."
            raise ConfigError(f"{name}: the config has no component '{component}'", fix)
        if component not in pipeline:
            fix = f"Add the component to nlp.pipeline in the overlay. {_describe_pipeline(pipeline)}"
            raise ConfigError(f"{name}: the component '{component}' is not in nlp.pipeline", fix)
    for key, section in entries(overlay):
        value = _get(config, key)
        if not isinstance(section, Mapping) or value is None or isinstance(value, Mapping):
            continue
        # The config has a plain value where the overlay has a section. For example, the overlay sets `max_rate` in
        # `training.optimizer.learn_rate`, but the learning rate is a constant.
        if not any(setting.startswith("@") for setting in section):
            reason = (
                f"{name}: sets '{', '.join(section)}' in [{key}], but in the config, {key} is not a section and has "
                f"the value {value}"
            )
            fix = (
                "In the overlay, add a registered function to the section, with a key that begins with @. Or use a "
                "config that has this section."
            )
            raise ConfigError(reason, fix)


class _Function(str):
    """A registered function's name, with the name of the overlay that set it.

    This string subclass is preserved when overlays are merged. `_check_replaced` uses it to detect overlays without
    effect.
    """

    overlay: str


def _functions(config: Config) -> dict[str, str]:
    """Return the registered functions in a config by dotted key, such as `training.optimizer.@optimizers`."""
    return {key: value for key, value in entries(config) if key.rpartition(".")[2].startswith("@")}


def _mark_functions(overlay: Config, name: str) -> Config:
    """Return a copy of an overlay in which all function names are `_Function` strings.

    name (str): The overlay's name.
    """
    marked = overlay.copy()
    for key, value in _functions(overlay).items():
        section, _, last = key.rpartition(".")
        function = _get(marked, section)[last] = _Function(value)
        function.overlay = name
    return marked


def _check_replaced(overlays: Mapping[str, Config], config: Config) -> None:
    """Raise a ConfigError if an overlay has no effect, because later overlays replace all its functions, or the section
    with its values.

    Overlays without functions only change values. These values may be overridden.
    """
    remaining = {value.overlay for value in _functions(config).values() if isinstance(value, _Function)}
    names = list(overlays)
    for index, (name, overlay) in enumerate(overlays.items()):
        later = names[index + 1 :]
        # If two overlays set the same function, the merged config only contains the later overlay's name. The earlier
        # overlay is not reported in this case.
        repeated = {pair for other in later for pair in _functions(overlays[other]).items()}
        if _functions(overlay).items() - repeated and name not in remaining:
            reason = f"{name}: has no effect, since {' or '.join(later)} replaces it"
            raise ConfigError(reason, "Use only one of them.")
        # The last overlay can't be replaced by another one.
        overridden = {key for other in later for key in keys(overlays[other])}
        lost = [key for key in _lost_values(config, overlay) if key not in overridden] if later else []
        if lost:
            reason = f"{name}: {lost[0]} has no effect, since {' or '.join(later)} replaces its section"
            raise ConfigError(reason, f"Use {name} after {' and '.join(later)}.")


def _lost_values(config: Config, overlay: Config) -> list[str]:
    """Return the keys of an overlay whose values are not in the composed config.

    Overlays with functions are not compared: they may replace or move sections.
    """
    if _functions(overlay):
        return []
    # Another overlay may have moved a section, so only compare the last parts of the keys.
    found = [(key.rpartition(".")[2], value) for key, value in entries(config)]
    values = [(key, value) for key, value in entries(overlay) if not isinstance(value, Mapping)]
    return [key for key, value in values if (key.rpartition(".")[2], value) not in found]


def _check_initialize(overlays: Mapping[str, Config], config: Config) -> None:
    """Raise a ConfigError if an overlay initializes a component that is not in the pipeline."""
    pipeline = _pipeline(config)
    for name, overlay in overlays.items():
        initialize = _get(overlay, "initialize") or {}
        callbacks = (part["component"] for part in initialize.values() if "component" in (part or {}))
        for component in (*(initialize.get("components") or {}), *callbacks):
            if component not in pipeline:
                reason = f"{name}: sets [initialize] for '{component}', which the pipeline does not have"
                fix = f"Use the overlay with a config that has this component. {_describe_pipeline(pipeline)}"
                raise ConfigError(reason, fix)


def _check_variables(overlays: Mapping[str, Config], config: Config) -> None:
    """Raise a ConfigError if an overlay uses a variable that is not defined."""
    available = {*keys(config), *keys(DEFAULT_CONFIG)}
    for name, overlay in overlays.items():
        values = [value for _, value in entries(overlay) if isinstance(value, str)]
        variables = {variable for value in values for variable in VARIABLE.findall(value)}
        missing = {variable for variable in variables if variable.partition(".")[0] != "here"} - available
        if missing:
            reason = f"{name}: needs {' and '.join(sorted(missing))}, which this config does not have"
            raise ConfigError(reason, "Use a config with this setting, or add the setting with the value null.")


# --- Settings, defaults and error messages


def _read_setting(setting: str, config: Config) -> Config:
    """Parse a setting in the form `section.key=value`. Raises a ConfigError if the config doesn't have the key.

    RETURNS (Config): A config that contains only this setting.
    """
    key, sign, text = setting.partition("=")
    if not sign or "." not in key:
        fix = "Use section.key=value, for example training.max_steps=1000."
        raise ConfigError(f"--set {setting}: not a setting", fix)
    section, _, last = key.strip().rpartition(".")
    values = _get(config, section)
    new = renamed_argument(values, last) if isinstance(values, Mapping) else ""
    if new:
        raise ConfigError(f"--set {setting}: the argument '{last}' was renamed", f"Use {section}.{new}.")
    if key.strip() not in set(keys(config)):
        fix = did_you_mean(key, keys(config), "Only settings of the filled config can be changed.")
        raise ConfigError(f"--set {setting}: the config has no '{key}'", fix)
    try:
        value = srsly.json_loads(text.strip())
    # Not valid JSON, so the value is a string without quotes.
    except ValueError:
        value = text.strip()
    updates = Config(dot_to_dict({key.strip(): value}), is_interpolated=False)
    _check_shape(updates, f"--set {setting}")
    return updates


def _get(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, or None if the key doesn't exist."""
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def fill(config: Config) -> Config:
    """Fill in the defaults for all registered functions, and validate the config. Variables are not interpolated.

    The components are created once for validation, so this function takes about as long as loading the pipeline.
    """
    if "nlp" not in config:
        fix = "Start with a complete config: one of this package, such as `weibo`, or a config file of your own."
        raise ConfigError("The config has no section [nlp]", fix)
    check_no_ner(config)
    check_renamed(config)
    filled: Config = load_model_from_config(config.copy(), auto_fill=True, validate=True).config
    filled["components"].update(get_sourced_components(config))
    _check_unknown_keys(config, filled)
    registry.resolve(filled.interpolate()["training"], schema=ConfigSchemaTraining)
    return filled


@contextmanager
def wrap_config_errors(what: str) -> Iterator[None]:
    """Convert exceptions from spaCy, confection and registered functions to a ConfigError with a one-line message.

    what (str): Description of the config for the message.
    """
    try:
        yield
    except ConfigValidationError as error:
        title = f"{error.title}: " if error.errors else ""
        raise ConfigError(f"{what}: {title}{problems(error).removesuffix('.')}", _CORRECT_VALUE) from error
    except (UserError, MissingPackageError) as error:
        raise ConfigError(f"{what}: {reason_of(error)}", error.fix) from error
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise _explain_error(str(error), what) from error


def read_trained_config(path: Path, *, interpolate: bool = True) -> Config:
    """Read a trained pipeline's config.

    path (Path): The path to the pipeline's `config.cfg`.
    interpolate (bool): Replace variables with their values.
    """
    config = read_config(path)
    with wrap_config_errors(str(path)):
        return config.interpolate() if interpolate else config


def _check_unknown_keys(config: Config, filled: Config) -> None:
    """Raise a ConfigError if the config has unknown keys. When spaCy fills a config, it silently removes such keys.

    config (Config): The config before filling.
    filled (Config): The filled config.
    """
    removed = {f"components.{name}" for name in config.get("components", {}) if name not in filled["components"]}
    available = set(keys(filled))
    for key in keys(config):
        if key not in available and ".".join(key.split(".")[:2]) not in removed:
            raise ConfigError(
                f"spaCy has no setting '{key}'", did_you_mean(key, sorted(available), "Remove the setting.")
            )


def _explain_error(text: str, what: str) -> ConfigError:
    """Convert a spaCy error message to a ConfigError. Suggest a fix for unknown factories and functions.

    text (str): The error message.
    what (str): Description of the config for the message.
    """
    factory = _UNKNOWN_FACTORY.search(text)
    if factory:
        fix = (
            install("torch", "transformers", "spacy-transformers")
            if factory["name"] == "transformer"
            else _INSTALL_FUNCTION
        )
        return ConfigError(f"{what}: no factory '{factory['name']}' is registered", fix)
    function = _UNKNOWN_FUNCTION.search(text)
    if function is None:
        return ConfigError(f"{what}: {text.removesuffix('.')}", _CORRECT_VALUE)
    reason = f"there is no '{function['name']}' among the registered {function['kind']}"
    available = _AVAILABLE.search(text)
    names = available[1].split(", ") if available else []
    return ConfigError(f"{what}: {reason}", did_you_mean(function["name"], names, _INSTALL_FUNCTION))
