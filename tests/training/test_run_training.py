"""A training run in a directory: its files, and the reasons why it fails. A short script replaces spaCy's training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from thinc.api import Config
from tiny_trainings import fake_training, make_config, tener

from spacy_tener.errors import UserError
from spacy_tener.training import runs
from spacy_tener.training.runs import Echo, Processes, TrainingRun, is_trained, train

RunTraining = Callable[..., str]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, tener())


@pytest.fixture
def run_training(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> RunTraining:
    fake_training(monkeypatch, tmp_path / "hold")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    def run(code: str | None = None, echo: Echo | None = None) -> str:
        if code is not None:
            (tmp_path / "trainer.py").write_text(code, encoding="utf8")
            monkeypatch.setattr(runs, "MODULE", "trainer")
        return train(TrainingRun("run", tmp_path / "run", config), Processes(echo=echo))

    return run


def test_training_writes_config_log_scores_and_best_pipeline(run_training: RunTraining, tmp_path: Path) -> None:
    assert run_training() == ""
    run = tmp_path / "run"
    found = {path.name for path in run.iterdir()}
    assert found == {"config.cfg", "training.jsonl", "output.log", "model-best", "metrics-dev.json", "_manifest.json"}
    config = Config().from_disk(run / "config.cfg")
    assert config["training"]["logger"]["output_file"] == str(run / "training.jsonl")
    command = ["python", "-m", "fake_spacy", "train", str(run / "config.cfg"), "--output", str(run), "--gpu-id", "-1"]
    assert (run / "output.log").read_text().splitlines()[0] == f"$ {' '.join(command)}"
    assert json.loads((run / "metrics-dev.json").read_text())["ents_f"] == 0.2


def test_use_last_selects_last_pipeline(
    run_training: RunTraining, tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import json, pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--output') + 1])\n"
        "for name, score in (('best', 0.9), ('last', 0.7)):\n"
        "    (folder / f'model-{name}').mkdir()\n"
        "    (folder / f'model-{name}' / 'meta.json').write_text(json.dumps({'performance': {'ents_f': score}}))\n"
        "(folder / 'training.jsonl').write_text(json.dumps({'scores': {'ents_f': 90}}))\n"
    )
    (tmp_path / "trainer.py").write_text(code, encoding="utf8")
    monkeypatch.setattr(runs, "MODULE", "trainer")
    for use_last, score in ((False, 0.9), (True, 0.7)):
        folder = tmp_path / f"run-{use_last}"
        folder.mkdir()
        assert not train(TrainingRun("run", folder, config, use_last=use_last), Processes())
        assert json.loads((folder / "metrics-dev.json").read_text())["ents_f"] == score
        assert [path.name for path in folder.glob("model-*")] == ["model-best"]


def test_finished_training_is_detected_and_not_overwritten(
    run_training: RunTraining, tmp_path: Path, config: Config
) -> None:
    run = TrainingRun("run", tmp_path / "run", config)
    assert not is_trained(run)
    run_training()
    assert is_trained(run)
    changed = config.copy()
    changed["training"]["max_steps"] = 77
    with pytest.raises(
        UserError, match=r"run: contains another training run \(training\.max_steps.*\)\. Choose another --output"
    ):
        is_trained(TrainingRun("run", tmp_path / "run", changed))
    (tmp_path / "run" / "model-best" / "meta.json").unlink()
    assert not is_trained(run)


def test_new_training_removes_earlier_logs_and_scores(run_training: RunTraining, tmp_path: Path) -> None:
    run_training()
    (tmp_path / "run" / "metrics.json").touch()
    assert run_training("raise SystemExit(3)")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.cfg", "output.log", "model-best"}


def test_process_output_is_echoed(run_training: RunTraining, tmp_path: Path) -> None:
    lines: list[str] = []
    run_training("print('好\\nb')", echo=lines.append)
    assert lines[1:] == ["好\n", "b\n"]
    lines.clear()
    Processes(echo=lines.append).run(["again"], tmp_path / "run" / "output.log")
    assert [line[:2] for line in lines] == ["$ ", "好\n", "b\n"]


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (
            "print(1); raise ValueError('[E910] NaN')",
            "training ended with exit status 1: ValueError: [E910] NaN",
        ),
        ("import os; os.kill(os.getpid(), 9)", "training was killed by signal 9"),
        ("raise SystemExit(3)", "training ended with exit status 3: nothing in its log"),
        ("pass", "no ents_f in the scores on the development set"),
    ],
)
def test_failed_training_returns_reason_and_keeps_log(
    run_training: RunTraining, tmp_path: Path, code: str, failure: str
) -> None:
    assert run_training(code) == failure
    assert (tmp_path / "run" / "output.log").exists()
