"""Tests of `python -m research search`: sampling, training, and resuming. Training is replaced by `fake_spacy`."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.samplers import RandomSampler
from research_commands import run_research
from tiny_trainings import fake_training, is_alive, make_grid, start_process
from waiting import wait_until

from research import baselines, search
from research.search import SPACES
from research.systems import find_system
from spacy_tener.training.overlays import compose, with_settings

MODEL = "components.tener_ner.model.tok2vec"
SPACE = f"""
def settings(trial):
    heads = trial.suggest_categorical("heads", [2, 4, 6, 8])
    width = heads * trial.suggest_categorical("head_width", [8, 16])
    rate = trial.suggest_float("rate", 0.0001, 0.01, log=True)
    return {{"{MODEL}.heads": heads, "{MODEL}.width": width, "training.optimizer.learn_rate.max_rate": rate}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a corpus, its config and a search space. With six heads, training fails; F1 is a tenth of the
    heads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    fake_training(monkeypatch, tmp_path / "hold")
    make_grid(tmp_path, ["red"], {})
    (tmp_path / "space.py").write_text(SPACE, encoding="utf8")
    return tmp_path


def run(trials: int, *options: object) -> tuple[int, str, str]:
    ran = run_research(
        *("search", "found", "--corpus", "red", "--system", "tener", "--space", "space.py", "--configs", "configs"),
        *("--trials", trials, *options),
    )
    return ran.code, ran.stdout, ran.stderr


def trials() -> list[Any]:
    return optuna.load_study(study_name="search", storage="sqlite:///found/study.db").get_trials()


def test_dev_chooses_among_what_was_drawn_and_the_best_is_kept(files: Path) -> None:
    code, printed, messages = run(6)
    assert code == 0, messages
    found = trials()
    assert [trial.number for trial in found] == list(range(6))
    for trial in found:
        heads, config = trial.params["heads"], (files / "found" / f"{trial.number:04d}" / "config.cfg").read_text()
        assert f"\nheads = {heads}\n" in config
        assert f"\nwidth = {heads * trial.params['head_width']}\n" in config
        assert trial.values == (None if heads == 6 else [heads / 10])
    best = max((trial for trial in found if trial.values), key=lambda trial: trial.values[0])
    text = (files / "found" / "best.cfg").read_text()
    assert text.startswith(f"# Trial {best.number} of a search: F1 {100 * best.values[0]:.2f} on dev\n")
    assert f"\nheads = {best.params['heads']}\n" in text
    assert "training.jsonl" not in text
    assert [path.parent.name for path in (files / "found").glob("*/model-best")] == [f"{best.number:04d}"]
    lines = [line.split() for line in printed.splitlines() if line.split()[:1] and line.split()[0].isdecimal()]
    assert [line[1] for line in lines] == ["done" if trial.values else "failed" for trial in found]
    assert "failed" in printed
    assert "Encountered NaN loss value" in messages


def test_the_same_seed_draws_the_same_at_one_go_or_several_and_another_seed_something_else(files: Path) -> None:
    run(3)
    expected = [trial.params for trial in trials()]
    for goes, seed in (((1, 3), 1), ((3,), 2)):
        (files / "found").rename(files / f"before-{seed}")
        for number in goes:
            assert run(number, "--seed", seed)[0] == 0
        assert ([trial.params for trial in trials()] == expected) == (seed == 1)


def test_a_killed_search_is_resumed_and_its_trial_drawn_again(files: Path) -> None:
    (files / "space.py").write_text(SPACE.replace("6, ", ""))  # without six heads, no training run fails
    (files / "hold").write_text("0001")
    process = start_process(run, 3)
    waiting = files / "found" / "0001" / "pid"
    wait_until(waiting.exists)
    assert process.pid is not None
    process.kill()
    process.join()
    wait_until(lambda: not is_alive(int(waiting.read_text())))
    (files / "hold").unlink()
    killed = trials()[1]
    assert killed.state.name == "RUNNING"
    # Missing heartbeats are detected when the next trial starts.
    with closing(sqlite3.connect("found/study.db")) as database, database:
        database.execute("UPDATE trial_heartbeats SET heartbeat = '2026-01-01 00:00:00.000000'")
    assert run(3)[0] == 0
    first, again = (trial for trial in trials() if trial.params == killed.params)
    assert len(trials()) == 4
    assert (first.number, first.values) == (1, None)
    assert again.values


def test_a_trial_that_ctrl_c_interrupted_is_trained_by_the_next_call(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "space.py").write_text(SPACE.replace("6, ", ""))

    def interrupted(*arguments: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search, "train", interrupted)
        code, _, messages = run(1)
    assert code == 130
    assert "The same command resumes" in messages
    assert run(1)[0] == 0
    first, again = trials()
    assert (first.values, first.user_attrs.get("reason")) == (None, None)
    assert again.values
    assert first.params == again.params


def test_processes_share_a_search(files: Path) -> None:
    """Each process completes its trial, so there may be one more trial than requested."""
    both = [start_process(run, 5) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert len(trials()) in (5, 6)
    assert len({trial.params["rate"] for trial in trials()}) == len(trials())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--seed", 2], "its config and seed differ"),
        (["--set", "training.max_steps=9"], "its config differ"),
        (["--space", "other.py"], "its space differ"),
        (["--space", "none.py"], "There is no search space none.py Name a Python file, or one of: bilstm, flat-atssa"),
        (["--space", "configs/red.cfg"], "There is no search space"),
        (["--space", "empty.py"], "empty.py: has no function 'settings'"),
    ],
)
def test_what_does_not_fit_is_refused(files: Path, options: list[object], what: str) -> None:
    (files / "other.py").write_text(SPACE.replace("[8, 16]", "[8, 24]"))
    (files / "empty.py").write_text("")
    assert run(1)[0] == 0
    code, printed, messages = run(1, *options)
    assert (code, printed) == (1, "")
    assert what in messages


def test_a_setting_that_the_config_has_not_is_named(files: Path) -> None:
    (files / "space.py").write_text(SPACE.replace(".heads", ".haeds"))
    code, _, messages = run(1)
    assert code == 1
    assert "haeds" in messages


def test_without_optuna_its_requirements_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, messages = run(1)
    assert code == 1
    assert "pip install -r research/requirements.txt" in messages


# Search space -> corpus, overlays, and all possible values of some settings in the paper's table.
PAPERS: dict[str, tuple[str, str, Mapping[str, set[Any]]]] = {
    "tener": ("weibo", "sgd", {"width": {heads * width for heads in (4, 6, 8, 10) for width in (32, 48, 64, 80, 96)}}),
    "tener-english": ("conll2003", "sgd", {"encode.heads": {8, 10, 12, 14}, "encode.layers": {1, 2}}),
    "bilstm": ("conll2003", "encoder-bilstm+sgd", {"encode.width": {400, 800, 1200, 1600, 2400}}),
    "idcnn": ("conll2003", "encoder-idcnn+sgd", {"encode.iterations": {2, 3, 4, 5, 6}}),
    "flat-atssa": ("resume", "flat-atssa+sgd", {"heads": {4, 8, 12}}),
    "mect": ("resume", "mect+sgd", {"width": {128, 160}, "radicals.dropout": {0.1, 0.2, 0.3, 0.4}}),
}


def test_every_space_is_a_table_of_a_paper() -> None:
    assert {path.stem for path in SPACES.glob("*.py")} == set(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_space_fits_its_systems_config(name: str) -> None:
    assert baselines.IDCNN  # importing it registers the architecture
    corpus, system, ranges = PAPERS[name]
    config = compose(corpus, *find_system(system))
    space = search.Search(None, search.find_space(name)).read_space()  # type: ignore[arg-type]
    study = optuna.create_study(sampler=RandomSampler(seed=1))
    drawn = [space(study.ask()) for _ in range(60)]
    for setting, values in ranges.items():
        assert {settings[f"{MODEL}.{setting}"] for settings in drawn} <= values
    changed = with_settings(config, [f"{key}={value}".replace("'", '"') for key, value in drawn[0].items()])
    assert changed["training"]["optimizer"]["@optimizers"] == "spacy_tener.SGD.v1"
