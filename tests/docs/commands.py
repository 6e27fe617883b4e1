"""Parse shell blocks, check that their commands and options exist, and run them in this process."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import command_line  # noqa: F401 - builds the commands once
import typer
from pages import ROOT
from spacy.util import registry

import research.__main__ as research
from spacy_tener.cli.spacy_command import app


def commands(code: str) -> Iterator[list[str]]:
    """Yield the words of each command, without comments. Lines that end in a backslash are joined."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def check(words: list[str]) -> None:
    """Raise an error if a command or one of its options does not exist."""
    if words[:2] == ["python", "-m"] and words[2] in GROUPS:
        command, rest = named_command(words[2], words[3:])
        if hasattr(command, "commands"):
            return
        options = set().union(*(set(p.opts) | set(p.secondary_opts) for p in command.params)) | {"--help"}
        words_of_options = [word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
        free = command.context_settings.get("ignore_unknown_options", False)
        unknown = [option for option in words_of_options if option not in options and not (free and "." in option)]
        assert not unknown, f"{shlex.join(words)}: no such option: {unknown}"
    elif words[0] == "python" and words[1].endswith(".py"):
        check_script(ROOT / words[1], words[2:])
    elif words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf8"), flags=re.M))
        assert {word for word in words[1:] if "=" not in word} <= targets
    elif words[:1] == ["pip"] or words[:3] == ["python", "-m", "pip"]:
        assert words[words.index("pip") + 1] in {"install", "wheel"}
    elif words[0] == "npm":
        tested = json.loads((ROOT / "readers" / "js" / "package.json").read_text(encoding="utf8"))["devDependencies"]
        assert words[1] == "install"
        assert {*words[2:]} <= {"--ignore-scripts", *(f"{package}@{version}" for package, version in tested.items())}
    elif words[0] == "docker":
        assert all((ROOT / name).is_file() for option, name in pairwise(words) if option == "--file")
    else:
        assert words[0] in {"cd", "mkdir", "head", "cat", "curl"}, f"there is no check for {shlex.join(words)}"


def named_command(module: str, words: list[str]) -> tuple[Any, list[str]]:
    """Look up a command or a group of commands. Return it with the remaining words."""
    command = GROUPS[module]()
    while hasattr(command, "commands") and words:
        found = command.get_command(None, words[0])
        assert found, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    return command, words


@cache
def root_command() -> Any:
    registry.cli.get_all()
    return typer.main.get_command(app)


@cache
def research_command() -> Any:
    return typer.main.get_command(research.app)


GROUPS = {"spacy": root_command, "research": research_command}


def check_script(path: Path, words: list[str]) -> None:
    """Raise an error if a script does not exist, or does not define one of the options."""
    source = path.read_text(encoding="utf8")
    shared = [path.parent / f"{name}.py" for name in re.findall(r"^(?:from|import) (_[a-z]\w+)", source, flags=re.M)]
    source += "".join(module.read_text(encoding="utf8") for module in shared)
    for word in words:
        if word.startswith("--") and word != "--help":
            assert f'"{word}"' in source or "those of `research table`" in source, f"{path}: {word}"


def run(words: list[str], added: str) -> str:
    """Run a command in this process and in the current directory, and return its output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if words[:2] == ["python", "-m"] and words[2] in GROUPS:
            _run_command(words[2], with_arguments(words, added)[3:])
        elif words[0] == "mkdir":
            Path(words[-1]).mkdir(parents=True)
        elif words[0] in {"cat", "head"}:
            printed.write(Path(words[-1]).read_text(encoding="utf8"))
        elif words[0] == "cp":
            shutil.copy(words[1], words[2])
        else:
            raise AssertionError(f"{shlex.join(words)} needs a comment that says why the tests do not run it")
    return printed.getvalue()


def with_arguments(words: list[str], added: str) -> list[str]:
    """Return a command with additional arguments if it trains models, so that a test trains them for fewer steps."""
    trains = words[2:4] == ["spacy", "train"] or words[2:5] == ["spacy", "tener", "review"]
    return [*words, *shlex.split(added)] if trains else words


def _run_command(module: str, words: list[str]) -> None:
    argv, status = sys.argv, None
    sys.argv = [module, *words]  # spaCy's commands read config overrides from sys.argv
    try:
        status = GROUPS[module]()(words, standalone_mode=False, prog_name=f"python -m {module}")
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.argv = argv
    assert not status, f"python -m {module} {shlex.join(words)} ended with status {status}"
