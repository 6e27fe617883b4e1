"""Test links, registered names, commands, measured numbers and error messages in the documentation."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import spacy.errors
from pages import PAGES, ROOT, anchors, prose

from spacy_tener.cli import COMMANDS

LINK = re.compile(r"\]\(([^)\s]+)\)")
REGISTERED = re.compile(r"\bspacy_tener\.\w+\.v\d+\b")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
NAMES = {name for group, names in PROJECT["entry-points"].items() if group != "spacy_cli" for name in names}


@pytest.mark.parametrize("page", PAGES)
def test_link_targets_exist(page: str) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        path = (PAGES[page].parent / target).resolve() if target else PAGES[page]
        assert path.is_file() or (path.is_dir() and not anchor), f"{page}: {link}"
        assert not anchor or anchor in anchors(path), f"{page}: {link}"


def test_navigation_contains_all_pages() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf8")
    pages = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


@pytest.mark.parametrize("page", PAGES)
def test_registered_names_exist(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf8")
    assert set(REGISTERED.findall(text)) - NAMES - {"spacy_tener.Name.v1"} == set()


def test_all_commands_have_a_section() -> None:
    headings = re.findall(r"^## ([\w-]+)$", PAGES["docs/commands.md"].read_text(encoding="utf8"), flags=re.M)
    assert sorted(headings) == sorted(COMMANDS)


MEASURED = re.compile(r"^<!-- from (?P<files>.+?) -->\n(?P<table>(?:\|.*\n)+)", re.M)
TABLES = [(page, match) for page, path in PAGES.items() for match in MEASURED.finditer(path.read_text(encoding="utf8"))]
DEVIATION = re.compile(r"(\d+\.\d+) ± (\d+\.\d+)")
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w.])")


@pytest.mark.parametrize(("page", "match"), TABLES, ids=[f"{page}-{n}" for n, (page, _) in enumerate(TABLES)])
def test_numbers_in_tables_match_results(page: str, match: re.Match[str]) -> None:
    """The files named before a table contain the numbers of all cells but the first of each row, with more digits.

    A mean and its standard deviation must occur together. `papers` stands for published scores.
    """
    text = "".join(path.read_text(encoding="utf8") for name in match["files"].split() for path in sources(name))
    measured, pairs = set(numbers(text)), {(float(mean), float(sd)) for mean, sd in DEVIATION.findall(text)}
    for row in match["table"].splitlines()[2:]:
        name, *cells = row.strip("| ").split(" | ")
        for cell in cells:
            deviation = DEVIATION.search(cell)
            if deviation and not name.startswith("paper"):
                assert any(all(map(is_rounded, deviation.groups(), pair)) for pair in pairs), f"{page}: {cell}"
            for number in NUMBER.findall(cell):
                assert any(is_rounded(number, value) for value in measured), f"{page}: {number} of {cell!r}"


SCORE = re.compile(r"(?<![\w.-])\d{2}\.\d\d(?![\w.%])")
LINKED = re.compile(r"results/([\w-]+\.md)")


@pytest.mark.parametrize("page", [page for page in PAGES if page != "research/README.md"])
def test_numbers_in_prose_match_results(page: str) -> None:
    """Results contain all means with standard deviations. Scores occur in the results that the paragraph links to."""
    results = {path.name: path.read_text(encoding="utf8") for path in (ROOT / "research/results").glob("*.md")}
    pairs = {(float(mean), float(sd)) for text in results.values() for mean, sd in DEVIATION.findall(text)}
    for paragraph in re.split(r"\n{2,}", re.sub(r"^\|.*\n", "", prose(page), flags=re.M)):
        for deviation in DEVIATION.findall(paragraph):
            assert any(all(map(is_rounded, deviation, pair)) for pair in pairs), f"{page}: {' ± '.join(deviation)}"
        if linked := [results[name] for name in LINKED.findall(paragraph) if name in results]:
            measured = {value for text in linked for value in numbers(text)}
            measured |= {value for pair in pairs for value in pair}
            for score in SCORE.findall(paragraph):
                assert any(is_rounded(score, value) for value in measured), f"{page}: {score}"


def sources(name: str) -> list[Path]:
    return list(ROOT.glob("*/**/published*.*")) if name == "papers" else [ROOT / "research/results" / name]


def is_rounded(text: str, value: float) -> bool:
    number, step = as_number(text)
    return abs(number - value) <= 0.5 * step + 1e-9


def as_number(text: str) -> tuple[float, float]:
    """Return a number and the value of its last digit. Trailing zeros of large integers may result from rounding."""
    plain = text.replace(",", "")
    if "." in plain:
        return float(plain), 10.0 ** -len(plain.partition(".")[2])
    zeros = len(plain) - len(plain.rstrip("0"))
    return float(plain), 10.0 ** (zeros if len(plain) > 3 else 0)


def numbers(text: str) -> list[float]:
    return [as_number(found)[0] for found in NUMBER.findall(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "research/README.md"])
def test_score_tables_name_their_source(page: str) -> None:
    for table in re.findall(r"(?<!-->\n)(?:(?<=\n\n)|(?<=\A))((?:\|.*\n)+)", PAGES[page].read_text(encoding="utf8")):
        assert "±" not in table, f"{page}: {table.splitlines()[0]}"


def test_documented_error_messages_exist_in_code() -> None:
    """Names and numbers are omitted in quoted messages, so their parts are searched."""
    sources = [*ROOT.glob("spacy_tener/**/*.py"), Path(spacy.errors.__file__)]
    code = re.sub(r"\"\s*f?\"", "", "".join(path.read_text(encoding="utf8") for path in sources))
    shown = re.findall(r"^\| `([^`|]+)`", PAGES["docs/errors.md"].read_text(encoding="utf8"), flags=re.M)
    parts = [part.strip(" '") for message in shown for part in message.split("...")]
    assert [part for part in parts if part not in code] == []
