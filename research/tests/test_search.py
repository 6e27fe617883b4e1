"""A search: drawn, trained, kept, taken up again. `fake_spacy` trains instead of spaCy."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_trainings import begin, is_alive, train_nothing
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import TrialState
from waiting import wait_until

from research import search as module
from research.engines import on_this_machine
from research.search import Search, SearchPlan, open_search
from research.search_space import read_space
from spacy_tener.errors import RemedyError
from spacy_tener.workbench.composing.compose import compose
from spacy_tener.workbench.composing.files import ConfigError
from spacy_tener.workbench.runs import processes
from spacy_tener.workbench.runs.training import TrainingResult, TrainingRun

TOK2VEC = "components.tener_ner.model.tok2vec"
RATE = "training.optimizer.learn_rate.max_rate"
SPACE = f"""
[draws]
head_width = [8, 16]

[{TOK2VEC}]
heads = [2, 4, 6, 8]
width = "= heads * head_width"

[training.optimizer.learn_rate]
max_rate = {{"low": 0.0001, "high": 0.01, "log": true}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    train_nothing(monkeypatch, tmp_path / "hold")
    (tmp_path / "space.cfg").write_text(SPACE, encoding="utf8")
    return tmp_path


def make_plan(files: Path, **changes: Any) -> SearchPlan:
    corpora = tuple(f"paths.{part}={files / 'space.cfg'}" for part in ("train", "dev"))  # Nobody reads them.
    settings = ("training.max_steps=4", *corpora)
    space = read_space(files / "space.cfg")
    return SearchPlan(**{"base": "weibo", "overlays": (), "settings": settings, "space": space, **changes})


@pytest.fixture
def opened(files: Path):
    """Opens the search in a directory."""

    def open_it(name: str = "found", *, options: dict[str, Any] | None = None, **changes: Any):
        return open_search(make_plan(files, **changes), files / name, **(options or {}))

    return open_it


def run(search: Search, trials: int, jobs: int = 1) -> None:
    with on_this_machine(jobs) as engine:
        search.run(trials, engine)


def drawn(search: Search) -> list[dict[str, Any]]:
    return [row.values for row in search.rows]


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    """A search of six trials, as it lies there afterwards."""
    files = tmp_path_factory.mktemp("six")
    (files / "space.cfg").write_text(SPACE, encoding="utf8")
    with pytest.MonkeyPatch.context() as patch:
        train_nothing(patch, files / "hold")
        with open_search(make_plan(files, seed=1), files / "found") as search:
            run(search, 6)
        yield search


@pytest.fixture
def instantly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings take no time: only what is drawn matters."""
    config = compose("weibo")
    monkeypatch.setattr(SearchPlan, "config", lambda plan, values: config)
    monkeypatch.setattr(SearchPlan, "check_files", lambda plan: None)
    monkeypatch.setattr(SearchPlan, "check", lambda plan: None)

    def train(run: TrainingRun, *_: object) -> TrainingResult:
        run.folder.mkdir(parents=True)
        run.config.to_disk(run.folder / "config.cfg")
        return TrainingResult(0.1 + 0.01 * int(run.name))

    monkeypatch.setattr(module, "train", train)


# What comes out


def test_trials_are_drawn_trained_and_kept(six: Search) -> None:
    assert [row.number for row in six.rows] == list(range(6))
    assert {row.state for row in six.rows} == {"done", "failed"}
    for row in six.rows:
        folder = six.trial_folder(row.number)
        config = (folder / "config.cfg").read_text(encoding="utf8")
        heads = row.values[f"{TOK2VEC}.heads"]
        assert f"\nheads = {heads}\n" in config
        assert f"\nwidth = {row.values[f'{TOK2VEC}.width']}\n" in config
        assert "max_steps = 4" in config
        assert row.values[f"{TOK2VEC}.width"] // heads in (8, 16)
        assert 0.0001 <= row.values[RATE] <= 0.01
        assert (folder / "output.log").exists()
        assert row.seconds is not None
        assert row.score == (None if heads == 6 else heads / 10)


def test_a_training_that_fails_is_kept_with_its_reason_and_the_search_goes_on(six: Search) -> None:
    failed = [row for row in six.rows if row.state == "failed"]
    assert {row.reason for row in failed} == {
        "training ended with exit status 1: ValueError: [E910] Encountered NaN loss value"
    }
    assert {row.values[f"{TOK2VEC}.heads"] for row in failed} == {6}
    assert failed[0].number < 5
    assert "Traceback" in (six.trial_folder(failed[0].number) / "output.log").read_text()


def test_best_is_the_highest_on_dev_and_its_config_is_written(six: Search) -> None:
    assert six.best.score == max(row.score for row in six.rows if row.score is not None)
    text = (six.folder / "best.cfg").read_text(encoding="utf8")
    assert text.startswith(f"# Trial {six.best.number} of a search: F1 {100 * six.best.score:.2f} on dev\n")
    assert f"\nheads = {six.best.values[f'{TOK2VEC}.heads']}\n" in text
    assert "training.jsonl" not in text


def test_tables_have_every_trial_with_every_setting(six: Search) -> None:
    lines = list(csv.DictReader((six.folder / "trials.csv").open(encoding="utf8")))
    assert [int(line["number"]) for line in lines] == list(range(6))
    assert list(lines[0])[:3] == ["number", "state", "score"]
    data = json.loads((six.folder / "trials.json").read_text(encoding="utf8"))
    assert data["best"] == six.best.number
    for line, trial, row in zip(lines, data["trials"], six.rows, strict=True):
        assert trial["values"] == row.values
        assert float(line[RATE]) == row.values[RATE]
        assert line["score"] == ("" if row.score is None else str(row.score))


def test_only_the_best_pipeline_is_kept(six: Search) -> None:
    folders = [path.parent.name for path in six.folder.glob("trials/*/model-best")]
    assert folders == [f"{six.best.number:04d}"]


def test_all_pipelines_are_kept_if_they_are_wanted(opened, files: Path) -> None:
    (files / "space.cfg").write_text(f"[{TOK2VEC}]\nheads = [2, 4]\n")
    with opened(seed=1, options={"keep_models": True}) as search:
        run(search, 2)
    assert len(list((files / "found").glob("trials/*/model-best"))) == 2


# What is drawn


@pytest.mark.usefixtures("instantly")
def test_the_same_seed_draws_the_same_and_another_one_something_else(opened) -> None:
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with opened(name, seed=seed) as search:
            run(search, 2)
            found.append(drawn(search))
    assert found[0] == found[1] != found[2]


@pytest.mark.usefixtures("instantly")
def test_a_search_in_several_goes_draws_what_it_would_have_drawn_in_one(opened) -> None:
    with opened("one", seed=3) as search:
        run(search, 4)
        expected = drawn(search)
    for trials in (1, 4):
        with opened("several", seed=3) as search:
            run(search, trials)
    assert drawn(search) == expected
    assert len({values[RATE] for values in expected}) == 4


@pytest.mark.usefixtures("instantly")
def test_tpe_draws_where_it_is_asked_for(opened) -> None:
    for name, sampler in (("random", RandomSampler), ("tpe", TPESampler)):
        with opened(name, seed=1, sampler=name) as search:
            run(search, 2)
            assert type(search.study.sampler) is sampler
            assert all(set(values) == {f"{TOK2VEC}.heads", f"{TOK2VEC}.width", RATE} for values in drawn(search))


# Going on


def test_a_finished_search_does_nothing_more(opened, files: Path) -> None:
    with opened() as search:
        run(search, 2)
    before = {path: path.stat().st_mtime_ns for path in (files / "found" / "trials").rglob("*")}
    with opened() as search:
        run(search, 2)
        assert len(search.rows) == 2
    assert {path: path.stat().st_mtime_ns for path in (files / "found" / "trials").rglob("*")} == before


@pytest.mark.usefixtures("instantly")
def test_an_interrupted_trial_is_marked_and_done_again_with_the_same_settings(opened) -> None:
    with opened("whole", seed=1) as search:
        run(search, 3)
        expected = drawn(search)
    with opened(seed=1) as search:
        run(search, 1)
        interrupted = _begin_without_end(search)
    with opened(seed=1) as search:
        assert [row.state for row in search.rows] == ["done", "interrupted", "waiting"]
        run(search, 3)
        rows = search.rows
    assert [row.again_of for row in rows] == [None, None, interrupted, None]
    assert rows[2].values == rows[1].values
    assert rows[2].state in ("done", "failed")
    assert [row.values for row in rows if row.number != interrupted] == expected


def _begin_without_end(search: Search) -> int:
    """What a search leaves that is killed in the middle of a training."""
    search.study.sampler = module.make_sampler("random", search.plan.seed, 1)
    return search.study.ask(dict(search.plan.space.draws)).number


@pytest.mark.usefixtures("instantly")
def test_what_was_interrupted_is_not_done_again_twice(opened) -> None:
    with opened() as search:
        _begin_without_end(search)
    for _ in range(3):
        with opened() as search:
            assert [row.state for row in search.rows] == ["interrupted", "waiting"]
    with opened() as search:
        run(search, 1)
    with opened() as search:
        assert len(search.rows) == 2


@pytest.mark.usefixtures("instantly")
def test_a_trial_killed_before_all_was_drawn_is_done_again(opened) -> None:
    with opened(seed=1) as search:
        trial = search.study.ask()
        trial.suggest_categorical("draws.head_width", [8, 16])
    with opened(seed=1) as search:
        run(search, 1)
        assert search.rows[0].state == "interrupted"
        assert search.rows[0].values == {}
        assert set(search.rows[1].values) == {f"{TOK2VEC}.heads", f"{TOK2VEC}.width", RATE}


def test_a_search_killed_in_the_middle_loses_nothing(opened, files: Path) -> None:
    (files / "hold").write_text("0001")

    def search_three() -> None:
        with opened(seed=1) as search:
            run(search, 3)

    process = begin(search_three)
    trials = files / "found" / "trials"
    wait_until((trials / "0001" / "pid").exists)
    first = {path: path.stat().st_mtime_ns for path in (trials / "0000").rglob("*")}
    with pytest.raises(RemedyError, match="another process works in this directory"), opened(seed=1):
        pass
    process.kill()
    process.join()
    wait_until(lambda: not is_alive(int((trials / "0001" / "pid").read_text())))
    (files / "hold").unlink()
    with opened(seed=1) as search:
        run(search, 3)
        rows = search.rows
    assert [row.state == "interrupted" for row in rows] == [False, True, False, False]
    assert rows[2].values == rows[1].values
    assert rows[2].again_of == 1
    assert (trials / "0001" / "config.cfg").exists()
    # Of a finished trial only the pipeline goes, when another one is better.
    now = {path: path.stat().st_mtime_ns for path in first if path.exists() and path.is_file()}
    assert now.items() <= first.items()
    assert {path.name for path in now} >= {"config.cfg", "training.jsonl", "output.log"}


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"seed": 2}, "its seed differ"), ({"sampler": "tpe"}, "its sampler differ")],
)
def test_a_directory_with_another_search_is_refused(opened, changes: dict, what: str) -> None:
    with opened(seed=1) as search:
        run(search, 1)
    with pytest.raises(ConfigError, match=what), opened(**{"seed": 1, **changes}):
        pass


def test_another_space_or_config_is_another_search(opened, files: Path) -> None:
    with opened() as search:
        run(search, 1)
    (files / "space.cfg").write_text(SPACE.replace("[8, 16]", "[8, 24]"))
    with pytest.raises(ConfigError, match="its space differ"), opened():
        pass
    with pytest.raises(ConfigError, match="its config differ"), opened(space=search.plan.space, base="resume"):
        pass


# Pruning


def test_a_training_below_the_median_of_the_others_is_stopped_and_counts(
    opened, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_POLL", 0.05)
    (files / "space.cfg").write_text(f"[{TOK2VEC}]\nheads = [2, 8]\n")
    (files / "hold").write_text("0005")
    with opened(options={"prune": True}) as search:
        for heads in (8, 8, 8, 8, 8, 2):
            search.study.enqueue_trial({f"{TOK2VEC}.heads": heads})
        run(search, 6)
        states = [row.state for row in search.rows]
    assert states == ["done"] * 5 + ["pruned"]
    assert search.rows[5].score == 0.2
    assert search.best.number == 0
    assert [trial.state for trial in search.study.trials][5] == TrialState.PRUNED


# What is refused before the first trial


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            f"[{TOK2VEC}]\nhaeds = [2, 4]\n",
            f"The config has no '{TOK2VEC}.haeds', which the search space sets. Did you mean",
        ),
        (f'[{TOK2VEC}]\nheads = ["many"]\n', "heads"),
        (f"[{TOK2VEC}]\nheads = [5]\nwidth = [12]\n", "width must be a multiple of heads"),
    ],
)
def test_a_space_that_does_not_fit_the_config_is_refused(opened, files: Path, space: str, message: str) -> None:
    (files / "space.cfg").write_text(space)
    with pytest.raises(ConfigError) as caught, opened():
        pass
    assert message in str(caught.value)
    assert not (files / "found").exists()


def test_missing_corpora_and_files_are_named(opened, files: Path) -> None:
    changes = {
        "base": "weibo",
        "settings": (
            "paths.char_vectors=vectors/chars.vec",
            f"paths.dev={files}/none.spacy",
        ),
    }
    with pytest.raises(ConfigError) as caught, opened(**changes):
        pass
    assert "There is no train corpus: give --set paths.train=train.spacy." in str(caught.value)
    assert f"There is no {files}/none.spacy: give --set paths.dev=dev.spacy." in str(caught.value)
    assert "there is no vectors/chars.vec" in str(caught.value)
    assert not (files / "found").exists()


def test_settings_that_do_not_fit_together_fail_alone(opened, files: Path) -> None:
    (files / "space.cfg").write_text(f"[{TOK2VEC}]\nheads = [4]\nwidth = [16, 18]\n")
    with opened(seed=1) as search:
        run(search, 3)
        found = {row.values[f"{TOK2VEC}.width"]: (row.state, row.reason) for row in search.rows}
    assert found[16] == ("done", None)
    assert found[18][0] == "failed"
    assert "multiple of heads" in found[18][1]


def test_without_optuna_its_requirements_are_named(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"-r research/requirements\.txt"), opened():
        pass
