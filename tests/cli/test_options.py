"""One table of options for all commands: a name and a letter mean the same everywhere."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
import typer

from spacy_tener.cli import MODULES, tener_cli

GROUP: Any = typer.main.get_command(tener_cli)
LETTERS = {
    "-o": "--output",
    "-f": "--format",
    "-n": "--limit",
    "-l": "--lang",
    "-s": "--set",
    "-c": "--code",
    "-g": "--gpu-id",
    "-j": "--jobs",
    "-F": "--force",
    # As in the commands of spaCy's that these replace
    "-G": "--gold-preproc",
    "-IW": "--ignore-warnings",
    "-V": "--verbose",
    "-NF": "--no-format",
}


def options(command: str) -> list[Any]:
    return [each for each in GROUP.get_command(None, command).params if each.param_type_name == "option"]


ALL = [(command, each) for command in MODULES for each in options(command)]


def test_a_letter_stands_for_one_option() -> None:
    found = {
        letter: {name for name in each.opts if name.startswith("--")}
        for _, each in ALL
        for letter in each.opts
        if not letter.startswith("--")
    }
    assert {letter: LETTERS[letter] in names for letter, names in found.items()} == dict.fromkeys(LETTERS, True)
    without = [
        (command, name)
        for command, each in ALL
        for name in each.opts
        if name in LETTERS.values()
        and not {letter for letter, long in LETTERS.items() if long == name} <= set(each.opts)
    ]
    assert without == []


def test_a_name_has_one_meaning() -> None:
    """What differs between commands stands after the meaning: which formats, what is written."""
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for _, each in ALL:
        meaning = re.split(r"[:(]", each.help or "")[0].strip()
        for name in (*each.opts, *each.secondary_opts):
            meanings[name].add(meaning)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
    assert all(map(all, meanings.values()))


def test_each_command_that_writes_files_takes_their_place_by_the_same_option() -> None:
    assert {command for command, each in ALL if "--output" in each.opts} == set(MODULES) - {"debug-data", "serve"}


@pytest.mark.parametrize("command", MODULES)
def test_what_loads_a_pipeline_takes_code(command: str) -> None:
    names = {name for each in options(command) for name in each.opts}
    assert ("--code" in names) == (command not in {"config", "convert"})
