"""project.yml: its steps fit together, and the sample's need no network."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import srsly

ROOT = Path(__file__).parent.parent
PROJECT = srsly.read_yaml(ROOT / "project.yml")
COMMANDS = {command["name"]: command for command in PROJECT["commands"]}


def test_workflows_name_commands_that_exist() -> None:
    assert {step for steps in PROJECT["workflows"].values() for step in steps} == set(COMMANDS)


@pytest.mark.parametrize("workflow", PROJECT["workflows"])
def test_every_dependency_is_in_the_repository_an_asset_or_made_before(workflow: str) -> None:
    there = {asset["dest"] for asset in PROJECT["assets"]}
    for step in PROJECT["workflows"][workflow]:
        for path in COMMANDS[step]["deps"]:
            bundled = path.replace("${vars.lang}", "zh").replace("${vars.config}", PROJECT["vars"]["config"])
            assert path in there or (ROOT / bundled).exists(), f"{step} needs {path}"
        there.update(COMMANDS[step]["outputs"])


def test_the_sample_workflow_needs_no_download() -> None:
    assets = {asset["dest"] for asset in PROJECT["assets"]}
    assert not assets & {path for step in PROJECT["workflows"]["all"] for path in COMMANDS[step]["deps"]}


def test_finished_steps_can_be_skipped() -> None:
    assert all(command["outputs"] and not command.get("no_skip") for command in COMMANDS.values())


@pytest.mark.corpora
@pytest.mark.parametrize("asset", PROJECT["assets"], ids=lambda asset: Path(asset["dest"]).name)
def test_assets_have_the_checksums_of_the_project(asset: dict[str, str]) -> None:
    data = (ROOT / asset["dest"]).read_bytes()
    assert hashlib.md5(data, usedforsecurity=False).hexdigest() == asset["checksum"]
