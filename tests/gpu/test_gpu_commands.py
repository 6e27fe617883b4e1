"""The commands with `--gpu-id`, from text files to scores; and a grid that is killed. By a CPU where tests are slow."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import srsly
from small_systems import TEXTS
from spacy.util import load_config

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "weibo.cfg"
SIZES = {"width": 16, "heads": 2}


@pytest.fixture(params=[pytest.param(-1, marks=pytest.mark.slow), pytest.param(0, marks=pytest.mark.gpu)])
def gpu_id(request):
    return str(request.param)


@pytest.fixture
def work_dir(tmp_path, monkeypatch):
    """A corpus, converted, and its config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    for part in ("train", "dev", "test"):
        lines = ({"text": text, "label": [list(entity) for entity in entities]} for text, entities in TEXTS)
        srsly.write_jsonl(tmp_path / f"{part}.jsonl", lines)
    spacy_command("tener", "convert", "train.jsonl", "dev.jsonl", "test.jsonl", "-o", "corpus/small", "--lang", "zh")
    config = load_config(CONFIG)
    config["components"]["tener_ner"]["model"]["tok2vec"].update(SIZES)
    config["training"].update({"max_steps": 8, "eval_frequency": 4})
    Path("configs/models").mkdir(parents=True)
    config.to_disk("configs/small.cfg")
    return tmp_path


def spacy_command(*command):
    return module_command("spacy", *command)


def module_command(*command):
    result = subprocess.run([sys.executable, "-m", *command], capture_output=True, encoding="utf8", check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_grid_that_is_killed_goes_on_and_what_it_trained_is_evaluated(work_dir, gpu_id):
    systems = ["--configs", "configs", "--corpora", "small", "--systems", "tener", "--seeds", "1,2"]
    grid = ["research", "grid", "out", *systems, "--gpu-id", gpu_id]
    killed = subprocess.Popen(
        [sys.executable, "-m", *grid],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    first, second = (work_dir / "out" / "small" / "tener" / seed for seed in "12")
    deadline = time.monotonic() + 300
    while not second.exists() and time.monotonic() < deadline and killed.poll() is None:
        time.sleep(0.2)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    scores = (first / "metrics.json").read_bytes()
    assert not (second / "metrics.json").exists()
    module_command(*grid)
    assert (first / "metrics.json").read_bytes() == scores
    assert (second / "metrics.json").exists()
    model = str(first / "model-best")
    spacy_command("evaluate", model, "corpus/small/test.spacy", "--gpu-id", gpu_id, "--output", "scores.json")
    score = srsly.read_json("scores.json")["ents_f"]
    table = spacy_command(
        "tener", "evaluate", model, "corpus/small/test.spacy", "--gpu-id", gpu_id, "--output", "own.json"
    )
    assert srsly.read_json("own.json")["ents_f"] == pytest.approx(score, abs=1e-6)
    assert re.search(rf"^All .*\b{100 * score:.2f}\b", table, re.MULTILINE)
