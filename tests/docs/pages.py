"""The pages of the documentation, their code blocks and links.

A comment in the line before a block says how the tests treat it; everything else is run as it stands.

    <!-- test: slow (why) -->       run by `make test-slow` only; otherwise checked: commands and options exist
    <!-- test: not run (why) -->    only checked
    <!-- test: adds --option 1 -->  run with these arguments added to each `spacy train`
    <!-- test: overlay on a b -->   of a config: laid on these, and checked
    <!-- test: file a/b.py -->      written to this file, which later blocks import
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (
        ROOT / "README.md",
        ROOT / "README.zh.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        ROOT / "research/README.md",
        ROOT / "research/papers.md",
        ROOT / "research/project.md",
        ROOT / "research/pretraining.md",
        ROOT / "research/results/README.md",
    )
}
# Chinese page -> the page in English whose code it has.
CHINESE = {"README.zh.md": "README.md"} | {
    page: page.replace("/zh/", "/") for page in PAGES if page.startswith("docs/zh/")
}
LANGUAGES = {"python", "bash", "ini", "text", "json", "yaml", "makefile", "javascript"}
FENCE = re.compile(r"^(?:<!-- test: (?P<how>.+?) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
REFERENCE = re.compile(r"<!-- reference: .*?<!-- end of reference -->", re.S)
HOW = re.compile(r"(?P<kind>slow|not run) \((?P<why>.+)\)|adds (?P<added>.+)|overlay on (?P<base>.+)|file (?P<file>.+)")


@dataclass(frozen=True)
class Block:
    """A block of code on a page. `kind` is empty, `slow`, or `not run`; `base` is what an overlay is laid on, `file`
    where the block is written instead of run."""

    page: str
    line: int
    language: str
    code: str
    kind: str
    added: str
    base: list[str]
    file: str = ""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = PAGES[page].read_text(encoding="utf8")
    found = []
    for match in FENCE.finditer(text):
        how = HOW.fullmatch(match["how"] or "adds  ")
        line = text.count("\n", 0, match.start("code"))
        if how is None:
            raise ValueError(f"{page}:{line}: the comment before the block is none that tests/docs/pages.py knows.")
        kind, added, base = how["kind"] or "", (how["added"] or "").strip(), (how["base"] or "").split()
        found.append(Block(page, line, match["language"], match["code"], kind, added, base, how["file"] or ""))
    return found


def prose(page: str) -> str:
    """A page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", PAGES[page].read_text(encoding="utf8")), flags=re.S)


def translated(page: str) -> str:
    """The prose that a Chinese page has too: it has no reference."""
    text = REFERENCE.sub("", PAGES[page].read_text(encoding="utf8"))
    return re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.S)


def anchors(path: Path) -> set[str]:
    """What `#...` may name in a Markdown file: its headings, as GitHub and mkdocs write them."""
    text = FENCE.sub("", path.read_text(encoding="utf8"))
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
