"""Let mkdocstrings read docstrings in spaCy's style, `name (type): text` and `RETURNS (type): text`, and the arguments
that a decorator gives a function."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(\w+) \((.+?)\): ")


class SpacyDocstrings(griffe.Extension):
    """Rewrite them as sections that griffe knows."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Take signature and docstring from the function as it is called, where a decorator wrote them."""
        if func.parent is None or not func.parent.is_module:
            return
        called = getattr(importlib.import_module(func.module.path), func.name, None)
        if called is not None and "__signature__" in vars(called):
            signature = inspect.signature(called)
            func.parameters = griffe.Parameters(*map(_parameter, signature.parameters.values()))
            func.docstring = griffe.Docstring(google_style(inspect.getdoc(called) or ""), parent=func)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = google_style(obj.docstring.value)


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    annotation = re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(parameter.annotation))
    default = None if parameter.default is inspect.Parameter.empty else repr(parameter.default)
    kind = griffe.ParameterKind.positional_or_keyword
    return griffe.Parameter(parameter.name, annotation=annotation, kind=kind, default=default)


def google_style(docstring: str) -> str:
    """The same docstring with its arguments under `Args:` and what it returns under `Returns:`."""
    lines: list[str] = []
    section = ""
    for line in docstring.splitlines():
        found = ARGUMENT.match(line)
        wanted = "" if found is None else "Returns:" if found[1] == "RETURNS" else "Args:"
        if found is None and section and line.startswith("    "):
            lines.append(f"    {line}")
            continue
        if wanted != section and wanted:
            lines.extend(["", wanted])
        section = wanted or (section if not line.strip() else "")
        if wanted == "Returns:" and found is not None:
            line = f"{found[2]}: {line[found.end() :]}"
        lines.append(f"    {line}" if wanted else line)
    return "\n".join(lines)
