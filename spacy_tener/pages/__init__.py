"""HTML pages in one file that need no network, with a colour for each label.

A page is page.html with style, script and data filled in, and a policy (CSP) that allows nothing else. The body, style
and script of a page called `name` are the files `name.html`, `name.css` and `name.js` of a package. page.css,
strings.js and parts.js come before them on every page, and on some found.css and found.js.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

SCRIPTS = ("strings.js", "parts.js")
"""Scripts of every page."""
FIRST_HUES = 8
"""Hues that are 45 degrees apart, of which each label prefers one."""
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Heading:
    """What stands at the top of a page. strings.js may translate it, but not its values.

    title (str): The title.
    about (str): The line below it.
    values (Mapping[str, str]): What stands in the title and the line for names in braces.
    """

    title: str
    about: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    def to_html(self) -> dict[str, str]:
        """Return the title and the line with their values."""
        return {"title": html.escape(self._filled(self.title)), "about": html.escape(self._filled(self.about))}

    def _filled(self, template: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: self.values.get(match[1], match[0]), template)


def make_page(
    package: str,
    name: str,
    heading: Heading,
    data: Mapping[str, Any],
    *,
    lang: str,
    parts: Sequence[str] = (),
    workers: bool = False,
) -> str:
    """Return a page that needs neither network nor server.

    package, name (str): Where the body, style and script of the page are, see above.
    data (Mapping[str, Any]): Values that JSON can hold; `parts.data` in the script.
    lang (str): The language of the texts, `{{lang}}` in the body.
    parts (Sequence[str]): Parts of this package that the page shares with some others, such as `found`.
    workers (bool): Whether the script may start workers, and these compute WebAssembly.
    """
    style, script = _sources(package, name, tuple(parts))
    data = {**data, "heading": asdict(heading)}
    filling = {
        **heading.to_html(),
        "lang": html.escape(lang),
        "policy": page_policy(package, name, parts=parts, workers=workers),
        "style": style,
        "script": script,
        # Escaped, so that no `</script>` in the data ends the element.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    shell = _read(__package__, "page.html").replace("{{body}}", _read(package, f"{name}.html"))
    # In one pass, so that placeholders in the data are not replaced.
    return _PLACEHOLDER.sub(lambda match: filling[match[1]], shell)


def page_policy(package: str, name: str, also: str = "", *, parts: Sequence[str] = (), workers: bool = False) -> str:
    """Return the Content-Security-Policy of a page, which allows only its own script and style.

    also (str): Further sources of both, each with a space behind it, such as "'self' ".
    parts (Sequence[str]): As for `make_page`.
    workers (bool): As for `make_page`.
    """
    style, script = (f"'sha256-{_digest(text)}'" for text in _sources(package, name, tuple(parts)))
    compute, start = (" 'wasm-unsafe-eval'", "; worker-src blob:") if workers else ("", "")
    return (
        f"default-src 'none'; style-src {also}{style}; script-src {also}{script}{compute}{start}; "
        "img-src data:; base-uri 'none'"
    )


@lru_cache
def _sources(package: str, name: str, parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the style and the script of a page, the shared ones first."""
    style, script = _read(__package__, "page.css"), "".join(_read(__package__, shared) for shared in SCRIPTS)
    for package_of_part, part in (*((__package__, part) for part in parts), (package, name)):
        style += _read(package_of_part, f"{part}.css")
        script += _read(package_of_part, f"{part}.js")
    return style, script


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode("ascii")


def _read(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf8")


def label_hues(labels: Iterable[str]) -> dict[str, float]:
    """Return the hue of each label in degrees: the one that its name prefers, or the next that no label before it has.

    A label that is added behind the others changes none of their hues. If all are taken, those halfway between follow.
    `hue` of parts.js computes the same.

    labels (Iterable[str]): All labels of a pipeline, in its order.
    """
    hues: dict[str, float] = {}
    for label in dict.fromkeys(labels):
        n = FIRST_HUES
        while not (free := [hue for hue in _preferred(label, n) if hue not in hues.values()]):
            n *= 2
        hues[label] = free[0]
    return hues


def _preferred(label: str, n: int) -> list[float]:
    """Return n hues that are as far apart as possible, that which a label prefers first."""
    number = 0
    for char in label:
        # With these numbers, few of the usual sets of labels have two that prefer the same of 8 hues.
        number = (number * 258 + ord(char)) % 65521
    return [(number + i) % n * 360 / n for i in range(n)]


def displacy_options(labels: Iterable[str]) -> dict[str, Any]:
    """Return options of `displacy.render(..., style="ent")` that give labels the colours of this package's pages.

    labels (Iterable[str]): All labels of the pipeline. displacy looks colours up by upper-case label, so that labels
        which differ only in case share the colour of the last one.
    """
    return {"colors": {label.upper(): f"hsl({hue:g}, 75%, 86%)" for label, hue in label_hues(labels).items()}}
