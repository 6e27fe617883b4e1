"""Check that docstrings, comments and pages use the terms of the field, not phrases that only this project uses.

tests/data/private_phrases.txt lists these phrases and their replacements. CONTRIBUTING.md explains how we write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PHRASES = Path(__file__).parent / "data" / "private_phrases.txt"
FOLDERS = ["assets", "docs", "readers", "research", "scripts", "spacy_tener", "tests"]
# The changelog and the results describe earlier versions. Chinese pages have a vocabulary of their own.
EXCLUDED = ["CHANGELOG.md", "README.zh.md", "docs/zh", "research/results", "readers/js/node_modules"]
# Phrase -> files in which it is right.
ALLOWED = {
    "(?<!_)slots?": ["CONTRIBUTING.md"],
    "as (?:a|the) share|this share|the share of|what share": ["CONTRIBUTING.md"],
    "by heart": ["tests/test_language.py"],
    "rectangles?": ["CONTRIBUTING.md"],
    "what the doc has": ["CONTRIBUTING.md"],
}


def read_phrases() -> dict[str, str]:
    """Return the replacements of phrases, which are regular expressions."""
    lines = PHRASES.read_text(encoding="utf8").splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


def find_files() -> Iterator[str]:
    """Yield the paths of all files whose text is checked."""
    for path in [*ROOT.glob("*.*"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.*")))]:
        name = path.relative_to(ROOT)
        is_excluded = any(str(parent) in EXCLUDED for parent in [name, *name.parents])
        if path.suffix in PROSE and not is_excluded:
            yield name.as_posix()


def python_prose(source: str) -> str:
    """Return the docstrings and comments of a Python file. Code becomes blank lines, which keeps the line numbers.

    Regular expressions take a twentieth of the time that the modules ast and tokenize need for all files.
    """
    return keep_matches(r'^ *r?"""(.*?)"""|""".*?"""|(?:^|  )# ?([^\n]*)', source)


def javascript_prose(source: str) -> str:
    """Return the comments of a JavaScript file. URLs are not comments. Code becomes blank lines."""
    text = keep_matches(r"/\*(.*?)\*/|(?<!:)//([^\n]*)", source)
    return re.sub(r"^ *\*", "", text, flags=re.M)


def keep_matches(pattern: str, source: str) -> str:
    """Return the groups of all matches, with line breaks between them that keep the line numbers."""
    parts, end = [], 0
    for match in re.finditer(pattern, source, re.M | re.S):
        if match.lastindex is not None:
            parts.append("\n" * source.count("\n", end, match.start()))
            parts.append(match[match.lastindex])
            end = match.end()
    return "".join(parts)


def page_prose(text: str) -> str:
    """Return the text of a Markdown page. Code blocks and comments become blank lines."""
    return re.sub(r"^```.*?^```$|<!--.*?-->", lambda match: "\n" * match[0].count("\n"), text, flags=re.M | re.S)


PROSE = {".py": python_prose, ".js": javascript_prose, ".ts": javascript_prose, ".md": page_prose}


def find_phrases(name: str, text: str, phrases: dict[str, str]) -> Iterator[str]:
    """Yield a message for each phrase in a file, such as "docs/a.md:3: 'by heart'; write: overfit"."""
    prose = re.sub("`[^`\n]+`", "`code`", PROSE[Path(name).suffix](text))
    for match in compile_phrases(tuple(phrases)).finditer(prose):
        phrase = list(phrases)[match.lastindex - 1]
        if name not in ALLOWED.get(phrase, ()):
            line = 1 + prose.count("\n", 0, match.start())
            yield f"{name}:{line}: '{' '.join(match[0].split())}'; write: {phrases[phrase]}"


@cache
def compile_phrases(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Return a regular expression with a group for each phrase."""
    groups = "|".join(f"({phrase})" for phrase in phrases)
    return re.compile(rf"\b(?:{groups})\b".replace(" ", r"\s+"), re.IGNORECASE)


def test_prose_contains_no_private_phrases() -> None:
    phrases = read_phrases()
    found = [
        message for name in find_files() for message in find_phrases(name, (ROOT / name).read_text("utf8"), phrases)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", '"""Learn by heart."""', 1),
        ("a.py", "x = 1\n# Learn by\n# heart.\n", 2),
        ("a.py", "x = 1  # learn by heart", 1),
        ("a.py", 'def f():\n    """Train.\n\n    Learn By Heart.\n    """', 4),
        ("a.js", "/**\n * Learn by\n * heart.\n */", 2),
        ("a.js", 'const x = "https://a.b"; // learn by heart', 1),
        ("a.md", "# Title\n\n```\ncode\n```\n\nLearn by heart.", 7),
    ],
)
def test_phrases_are_found_in_prose(name: str, text: str, line: int) -> None:
    assert list(find_phrases(name, text, {"by heart": "overfit"})) == [
        f"{name}:{line}: 'by heart'; write: overfit".replace("by heart", "By Heart" if "By" in text else "by heart")
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", 'print("by heart")'),
        ("a.py", '"""Set `by heart`."""'),
        ("a.py", '"""Standby hearts."""'),
        ("a.js", 'print("by heart")'),
        ("a.md", "```\nby heart\n```\n\n<!-- by heart -->"),
    ],
)
def test_phrases_in_code_are_ignored(name: str, text: str) -> None:
    assert not list(find_phrases(name, text, {"by heart": "overfit"}))


def test_exceptions_are_used() -> None:
    phrases = read_phrases()
    for phrase, names in ALLOWED.items():
        assert phrase in phrases
        for name in names:
            assert re.search(phrase, (ROOT / name).read_text("utf8"), re.IGNORECASE), (
                f"{name} does not contain {phrase}"
            )
