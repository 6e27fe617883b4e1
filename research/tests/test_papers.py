"""Check that the systems, search spaces, commands and options in papers.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import check

from research.search import find_space
from research.systems import find_system

LIST = (Path(__file__).parents[1] / "papers.md").read_text(encoding="utf8").partition("## Every table and figure")[2]
CODE = re.compile(r"`([^`]+)`")
SEARCHES = re.findall(r"`search --system (\S+) --space ([\w-]+)", LIST)
# Abbreviations of commands in the table.
WHOLE = {"search": "python -m research search", "research": "python -m research", "spacy": "python -m spacy"}
COMMANDS = {code for line in LIST.splitlines() if line.startswith("|") for code in CODE.findall(line)}


def test_systems_and_spaces_exist() -> None:
    trained = [CODE.findall(names) for names in re.findall(r"`grid`: ((?:`[^`]+`(?:, )?)+)", LIST)]
    systems = {name for names in trained for name in names if not name.startswith("--")}
    assert {"tener", "mect-no-cross", "chars-cnn+encoder-bilstm"} <= systems
    assert len(SEARCHES) == 6
    for name in systems | {system for system, _ in SEARCHES}:
        find_system(name)
    for _, space in SEARCHES:
        find_space(space)


@pytest.mark.parametrize("code", sorted(code for code in COMMANDS if code.split()[0] in WHOLE and " " in code))
def test_commands_and_their_options_exist(code: str) -> None:
    first, *rest = code.split()
    check([*WHOLE[first].split(), *rest])


@pytest.mark.parametrize("script", sorted(code for code in COMMANDS if re.fullmatch(r"\S+\.py", code)))
def test_scripts_exist(script: str) -> None:
    assert (Path(__file__).parents[2] / script).is_file()
