"""Test the start of the program `tener`: what it imports, and how long it takes."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from spacy_tener.cli import COMMANDS

RUN = """
import resource, sys
from spacy_tener.cli import main
sys.argv = ["tener", *sys.argv[1:]]
try:
    main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    loaded = [name for name in ("numpy", "spacy", "thinc", "torch") if sys.modules.get(name)]
    print(used.ru_utime + used.ru_stime, *loaded, file=sys.stderr)
"""


def run(*arguments: str) -> tuple[str, float, list[str]]:
    """Run `tener` in a new process. Return its output, the seconds of CPU time, and the imported libraries."""
    ran = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=False)
    *errors, last = ran.stderr.splitlines()
    seconds, *loaded = last.split()
    return ran.stdout + "\n".join(errors), float(seconds), loaded


def test_help_lists_commands_without_importing_spacy() -> None:
    output, seconds, loaded = run("--help")
    assert "Usage: tener" in output
    assert all(f"\n  {name}  " in output for name in COMMANDS)
    assert loaded == []
    assert seconds < 1.0


def test_similar_command_is_suggested_without_importing_spacy() -> None:
    output, seconds, loaded = run("conver")
    assert "Did you mean 'convert'?" in output
    assert loaded == []
    assert seconds < 1.0


@pytest.mark.parametrize("command", ["convert", "evaluate"])
def test_only_commands_that_need_torch_import_it(command: str) -> None:
    output, _, loaded = run(command, "--help")
    assert f"Usage: tener {command}" in output
    assert ("torch" in loaded) == (command != "convert")


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_help_equals_first_line_of_command(name: str) -> None:
    function = getattr(import_module(f"spacy_tener.cli.{name.replace('-', '_')}"), f"{name.replace('-', '_')}_cli")
    assert (function.__doc__ or "").splitlines()[0] == COMMANDS[name]
