"""Tests of project.yml: its steps fit together, finished steps are skipped, and the sample corpora need no network."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import srsly
import typer
from weasel.cli import run as weasel
from weasel.util.config import load_project_config, substitute_project_variables

import spacy_tener.cli
from research import convert_corpus
from research.__main__ import app
from research.systems import ablations

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "project.yml").read_text(encoding="utf8")
PROJECT = srsly.read_yaml(ROOT / "project.yml")
FILLED = substitute_project_variables(srsly.read_yaml(ROOT / "project.yml"))
COMMANDS = {command["name"]: command for command in FILLED["commands"]}
# What workflows require: workflows that must run before, and files that users provide.
BEFORE = {"package": ["all"]}
BROUGHT = {"vectors": {"assets/raw"}}


def has(paths: set[str], path: str) -> bool:
    """Return whether the paths contain a path or something below it."""
    return path in paths or any(entry.startswith(f"{path}/") for entry in paths)


def test_spacy_accepts_it_and_makes_its_directories(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text(TEXT, encoding="utf8")
    assert load_project_config(tmp_path)["commands"] == FILLED["commands"]
    assert all((tmp_path / path).is_dir() for path in PROJECT["directories"])


def test_workflows_have_the_steps_of_all_commands() -> None:
    assert {step for steps in PROJECT["workflows"].values() for step in steps} | {"fetch"} == set(COMMANDS)


@pytest.mark.parametrize("workflow", PROJECT["workflows"])
def test_every_dependency_is_in_the_repository_an_asset_or_made_before(workflow: str) -> None:
    present = {asset["dest"] for asset in PROJECT["assets"]} | {*PROJECT["directories"]} | BROUGHT.get(workflow, set())
    for step in (step for name in [*BEFORE.get(workflow, []), workflow] for step in PROJECT["workflows"][name]):
        for path in COMMANDS[step].get("deps", []):
            assert has(present, path) or (ROOT / path).exists(), f"{step} needs {path}"
        present.update(COMMANDS[step]["outputs"])


# The commands of the corpora


def test_licensed_files_have_a_directory_and_public_ones_an_address() -> None:
    addresses = {asset["dest"] for asset in PROJECT["assets"]}
    for name, corpus in convert_corpus.CORPORA.items():
        places = {path.as_posix() for path in corpus.parts.values()}
        assert (f"assets/{name}" in PROJECT["directories"]) == corpus.licensed
        assert all(has(addresses, place) for place in places) or corpus.licensed or name.startswith("sample")


# What the commands call


def lines() -> Iterator[tuple[str, list[str]]]:
    for name, command in COMMANDS.items():
        for line in command["script"]:
            yield name, shlex.split(line)


GROUPS = {("spacy", "tener"): spacy_tener.cli.tener_cli, ("research",): app}
OURS = [
    (group, name, words[2 + len(module) :])
    for name, words in lines()
    for module, group in GROUPS.items()
    if words[1:][: 1 + len(module)] == ["-m", *module]
]


@pytest.mark.parametrize(("group", "words"), [(group, words) for group, _, words in OURS])
def test_every_option_exists(
    group: typer.Typer, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(word) for word in words if word.endswith(".spacy")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    commands: Any = typer.main.get_command(group)
    command = commands.get_command(None, words[0])
    assert command.make_context(words[0], list(words[1:])).params


def test_every_ablation_is_made_and_every_point_of_the_sweeps() -> None:
    names = ("ablations_zh", "ablations_en", "sweep_k", "sweep_alpha")
    systems = {system for name in names for system in PROJECT["vars"][name].split(",")}
    assert systems - ablations().keys() == {"flat-atssa", "mect", "grn"}
    assert {name for name in ablations() if name.startswith(("flat-atssa", "mect", "grn"))} <= systems


# Running


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project in a temporary directory. Commands only create their outputs, and are recorded in the file
    `ran`."""
    for path in {path for command in COMMANDS.values() for path in command.get("deps", [])}:
        if (ROOT / path).is_dir():
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
        elif (ROOT / path).is_file():
            make(tmp_path / path, "given")
    for path in PROJECT["directories"]:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    for path in {asset["dest"] for asset in PROJECT["assets"]}.union(*BROUGHT.values()):
        make(tmp_path / path, "given")

    def pretend(script: Sequence[str], **_: Any) -> None:
        (command,) = [command for command in COMMANDS.values() if command["script"] == script]
        with (tmp_path / "ran").open("a", encoding="utf8") as ran:
            ran.write(f"{command['name']}\n")
        for path in command["outputs"]:
            make(tmp_path / path, "made")

    monkeypatch.setattr(weasel, "run_commands", pretend)
    # Use the loaded project.yml, since parsing it for each step would be slow.
    monkeypatch.setattr(weasel, "load_project_config", lambda *_, **__: FILLED)
    return tmp_path


def make(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")


def ran(project: Path) -> list[str]:
    """Return the steps that ran since the last call."""
    path = project / "ran"
    names = path.read_text(encoding="utf8").split() if path.exists() else []
    path.unlink(missing_ok=True)
    return names


@pytest.mark.parametrize("workflow", [name for name in PROJECT["workflows"] if name not in BEFORE])
def test_a_second_run_does_nothing_and_says_so(workflow: str, project: Path, capsys: pytest.CaptureFixture) -> None:
    steps = PROJECT["workflows"][workflow]
    weasel.project_run(project, workflow)
    assert ran(project) == steps
    capsys.readouterr()
    weasel.project_run(project, workflow)
    assert ran(project) == []
    printed = capsys.readouterr().out
    assert all(f"Skipping '{step}': nothing changed" in printed for step in steps)


# Assets


PUBLIC = PROJECT["assets"]


def test_public_files_have_checksums() -> None:
    assert len(PUBLIC) == 110
    assert all(re.fullmatch(r"[0-9a-f]{32}", asset["checksum"]) for asset in PUBLIC)


@pytest.mark.corpora
@pytest.mark.parametrize("asset", PUBLIC, ids=lambda asset: Path(asset["dest"]).name)
def test_assets_have_the_checksums_of_the_project(asset: dict[str, str]) -> None:
    data = (ROOT / asset["dest"]).read_bytes()
    assert hashlib.md5(data, usedforsecurity=False).hexdigest() == asset["checksum"]
