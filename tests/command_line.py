"""Run commands of `python -m spacy` in this process."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

import typer
import typer.testing
from typer.testing import CliRunner

from spacy_tener import cli
from spacy_tener.cli.spacy_command import app

# Build the commands once, since this takes longer than most of them.
for name in cli.COMMANDS:
    import_module(f"spacy_tener.cli.{name.replace('-', '_')}")
cli.get_command = typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]


class CommandResult:
    """The result of a command.

    code: Exit status.
    stdout: Standard output, unchanged.
    stderr: Standard error, joined to one line.
    text: Standard output and standard error, joined to one line.
    lines: Lines of both, with single spaces between words.
    """

    def __init__(self, *words: object, stdin: str | None = None, app: typer.Typer = app) -> None:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*map(str, words)], input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code = result.exit_code
        self.stdout = result.stdout
        self.stderr = " ".join(result.stderr.split())
        self.text = " ".join(result.output.split())
        self.lines = [" ".join(line.split()) for line in result.output.splitlines()]


def hide_packages(*packages: str) -> dict[str, str]:
    """Return environment variables for a process in which some packages cannot be imported."""
    return {"PYTHONPATH": str(Path(__file__).with_name("hidden_packages")), "HIDDEN_PACKAGES": " ".join(packages)}


def run_tener(*words: object, stdin: str | None = None) -> CommandResult:
    """Run a command of `tener`."""
    return CommandResult("tener", *words, stdin=stdin)
