"""HTML pages that each consist of a single file and work without a network.

    html = make_page("spacy_tener.review", "review", Heading("Review"), {"texts": [...]}, lang="zh")

A page's body, style and script are files in a package, here `review.html`, `review.css` and `review.js`. `make_page`
inserts them into `page.html`, together with the data as JSON and a Content-Security-Policy. All pages share the files
`page.css`, `strings.js` (translations) and `parts.js`. The commands `evaluate`, `explain`, `review`, `suggest` and
`export` write such pages. A label has the same colour on all pages.
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

# Scripts that are included in all pages.
SCRIPTS = ("strings.js", "parts.js")
# Number of hues that labels can have. When all hues are in use, the number is doubled.
FIRST_HUES = 8
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Heading:
    """A page's title and a text line below it.

    The title and the line can be translated in `strings.js`. They can contain placeholders such as `{name}`, whose
    values are not translated.

    title (str): The title.
    about (str): The text line below the title.
    values (Mapping[str, str]): The placeholder values.
    uncalibrated (bool): Whether the page shows probabilities that were not calibrated by `tener calibrate`. The line
        then says so.
    """

    title: str
    about: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    uncalibrated: bool = False

    def to_html(self) -> dict[str, str]:
        """Return the title and the line below it as HTML, with the placeholder values inserted."""
        about = self._filled(self.about) + " · uncalibrated probabilities" * self.uncalibrated
        return {"title": html.escape(self._filled(self.title)), "about": html.escape(about)}

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
    """Return an HTML page that works without a network or a server.

    package (str): The package that contains the page's body, style and script.
    name (str): Name shared by these three files, without their suffixes.
    heading (Heading): The page's title.
    data (Mapping[str, Any]): JSON-serializable data. The page's script accesses the data as `parts.data`.
    lang (str): Text language, which replaces `{{lang}}` in the page's body.
    parts (Sequence[str]): Additional shared styles and scripts. For example, `found` adds `found.css` and `found.js`.
    workers (bool): Whether the script may start web workers that run WebAssembly.
    """
    style, script = _sources(package, name, tuple(parts))
    data = {**data, "heading": asdict(heading)}
    filling = {
        **heading.to_html(),
        "lang": html.escape(lang),
        "policy": page_policy(package, name, parts=parts, workers=workers),
        "style": style,
        "script": script,
        # Escape `<`, so that `</script>` in the data does not end the HTML element.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    shell = _read(__package__, "page.html").replace("{{body}}", _read(package, f"{name}.html"))
    # Replace all placeholders in one pass, so that placeholders in the data are not replaced.
    return _PLACEHOLDER.sub(lambda match: filling[match[1]], shell)


def page_policy(package: str, name: str, also: str = "", *, parts: Sequence[str] = (), workers: bool = False) -> str:
    """Return a page's Content-Security-Policy.

    The policy only allows the page's own style and script, which it identifies by their hashes.

    also (str): Additional sources for styles and scripts, each followed by a space, such as "'self' ".
    package, name, parts, workers: See `make_page`.
    """
    style, script = (f"'sha256-{_digest(text)}'" for text in _sources(package, name, tuple(parts)))
    compute, start = (" 'wasm-unsafe-eval'", "; worker-src blob:") if workers else ("", "")
    return (
        f"default-src 'none'; style-src {also}{style}; script-src {also}{script}{compute}{start}; "
        "img-src data:; base-uri 'none'"
    )


@lru_cache
def _sources(package: str, name: str, parts: tuple[str, ...]) -> tuple[str, str]:
    """Return a page's style and script. Shared styles and scripts come first."""
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
    """Return a different hue for each label, in degrees.

    The label's hash determines its preferred hue. If an earlier label already has this hue, the next free hue is used.
    As a result, most labels have the same colour in all pipelines, and new labels do not change the hues of earlier
    ones. If all hues are in use, the number of hues is doubled. The function `hue` in parts.js computes the same hues.

    labels (Iterable[str]): All labels in a pipeline, in order.
    """
    hues: dict[str, float] = {}
    for label in dict.fromkeys(labels):
        n = FIRST_HUES
        while not (free := [hue for hue in _preferred(label, n) if hue not in hues.values()]):
            n *= 2
        hues[label] = free[0]
    return hues


def _preferred(label: str, n: int) -> list[float]:
    """Return n equidistant hues in degrees, starting with a label's preferred hue."""
    number = 0
    for char in label:
        # The constants in this hash function give different hues to the labels in most common label sets.
        number = (number * 258 + ord(char)) % 65521
    return [(number + i) % n * 360 / n for i in range(n)]


def displacy_options(labels: Iterable[str]) -> dict[str, Any]:
    """Return options for `displacy.render(..., style="ent")` with the same label colours as on this package's pages.

    labels (Iterable[str]): All labels in the pipeline. Since displacy converts labels to upper case, labels that only
        differ in case get the same colour.
    """
    return {"colors": {label.upper(): f"hsl({hue:g}, 75%, 86%)" for label, hue in label_hues(labels).items()}}
