"""Test that the reference sections of pages match the names, arguments and options in the code."""

from __future__ import annotations

import inspect
import re

import pytest
from make_reference import OPTIONS, REFERENCE, described, entry_points, fill, fill_options, load, parse
from pages import PAGES

from spacy_tener.cli import COMMANDS

REFERENCES = {
    name
    for path in PAGES.values()
    for match in REFERENCE.finditer(path.read_text(encoding="utf8"))
    for name in match[2].split()
}
NAMES = [name for name in entry_points() if name != "tener"]


@pytest.mark.parametrize("page", PAGES)
def test_reference_is_up_to_date(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf8")
    assert fill(text) == text, "run: make reference"


def test_reference_covers_registered_names() -> None:
    assert {*NAMES} <= REFERENCES


def test_options_of_all_commands_are_listed() -> None:
    page = PAGES["docs/commands.md"].read_text(encoding="utf8")
    assert sorted(OPTIONS.findall(page)) == sorted(COMMANDS)
    filled = fill_options(page)
    assert OPTIONS.findall(filled) == []
    assert re.search(r"^- `--lang`.*: \S", filled, re.M)
    assert "also `--force`" in filled


@pytest.mark.parametrize("name", NAMES)
def test_reference_documents_all_arguments(name: str) -> None:
    function = load(name)
    accepted = set(inspect.signature(function).parameters) - {"nlp", "name"}
    rows = re.findall(r"^- `(\w+)`.*: \S", "\n".join(described(function, {})), re.M)
    assert accepted <= set(rows) <= accepted | {"nlp", "name"}


def test_spacy_style_docstring_is_parsed() -> None:
    docstring = "Do it.\n\ntool: well.\n\nn (int): How often,\n    or never.\nRETURNS (str): It | that.\n"
    text, arguments, returned = parse(docstring, ["n"])
    assert text.split() == ["Do", "it.", "tool:", "well."]
    assert arguments == {"n": ("int", "How often, or never.")}
    assert returned == {"RETURNS": ("str", "It | that.")}


def test_reference_is_inserted_between_comments() -> None:
    filled = fill("a\n<!-- reference: spacy_tener.TENER.v1 -->\nold\n<!-- end of reference -->\nz\n")
    assert filled.startswith("a\n<!-- reference: spacy_tener.TENER.v1 -->\n")
    assert filled.endswith("\n<!-- end of reference -->\nz\n")
    assert "old" not in filled
    assert re.search(r"^- `width`.*: \S", filled, re.M)
