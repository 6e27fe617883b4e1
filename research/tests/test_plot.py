"""Tests of `python -m research plot`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from research_commands import run_research
from run_directories import make_run

plot = partial(run_research, "plot")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for place, system in enumerate(("ner", "tener")):
        for seed in (1, 2):
            log = [(step // 100, step, 10.0 * place + seed + step / 20) for step in (0, 100, 200)]
            config = f"[model]\nk = {place + 1}\n"
            make_run(tmp_path / "runs", f"weibo/{system}/{seed}", f=0.5 + 0.1 * place, log=log, config=config)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    "arguments",
    [
        ["convergence", "--x", "epoch", "--metric", "f", "--y-min", "5"],
        ["speed", "--baseline", "ner"],
        ["scores", "--no-published"],
        ["sweep", "--x", "model.k", "--metric", "p"],
    ],
)
def test_figures_are_written(runs: Path, tmp_path: Path, arguments: list[str]) -> None:
    output = tmp_path / "new" / "figure.svg"
    result = plot(runs, "--kind", *arguments, "--output", output)
    assert result.code == 0, result.text
    assert "4 runs" in result.text
    assert output.read_bytes().startswith(b"<?xml")


def test_runs_without_what_is_drawn_are_named_and_left_out(runs: Path, tmp_path: Path) -> None:
    make_run(runs, "weibo/mect/1", f=0.5, speed=None)
    make_run(runs, "weibo/mect/2")
    output = tmp_path / "a.svg"
    for arguments, what in (
        (["convergence"], "training.jsonl"),
        (["speed"], "speed in metrics.json"),
    ):
        text = plot(runs, "--kind", *arguments, "--output", output).text
        assert f"Left out, without {what}: 1 weibo/mect/1" in text
        assert "Unfinished runs: 1 weibo/mect/2" in text
        assert "4 runs" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convergence", "--x", "time"], "Unknown axis 'time'"),
        (["sweep", "--x", "beta"], "its config has no setting 'beta'"),
        (["speed", "--baseline", "grn"], "weibo: no speed of the baseline grn There are: ner, tener"),
    ],
)
def test_what_cannot_be_drawn_is_said(runs: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    result = plot(runs, "--kind", *arguments, "--output", tmp_path / "a.png")
    assert result.code == 1
    assert message in result.text
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pie"], "'pie' is not one of: convergence, speed, scores, sweep."),
        (["speed", "--metric", "f"], "--metric: not an option of --kind speed"),
        (["scores", "--x", "k", "--y-min", "3"], "--x, --y-min: not an option of --kind scores"),
        (["sweep"], "Name it by --x"),
        (["convergence", "--no-published"], "--published: not an option of --kind"),
    ],
)
def test_a_wrong_command_line_is_refused(runs: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    result = plot(runs, "--kind", *arguments, "--output", tmp_path / "a.png")
    assert (result.code, message in result.text) == (2, True), result.text
