"""Architectures' arguments from the fields of a config, so that each is written once."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from ..settings import SettingError

Built = TypeVar("Built")


def expand_config(
    *, fixed: Mapping[str, Any] = MappingProxyType({}), **defaults: Any
) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Replace a function's parameter `config`, a dataclass, by the dataclass's fields.

    The signature has the fields in place of `config`, with their types and defaults, and the docstring ends with their
    descriptions: for `help()`, and for spaCy, which fills and validates configs by signatures.

    Errors about a setting begin with the registered name, which is read from the docstring.

    fixed: Values of fields that do not become arguments.
    defaults: Defaults that replace those of the dataclass. The fields that they name come in their order.
    """

    def decorate(build: Callable[..., Built]) -> Callable[..., Built]:
        hints = get_type_hints(build)
        config = hints.pop("config")
        types = get_type_hints(config)
        config_defaults = {field.name: field.default for field in dataclasses.fields(config)} | defaults
        reordered = iter(defaults)
        names = [next(reordered) if name in defaults else name for name in config_defaults if name not in fixed]
        fields = [
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=config_defaults[name], annotation=types[name])
            for name in names
        ]
        parameters: list[Parameter] = []
        for own in inspect.signature(build).parameters.values():
            replaced = own.replace(kind=Parameter.POSITIONAL_OR_KEYWORD, annotation=hints.get(own.name))
            parameters += fields if own.name == "config" else [replaced]
        signature = inspect.Signature(parameters, return_annotation=hints["return"])
        description = inspect.cleandoc(build.__doc__ or "")
        registered = re.search(r"Registered as `(\S+)`", description)
        known_as = registered[1] if registered else build.__name__

        @functools.wraps(build)
        def call(*args: Any, **kwargs: Any) -> Built:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            settings = {field.name: given.pop(field.name) for field in fields}
            try:
                return build(**given, config=config(**settings, **fixed))
            except SettingError as error:
                raise ValueError(f"{known_as}: {error}") from None

        # With `python -OO` there are no docstrings.
        described = [_entry(field, config) for field in fields] if build.__doc__ else []
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {**{part.name: part.annotation for part in parameters}, "return": hints["return"]}
        # Directly after the entries of the builder's own arguments, if it has any.
        gap = "\n" if len(parameters) > len(fields) else "\n\n"
        call.__doc__ = description + gap + "\n".join(described) + "\n"
        return call

    return decorate


def _entry(field: Parameter, config: type) -> str:
    """Convert the entry of a field in a config's docstring to an entry of a builder's docstring."""
    entries = rf"^{field.name}: (.*\n?(?: +.*\n?)*)"
    documented = (re.search(entries, inspect.cleandoc(own.__doc__ or ""), re.MULTILINE) for own in config.__mro__)
    found = next(filter(None, documented), None)
    assert found, f"{config.__name__} does not document {field.name}."
    # Python 3.13 names the module where Path is defined.
    kind = inspect.formatannotation(field.annotation).replace("pathlib._local.", "pathlib.")
    entry = f"{field.name} ({kind}): {' '.join(found[1].split())}"
    return textwrap.fill(entry, width=120, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
