"""Run commands of `python -m research` in this process."""

from __future__ import annotations

from command_line import CommandResult

from research.__main__ import app


def run_research(*words: object, stdin: bytes | str | None = None) -> CommandResult:
    """Run a command of `research`."""
    return CommandResult(*words, stdin=stdin, app=app)
