"""HTML pages that consist of one file, work without a network, and have a consistent colour for each label.

    html = make_page("spacy_tener.review", "review", Heading("Review"), {"texts": [...]}, lang="zh")

The body, style and script of the page are `review.html`, `review.css` and `review.js` in the package. They are inserted
into `page.html`, together with the data (JSON) and a Content-Security-Policy that allows nothing else. All pages share
`page.css`, `strings.js` (translations) and `parts.js`, and some share `found.css` and `found.js`. Used for the pages of
`evaluate`, `explain`, `review`, `suggest` and `export`.
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

# Scripts that all pages contain.
SCRIPTS = ("strings.js", "parts.js")
# Number of hues for the first labels, which are 45 degrees apart.
FIRST_HUES = 8
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Heading:
    """The heading of a page. `strings.js` can contain translations of the title and the line, but not of the values.

    title (str): The title, which may contain names in braces.
    about (str): The line below the title, which may contain names in braces.
    values (Mapping[str, str]): The values of the names.
    """

    title: str
    about: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    def to_html(self) -> dict[str, str]:
        """Return the title and the line as HTML, with values in place of the names."""
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
    """Return a page that works without a network or a server.

    package, name (str): The package with the page's body, style and script, and the stem of their file names.
    heading (Heading): The title of the page.
    data (Mapping[str, Any]): Data that can be converted to JSON. The script accesses it as `parts.data`.
    lang (str): The language of the texts, which replaces `{{lang}}` in the body.
    parts (Sequence[str]): Additional shared styles and scripts of this package, such as `found`.
    workers (bool): Whether the script may start workers that run WebAssembly.
    """
    style, script = _sources(package, name, tuple(parts))
    data = {**data, "heading": asdict(heading)}
    filling = {
        **heading.to_html(),
        "lang": html.escape(lang),
        "policy": page_policy(package, name, parts=parts, workers=workers),
        "style": style,
        "script": script,
        # `<` is escaped, so that `</script>` in the data cannot end the element.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    shell = _read(__package__, "page.html").replace("{{body}}", _read(package, f"{name}.html"))
    # All placeholders are replaced in one pass, so that placeholders in the data are kept.
    return _PLACEHOLDER.sub(lambda match: filling[match[1]], shell)


def page_policy(package: str, name: str, also: str = "", *, parts: Sequence[str] = (), workers: bool = False) -> str:
    """Return the Content-Security-Policy of a page, which allows only the script and the style of the page, by their
    hashes.

    also (str): Additional sources of scripts and styles, each followed by a space, such as "'self' ".
    parts, workers: See `make_page`.
    """
    style, script = (f"'sha256-{_digest(text)}'" for text in _sources(package, name, tuple(parts)))
    compute, start = (" 'wasm-unsafe-eval'", "; worker-src blob:") if workers else ("", "")
    return (
        f"default-src 'none'; style-src {also}{style}; script-src {also}{script}{compute}{start}; "
        "img-src data:; base-uri 'none'"
    )


@lru_cache
def _sources(package: str, name: str, parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the style and the script of a page, beginning with the shared parts."""
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
    """Return the hue of each label in degrees.

    A hash of the label determines the preferred hue. If an earlier label has this hue, the next free hue is used. So a
    label usually has the same colour in all pipelines, and additional labels do not change the hues of earlier labels.
    If all hues are in use, the hues halfway between them are added. `hue` in parts.js is the same function.

    labels (Iterable[str]): All labels of a pipeline, in order.
    """
    hues: dict[str, float] = {}
    for label in dict.fromkeys(labels):
        n = FIRST_HUES
        while not (free := [hue for hue in _preferred(label, n) if hue not in hues.values()]):
            n *= 2
        hues[label] = free[0]
    return hues


def _preferred(label: str, n: int) -> list[float]:
    """Return n equidistant hues, beginning with the preferred hue of a label."""
    number = 0
    for char in label:
        # With these constants, the labels in most common label sets prefer different hues.
        number = (number * 258 + ord(char)) % 65521
    return [(number + i) % n * 360 / n for i in range(n)]


def displacy_options(labels: Iterable[str]) -> dict[str, Any]:
    """Return options for `displacy.render(..., style="ent")` with the colours that labels have on this package's pages.

    labels (Iterable[str]): All labels of the pipeline. displacy looks up colours by the upper-case label, so that
        labels that differ only in case share a colour.
    """
    return {"colors": {label.upper(): f"hsl({hue:g}, 75%, 86%)" for label, hue in label_hues(labels).items()}}
