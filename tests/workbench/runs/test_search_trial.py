"""One training of a search: how it ends, and what is known of it then. A few lines of Python train instead of spaCy."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from spacy_tener.workbench.report.runs import MODEL
from spacy_tener.workbench.runs.search_trial import LOG, TRAIN, Outcome, best_score, train

SAVE = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
for name in ("model-best", "model-last"):
    (out / name).mkdir()
    (out / name / "meta.json").write_text(json.dumps({"performance": {"ents_f": SCORE}}))
"""


@pytest.fixture
def trained(tmp_path: Path):
    (tmp_path / "config.cfg").write_text("")

    def run(code: str, **options) -> Outcome:
        (tmp_path / "trainer.py").write_text(code, encoding="utf8")
        return train(tmp_path, gpu_id=-1, command=(sys.executable, str(tmp_path / "trainer.py")), **options)

    return run


def test_the_score_is_that_of_the_checkpoint_that_was_chosen(trained, tmp_path: Path) -> None:
    assert trained(SAVE.replace("SCORE", "0.625")) == Outcome(0.625)
    assert (tmp_path / MODEL).is_dir()
    assert not (tmp_path / "model-last").exists()


def test_spacy_train_is_asked_with_config_output_and_gpu(trained, tmp_path: Path) -> None:
    trained("import sys; print(sys.argv[1:])")
    expected = [str(tmp_path / "config.cfg"), "--output", str(tmp_path), "--gpu-id", "-1"]
    assert (tmp_path / LOG).read_text().strip() == str(expected)
    assert TRAIN[1:] == ("-m", "spacy", "train")


def test_a_crash_is_explained_by_the_last_line_and_the_log_is_kept(trained, tmp_path: Path) -> None:
    outcome = trained("print('step 1'); raise ValueError('[E910] Encountered NaN loss value')")
    assert outcome == Outcome(None, "exit 1: ValueError: [E910] Encountered NaN loss value")
    log = (tmp_path / LOG).read_text()
    assert "step 1" in log
    assert "Traceback" in log


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("raise SystemExit(3)", "exit 3: nothing in its log"),
        ("pass", "no ents_f in the scores on dev"),
        (SAVE.replace("SCORE", "None"), "no ents_f in the scores on dev"),
    ],
)
def test_every_end_without_a_score_has_a_reason(trained, code: str, reason: str) -> None:
    assert trained(code) == Outcome(None, reason)


def test_a_damaged_meta_is_no_score(tmp_path: Path) -> None:
    (tmp_path / MODEL).mkdir()
    (tmp_path / MODEL / "meta.json").write_text("{")
    assert best_score(tmp_path) is None


ROWS = """
import time
print("E    #       LOSS TENER_NER  ENTS_F  ENTS_P  ENTS_R  SCORE ", flush=True)
print("---  ------  --------------  ------  ------  ------  ------", flush=True)
print("  0       0          123.45    0.00    0.00    0.00    0.00", flush=True)
print("  1      85        11234.45   40.00   40.00   40.00    0.40", flush=True)
"""


def test_a_watcher_hears_each_evaluation_once(trained) -> None:
    heard: list[tuple[int, float]] = []

    def watch(step: int, score: float) -> bool:
        heard.append((step, score))
        return False

    trained(f"{SAVE.replace('SCORE', '0.4')}\n{ROWS}\ntime.sleep(1.2)", watch=watch)
    assert heard == [(0, 0.0), (85, 0.4)]


def test_a_watcher_may_stop_a_training_which_keeps_its_score(trained) -> None:
    begin = time.monotonic()
    outcome = trained(f"{SAVE.replace('SCORE', '0.4')}\n{ROWS}\ntime.sleep(60)", watch=lambda step, score: step == 85)
    assert outcome == Outcome(0.4, None, pruned=True)
    assert time.monotonic() - begin < 20
