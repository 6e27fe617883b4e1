"""Tests of `python -m research table`."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import pytest
from research_commands import run_research
from run_directories import make_run

COUNTS = {"PER.NAM": (6, 2, 4), "PER.NOM": (5, 5, 5)}


table = partial(run_research, "table")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (1, 2, 3):
        for place, system in enumerate(("ner", "tener")):
            right = 6 + place + seed % 2
            counts = {"PER.NAM": (right, 2, 10 - right), "PER.NOM": (5, 5 - place, 5)}
            make_run(tmp_path / "runs", f"weibo/{system}/{seed}", counts)
    return tmp_path / "runs"


def test_standard_output_is_the_tables_alone(runs: Path) -> None:
    make_run(runs, "weibo/tener/4")
    make_run(runs, "weibo/tener/x", COUNTS)
    result = table(runs, "--format", "json")
    assert len(json.loads(result.stdout)["overall"]) == 5
    assert "Unfinished runs: 1 weibo/tener/4: no metrics.json" in result.stderr
    assert "Not runs, since they are not at CORPUS/SYSTEM/SEED: 1" in result.stderr
    assert "tener/x" in result.stderr
    assert result.code == 0


@pytest.mark.parametrize("ending", ["md", "csv", "json"])
def test_the_outputs_ending_names_the_format(runs: Path, tmp_path: Path, ending: str) -> None:
    output = tmp_path / "new" / f"table.{ending}"
    result = table(runs, "--output", output)
    assert result.code == 0
    assert result.stdout == ""
    assert "6 runs" in result.stderr
    assert output.read_text(encoding="utf8") == table(runs, "--format", ending).stdout


def test_everything_at_once(runs: Path, tmp_path: Path) -> None:
    output = tmp_path / "table.csv"
    table(runs, "--baseline", "ner", "--per-label", "--named-nominal", "--metric", "r", "--output", output)
    with output.open(encoding="utf8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["kind"] for row in rows} == {"overall", "labels", "mentions"}
    tener = next(row for row in rows if row["system"] == "tener" and not row["source"])
    # One more of 20 entities is correct in each seed.
    assert float(tener["versus_difference"]) == pytest.approx(5.0)


def test_corpora_and_systems_can_be_chosen(runs: Path) -> None:
    make_run(runs, "resume/tener/1", {"NAME": (1, 1, 1)})
    data = json.loads(table(runs, "--corpus", "weibo", "--system", "tener, ner", "--format", "json").stdout)
    assert {(row["corpus"], row["system"]) for row in data["overall"]} == {("weibo", "ner"), ("weibo", "tener")}
    result = table(runs, "--system", "mect")
    assert result.code == 1
    assert "No run of this system: mect There are: ner, tener." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "mect"], "The baseline mect is not one of these systems"),
        (["--by", "corpus"], "seed 1 is there twice: weibo/ner/1 and weibo/tener/1"),
        (["nope"], "nope: there is no such directory"),
        (["--by", "corpus,system,k"], "its config has no setting 'k'"),
    ],
)
def test_what_cannot_be_done_is_said(runs: Path, arguments: list[str], message: str) -> None:
    result = table(runs, *arguments)
    assert result.code == 1
    assert message in result.stderr
    assert result.stdout == ""


def test_without_a_finished_run_the_unfinished_are_listed_and_it_fails(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/ner/1")
    result = table(tmp_path)
    assert result.code == 1
    assert "weibo/ner/1" in result.stderr
    assert "No run is finished" in result.stderr
