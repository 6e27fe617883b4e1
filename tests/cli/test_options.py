"""Test that options and their short forms have the same meaning in all commands."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
import typer

from spacy_tener.cli import COMMANDS, tener_cli

GROUP: Any = typer.main.get_command(tener_cli)
SHORT_OPTIONS = {
    "-o": "--output",
    "-f": "--format",
    "-n": "--limit",
    "-l": "--lang",
    "-s": "--set",
    "-c": "--code",
    "-g": "--gpu-id",
    "-j": "--jobs",
    "-F": "--force",
    # As in the spaCy commands that these commands replace
    "-G": "--gold-preproc",
    "-dp": "--displacy-path",
    "-dl": "--displacy-limit",
    "-IW": "--ignore-warnings",
    "-V": "--verbose",
    "-NF": "--no-format",
}


def options(command: str) -> list[Any]:
    return [option for option in GROUP.get_command(None, command).params if option.param_type_name == "option"]


ALL = [(command, option) for command in COMMANDS for option in options(command)]


def test_short_option_has_same_meaning_in_all_commands() -> None:
    found = {
        letter: {name for name in option.opts if name.startswith("--")}
        for _, option in ALL
        for letter in option.opts
        if not letter.startswith("--")
    }
    assert {letter: SHORT_OPTIONS[letter] in names for letter, names in found.items()} == dict.fromkeys(
        SHORT_OPTIONS, True
    )
    missing = [
        (command, name)
        for command, option in ALL
        for name in option.opts
        if name in SHORT_OPTIONS.values()
        and not {letter for letter, long in SHORT_OPTIONS.items() if long == name} <= set(option.opts)
    ]
    assert missing == []


def test_option_name_has_same_meaning_in_all_commands() -> None:
    """Differences between commands, such as formats, follow after a colon or in parentheses."""
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for _, option in ALL:
        meaning = re.split(r"[:(]", option.help or "")[0].strip()
        for name in (*option.opts, *option.secondary_opts):
            meanings[name].add(meaning)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
    assert all(map(all, meanings.values()))


def test_commands_that_write_files_have_output_option() -> None:
    assert {command for command, option in ALL if "--output" in option.opts} == set(COMMANDS) - {"debug-data", "serve"}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_load_a_pipeline_have_code_option(command: str) -> None:
    names = {name for option in options(command) for name in option.opts}
    assert ("--code" in names) == (command not in {"config", "convert", "vectors"})
