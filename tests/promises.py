"""List the public interface of 1.x: names, settings, methods, options, records and the HTTP API, one per line.

    python tests/promises.py > tests/data/promised-1.0.txt

docs/promises.md describes the interface. tests/test_promised.py compares it with the lists of earlier versions in
tests/data: lines may be added, but not removed before the next major version.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spacy
import typer

from spacy_tener.annotate.answers import AnnotateSettings, Answer
from spacy_tener.cli import tener_cli
from spacy_tener.pipeline.decoding import Decoding
from spacy_tener.pipeline.entities import FoundEntity
from spacy_tener.pipeline.entity_lists import EntityLists
from spacy_tener.pipeline.tener_ner import TenerNER
from spacy_tener.pipeline.words import LexiconEditor
from spacy_tener.serve import make_app

ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / "pyproject.toml"
# The commands with a stable interface. All other commands are provisional.
COMMANDS = ("convert", "config", "evaluate", "annotate", "serve")
# Prefixes of the stable HTTP endpoints.
ADDRESSES = ("/v1/", "/health", "/ready", "/metrics")
PROVISIONAL = {"POST /v1/explanation"}
# Registered names that are used in the configs and overlays of this directory are stable. All others are provisional.
CONFIGS = ROOT / "spacy_tener" / "training" / "configs"


# The stable methods and properties, in addition to those of spaCy's TrainablePipe.
METHODS: dict[type, tuple[str, ...]] = {
    TenerNER: (
        "decode",
        "annotate",
        "labels",
        "lexicon",
    ),
    Decoding: (
        "doc",
        "entities",
        "probabilities",
        "k_best",
        "alternatives",
        "marginals",
        "entropy",
        "likelihood",
        "allowed",
        "existing",
    ),
    LexiconEditor: ("add", "clear", "names", "read", "remove", "words"),
    EntityLists: ("add", "block", "blocked", "clear", "labels", "names", "read", "remove", "words"),
}


def promises() -> list[str]:
    """Return the sorted lines of the list."""
    return sorted({*_names(), *_python(), *_commands(), *_service(), *_records()})


def _names() -> Iterator[str]:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf8"))["project"]
    shipped = "".join(path.read_text(encoding="utf8") for path in CONFIGS.rglob("*.cfg"))
    for group, names in project["entry-points"].items():
        for name, target in names.items():
            if group not in ("spacy_factories", "spacy_cli") and f'"{name}"' not in shipped:
                continue
            yield f"{group} {name}"
            if group == "spacy_cli":  # options of commands are listed separately
                continue
            module, _, attribute = target.partition(":")
            for argument, default in _arguments(getattr(importlib.import_module(module), attribute), name):
                yield f"{name} {argument} = {default}"
    yield from (f"extra {extra}" for extra in project["optional-dependencies"])


def _arguments(function: Any, name: str) -> Iterator[tuple[str, str]]:
    parameters = inspect.signature(function).parameters
    if name in ("tener_ner", "lac", "entity_lists"):
        config = spacy.blank("zh").get_factory_meta(name).default_config or {}
        yield from ((argument, repr(config[argument])) for argument in parameters if argument in config)
        return
    for argument, parameter in parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            yield argument, _default(parameter)


def _default(parameter: inspect.Parameter) -> str:
    return "required" if parameter.default is inspect.Parameter.empty else repr(parameter.default)


def _python() -> Iterator[str]:
    for owner, names in METHODS.items():
        for name in names:
            member = inspect.getattr_static(owner, name)
            signature = _signature(member) if callable(member) else ""
            yield f"{owner.__name__}.{name}{signature}"


def _signature(function: Any) -> str:
    parameters = inspect.signature(function).parameters.values()
    shown = [f"{parameter.name}={_default(parameter)}" for parameter in parameters if parameter.name != "self"]
    return f"({', '.join(shown)})".replace("=required", "")


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(tener_cli)
    for command in COMMANDS:
        yield f"tener {command}"
        for parameter in group.get_command(None, command).params:
            if parameter.param_type_name == "argument":
                yield f"tener {command} {parameter.name.upper()}{'' if parameter.required else ' (optional)'}"
                continue
            default = "" if callable(parameter.default) else f" = {parameter.default!r}"
            for name in (*parameter.opts, *parameter.secondary_opts):
                yield f"tener {command} {name}{default}"


def _service() -> Iterator[str]:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner")
    schema = make_app({"zh": nlp}).openapi()
    parts = schema["components"]["schemas"]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            place = f"{method.upper()} {path}"
            if not path.startswith(ADDRESSES) or place in PROVISIONAL:
                continue
            for parameter in operation.get("parameters", []):
                yield f"{place} ?{parameter['name']}: {_kind(parameter['schema'])}"
            for media, body in operation.get("requestBody", {}).get("content", {}).items():
                yield from (f"{place} request {media}{line}" for line in _fields(body.get("schema", {}), parts))
            for status, response in operation["responses"].items():
                yield f"{place} {status}"
                # All errors have the same response body.
                answer = f"{place} {status}" if status < "400" else "error"
                for media, body in response.get("content", {}).items():
                    yield from (f"{answer} {media}{line}" for line in _fields(body.get("schema", {}), parts))


def _fields(schema: dict[str, Any], parts: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of a schema with their types, recursively."""
    if "$ref" in schema:
        schema = parts[schema["$ref"].rpartition("/")[2]]
    if "items" in schema:
        yield from (f"[]{line}" for line in _fields(schema["items"], parts))
    elif "properties" in schema:
        for name, field in schema["properties"].items():
            default = f" = {field['default']!r}" if "default" in field else ""
            yield from (f".{name}{line}{default}" for line in _fields(field, parts))
            if name in schema.get("required", []):
                yield f".{name} is always there"
    else:
        yield f": {_kind(schema)}"


def _kind(schema: dict[str, Any]) -> str:
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " or ".join(map(_kind, choices))
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    return str(schema.get("type") or schema.get("const") or schema.get("$ref", "anything").rpartition("/")[2])


def _records() -> Iterator[str]:
    record = Answer("a", [FoundEntity(0, 1, "A", 1.0)]).columns(AnnotateSettings(probability=True))
    yield from (f"tener annotate: {line}" for line in _keys(record))


def _keys(value: Any, place: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, field in value.items():
            yield from _keys(field, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        yield from _keys(value[0], f"{place}[]")
    else:
        yield place


if __name__ == "__main__":
    print("\n".join(promises()))
