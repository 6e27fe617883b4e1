"""A page as one file: page.html with style, script and data filled in, and a policy (CSP) that allows nothing else.

The body, style and script of a page called `name` are the files `name.html`, `name.css` and `name.js` of a package.
page.css and parts.js come before them on every page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def make_page(package: str, name: str, data: Any, *, title: str, about: str, lang: str) -> str:
    """Return a page that needs neither network nor server.

    package, name: Where the body, style and script of the page are, see above.
    data: Any value that JSON can hold; `parts.data` in the script.
    about: The line below the title.
    lang: The language of the texts, `{{lang}}` in the body.
    """
    style, script = _sources(package, name)
    parts = {
        "title": html.escape(title),
        "about": html.escape(about),
        "lang": html.escape(lang),
        "policy": page_policy(package, name),
        "style": style,
        "script": script,
        # Escaped, so that no `</script>` in the data ends the element.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    shell = _read(__package__, "page.html").replace("{{body}}", _read(package, f"{name}.html"))
    # In one pass, so that placeholders in the data are not replaced.
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], shell)


def page_policy(package: str, name: str, also: str = "") -> str:
    """Return the Content-Security-Policy of a page, which allows only its own script and style.

    also: Further sources of both, each with a space behind it, such as "'self' ".
    """
    style, script = (f"'sha256-{_digest(text)}'" for text in _sources(package, name))
    return f"default-src 'none'; style-src {also}{style}; script-src {also}{script}; img-src data:; base-uri 'none'"


@lru_cache
def _sources(package: str, name: str) -> tuple[str, str]:
    """Return the style and the script of a page, the shared ones first."""
    style = _read(__package__, "page.css") + _read(package, f"{name}.css")
    return style, _read(__package__, "parts.js") + _read(package, f"{name}.js")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode("ascii")


def _read(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf8")
