"""The logger that writes the progress of a training run to a JSONL file."""

from __future__ import annotations

import io
from pathlib import Path

import spacy
import srsly

from spacy_tener.pipeline.learning.callbacks import json_lines_logger


def test_logger_creates_parent_directories(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "first" / "log.jsonl"
    nlp = spacy.blank("zh")
    nlp.config["training"] = {"score_weights": {"ents_f": 1.0}, "max_steps": 1, "eval_frequency": 1}  # type: ignore[index]
    log, _ = json_lines_logger(str(path))(nlp, io.StringIO(), io.StringIO())
    log({"epoch": 0, "step": 1, "losses": {}, "other_scores": {"ents_f": 0.5}, "score": 0.5})
    assert [row["scores"] for row in srsly.read_jsonl(path)] == [{"ents_f": 50.0}]
