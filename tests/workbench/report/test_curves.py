"""Curves of training, from the logs of several seeds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from made_runs import make_run
from spacy.training.loggers import console_logger_v3

from spacy_tener.errors import RemedyError
from spacy_tener.workbench.report.plots import Curve, curve, has_log, read_log
from spacy_tener.workbench.report.runs import Run, find_runs, group_runs
from spacy_tener.workbench.report.scores import Summary

LOG = [(0, 100, 10.0), (0, 200, 20.0), (1, 300, 30.0)]


def only(root: Path) -> Run:
    (run,) = find_runs([root]).runs
    return run


def test_scores_are_read_by_step(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5, log=LOG)
    assert read_log(only(tmp_path), x="step", metric="f") == {100: 10.0, 200: 20.0, 300: 30.0}


def test_the_last_evaluation_of_an_epoch_counts(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5, log=LOG)
    assert read_log(only(tmp_path), x="epoch", metric="f") == {0: 20.0, 1: 30.0}


def test_what_spacys_logger_writes_is_read(tmp_path: Path) -> None:
    import spacy

    folder = make_run(tmp_path, "weibo/a/1", f=0.5)
    nlp = spacy.blank("zh")
    nlp.config["training"] = {
        "max_steps": 1,
        "eval_frequency": 1,
        "score_weights": {"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
    }
    log, finish = console_logger_v3(console_output=False, output_file=folder / "training.jsonl")(nlp)
    for step, f in ((85, 0.25), (170, 0.5)):
        scores = {"ents_f": f, "ents_p": 0.75, "ents_r": 0.125, "ents_per_type": {}}
        log({"epoch": 1, "step": step, "losses": {}, "other_scores": scores, "score": f})
    finish()
    assert read_log(only(tmp_path), x="step", metric="f") == {85: 25.0, 170: 50.0}
    assert read_log(only(tmp_path), x="step", metric="p") == {85: 75.0, 170: 75.0}


def test_a_log_of_the_final_score_only_is_read_as_f1(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "weibo/a/1", f=0.5)
    (folder / "training.jsonl").write_text('{"epoch": 0, "step": 5, "score": 0.25}\n\n', encoding="utf8")
    assert read_log(only(tmp_path), x="step", metric="f") == {5: 25.0}
    with pytest.raises(RemedyError, match=r"training\.jsonl:1: there is no 'precision"):
        read_log(only(tmp_path), x="step", metric="p")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"epoch": 0, "step": 1, "score": 0.5}\n{"epoch"', "training.jsonl:2: not a line of that log"),
        ("[1]\n", "training.jsonl:1: not a line of that log"),
        ('{"epoch": 0, "score": 0.5}\n', "training.jsonl:1: there is no 'step'"),
        ('{"epoch": 0, "step": 1}\n', "there is no 'F1"),
        ("\n", "nothing is logged there"),
    ],
)
def test_broken_logs_are_named(tmp_path: Path, text: str, words: str) -> None:
    folder = make_run(tmp_path, "weibo/a/1", f=0.5)
    (folder / "training.jsonl").write_text(text, encoding="utf8")
    with pytest.raises(RemedyError) as error:
        read_log(only(tmp_path), x="step", metric="f")
    assert words in str(error.value)


def test_a_missing_log_says_how_to_get_one(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5)
    assert not has_log(only(tmp_path))
    with pytest.raises(RemedyError, match=r"there is no training\.jsonl.*ConsoleLogger\.v3"):
        read_log(only(tmp_path), x="step", metric="f")


def test_an_unknown_axis_is_an_error(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5, log=LOG)
    with pytest.raises(RemedyError, match="Unknown axis 'time'"):
        read_log(only(tmp_path), x="time", metric="f")


def group_curve(root: Path, *logs: list[tuple[int, int, float]]) -> Curve:
    for seed, log in enumerate(logs, start=1):
        make_run(root, f"weibo/a/{seed}", f=0.5, log=log)
    (group,) = group_runs(find_runs([root]).runs)
    return curve(group, x="step", metric="f")


def test_seeds_are_averaged_where_all_were_evaluated(tmp_path: Path) -> None:
    line = group_curve(tmp_path, [(0, 100, 10.0), (0, 200, 20.0)], [(0, 100, 14.0), (0, 200, 26.0)])
    assert line.mean == {
        100: Summary(mean=12.0, sd=pytest.approx(4 / math.sqrt(2)), n=2),
        200: Summary(mean=23.0, sd=pytest.approx(6 / math.sqrt(2)), n=2),
    }
    assert line.tails == ()


def test_the_mean_ends_where_the_first_seed_stopped(tmp_path: Path) -> None:
    line = group_curve(tmp_path, LOG, LOG[:2], [*LOG, (1, 400, 35.0)])
    assert list(line.mean) == [100, 200]
    assert line.tails == ({200: 20.0, 300: 30.0}, {200: 20.0, 300: 30.0, 400: 35.0})


def test_seeds_without_a_common_step_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RemedyError, match=r"No step at which all.*weibo/a/1, weibo/a/2"):
        group_curve(tmp_path, [(0, 100, 1.0)], [(0, 90, 1.0)])


def test_logs_of_the_made_runs_are_those_of_the_logger(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "weibo/a/1", f=0.5, log=LOG)
    line = json.loads((folder / "training.jsonl").read_text(encoding="utf8").splitlines()[0])
    assert line == {"epoch": 0, "step": 100, "scores": {"ents_f": 10.0}, "score": 0.1}
