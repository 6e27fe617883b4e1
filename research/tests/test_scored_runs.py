"""Tests of scores computed from counts, and of reading metrics.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_directories import metrics, prf, write_json

from research.scores import METRICS, Confusion, Score, read_scores, score_counts, total
from spacy_tener.errors import UserError

COUNTS = {"PER": (6, 2, 4), "ORG": (0, 5, 1)}
NUMBER = st.integers(0, 50)


@given(NUMBER, NUMBER, NUMBER)
def test_score_of_counts_is_by_definition(tp: int, fp: int, fn: int) -> None:
    score = Confusion(tp=tp, fp=fp, fn=fn).score
    expected = prf(tp, fp, fn)
    assert (score.p, score.r, score.f) == pytest.approx((expected["p"], expected["r"], expected["f"]))


def test_counts_of_labels_add_up() -> None:
    assert total([Confusion(1, 2, 3), Confusion(10, 20, 30)]) == Confusion(11, 22, 33)
    assert total([]).score == Score(0.0, 0.0, 0.0)
    assert Confusion(11, 22, 33).gold == 44


def test_everything_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", {**metrics(COUNTS, speed=123.5), "token_acc": 1.0})
    read = read_scores(tmp_path / "m.json")
    assert read.overall.p == pytest.approx(6 / 13)
    assert read.overall.r == pytest.approx(6 / 11)
    assert read.overall.f == pytest.approx(12 / 24)
    assert read.labels["PER"] == Score(p=0.75, r=0.6, f=pytest.approx(2 / 3))
    assert read.counts == {"PER": Confusion(6, 2, 4), "ORG": Confusion(0, 5, 1)}
    assert read.speed == 123.5


def test_what_spacy_evaluate_writes_has_no_counts(tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", metrics(COUNTS, speed=None, with_counts=False))
    read = read_scores(tmp_path / "m.json")
    assert read.counts is None
    assert read.speed is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"ents_p": 1,', ["not valid JSON"]),
        ("[1]", ["expected a JSON object", "list"]),
        ('{"ents_p": 1, "ents_r": 1}', ["there is no 'ents_f'", "finds entities"]),
        ('{"ents_p": null, "ents_r": null, "ents_f": null}', ["no scores of entities", "annotated"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": "x"}', ["no scores of entities", "'x'"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": 1, "ents_per_type": {"A": {"p": 1}}}', ["no scores of entities"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": 1, "ents_per_type": [1]}', ["no scores of entities"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": 1, "ents_counts": {"A": {"tp": 1}}}', ["no scores of entities"]),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(UserError) as error:
        read_scores(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    with pytest.raises(UserError, match=r"metrics\.json: cannot be read: No such file or directory"):
        read_scores(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"metrics\.json: not valid JSON"):
        read_scores(path)


def test_labels_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"ents_p": 1, "ents_r": 0.5, "ents_f": 0.75, "ents_per_type": None}), encoding="utf8")
    assert read_scores(path).labels == {}


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_counts(metric: str) -> None:
    counts = [(6, 2, 4), (0, 3, 1), (0, 0, 0), (5, 0, 0)]
    expected = [getattr(Confusion(*count).score, metric) for count in counts]
    assert score_counts(np.array(counts), metric).tolist() == pytest.approx(expected)
