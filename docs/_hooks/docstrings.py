"""Let mkdocstrings read docstrings in spaCy's style: `name (type): text` and `RETURNS (type): text`."""

from __future__ import annotations

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(\w+) \((.+?)\): ")


class SpacyDocstrings(griffe.Extension):
    """Rewrite them as sections that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = google_style(obj.docstring.value)


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
