"""Workflows run what this repository has, with as few rights as they need, and the same tools as before a commit."""

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
def test_every_action_is_pinned_by_its_digest(name: str) -> None:
    uses = re.findall(r"uses: (.+)", WORKFLOWS[name].read_text(encoding="utf8"))
    assert uses
    assert [action for action in uses if not PINNED.fullmatch(action)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_only_what_publishes_may_do_more_than_read(name: str) -> None:
    workflow = read(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    publishing = {"publish": {"id-token": "write"}, "docs": {"id-token": "write", "pages": "write"}}
    assert rights == (publishing if name == "release" else {})


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_is_made_is_a_target_of_the_makefile(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf8"), flags=re.M))
    lines = re.findall(r"run: make ([a-z -]+)", WORKFLOWS[name].read_text(encoding="utf8"))
    assert lines
    assert {target for line in lines for target in line.split()} <= targets


def test_the_suite_runs_on_every_python_that_is_supported() -> None:
    tried = read(WORKFLOWS["tests"])["jobs"]["suite"]["strategy"]["matrix"]["python"]
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    assert tried == [match[1] for text in PROJECT["classifiers"] if (match := pattern.fullmatch(text))]


def test_checks_before_a_commit_are_those_of_the_workflow() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf8")
    pins = re.findall(r"\[((?:actionlint|hadolint)[\w.=-]+)\]", text)
    assert len(pins) == 2
    assert all(pin in WORKFLOWS["tests"].read_text(encoding="utf8") for pin in pins)


def test_versions_are_told_alike() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))["version"] == __version__
