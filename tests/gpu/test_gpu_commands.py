"""Commands with `--gpu-id`: conversion, training, and evaluation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import srsly
from small_systems import TEXTS
from spacy.util import load_config

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "weibo.cfg"
SIZES = {"width": 16, "heads": 2}


def run_module(*command):
    result = subprocess.run([sys.executable, "-m", *command], capture_output=True, encoding="utf8", check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.gpu
def test_grid_training_and_evaluation_run_on_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    parts = [f"{part}.jsonl" for part in ("train", "dev", "test")]
    for part in parts:
        lines = ({"text": text, "label": [list(entity) for entity in entities]} for text, entities in TEXTS)
        srsly.write_jsonl(tmp_path / part, lines)
    run_module("spacy", "tener", "convert", *parts, "-o", "corpus/small", "--lang", "zh")
    config = load_config(CONFIG)
    config["components"]["tener_ner"]["model"]["tok2vec"].update(SIZES)
    config["training"].update({"max_steps": 8, "eval_frequency": 4})
    Path("configs/models").mkdir(parents=True)
    config.to_disk("configs/small.cfg")
    systems = ["--configs", "configs", "--corpora", "small", "--systems", "tener", "--seeds", "1"]
    run_module("research", "grid", "out", *systems, "--gpu-id", "0")
    model, test, gpu = "out/small/tener/1/model-best", "corpus/small/test.spacy", ["--gpu-id", "0"]
    run_module("spacy", "evaluate", model, test, *gpu, "--output", "scores.json")
    score = srsly.read_json("scores.json")["ents_f"]
    table = run_module("spacy", "tener", "evaluate", model, test, *gpu, "--output", "tener.json")
    assert srsly.read_json("tener.json")["ents_f"] == pytest.approx(score, abs=1e-6)
    assert re.search(rf"^All .*\b{100 * score:.2f}\b", table, re.MULTILINE)
