"""GitHub workflows: pinned actions, minimal permissions, existing make targets, and consistent versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_packaging import PROJECT, ROOT

from spacy_tener import __version__

WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf8"))
    return found


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_to_commits(name: str) -> None:
    uses = re.findall(r"uses: (.+)", WORKFLOWS[name].read_text(encoding="utf8"))
    assert uses
    assert [action for action in uses if not PINNED.fullmatch(action)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_only_publishing_jobs_have_write_permissions(name: str) -> None:
    workflow = read(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    permissions = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    publishing = {"publish": {"id-token": "write"}, "docs": {"id-token": "write", "pages": "write"}}
    assert permissions == (publishing if name == "release" else {})


@pytest.mark.parametrize("name", WORKFLOWS)
def test_make_commands_are_targets_of_makefile(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf8"), flags=re.M))
    lines = re.findall(r"run: make ([a-z -]+)", WORKFLOWS[name].read_text(encoding="utf8"))
    assert lines
    assert {target for line in lines for target in line.split()} <= targets


def test_suite_runs_on_all_supported_python_versions() -> None:
    tested_versions = read(WORKFLOWS["tests"])["jobs"]["suite"]["strategy"]["matrix"]["python"]
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    assert tested_versions == [match[1] for text in PROJECT["classifiers"] if (match := pattern.fullmatch(text))]


def test_pre_commit_tool_versions_match_workflow() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf8")
    pins = re.findall(r"\[((?:actionlint|hadolint)[\w.=-]+)\]", text)
    assert len(pins) == 2
    assert all(pin in WORKFLOWS["tests"].read_text(encoding="utf8") for pin in pins)


def test_citation_version_matches_package() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))["version"] == __version__
