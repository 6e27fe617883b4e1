"""spaCy's own commands. Training runs in a new process, which finds the package by its entry points."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import spacy
import srsly
from command_line import hide_packages
from spacy.util import load_config

from spacy_tener.cli.spacy_command import app

pytestmark = pytest.mark.integration

CONFIG = Path(__file__).parent.parent / "configs" / "weibo.cfg"
SENTENCES = "王 B-PER\n小 M-PER\n明 E-PER\n去 O\n上 B-GPE\n海 E-GPE\n\n京 S-GPE\n\n今 O\n天 O\n\n"
CORPUS = ["--paths.train", "corpus/train.spacy", "--paths.dev", "corpus/dev.spacy"]
MODEL = "--components.tener_ner.model"
SMALL_MODEL = [f"{MODEL}.tok2vec.width", "16", f"{MODEL}.tok2vec.heads", "2", f"{MODEL}.tok2vec.embed.width", "8"]
SHORT_TRAINING = ["--training.max_steps", "2", "--training.eval_frequency", "1"]


@dataclass
class Workspace:
    """A directory in which commands are run, and the output of each command."""

    path: Path
    output_by_command: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str) -> None:
        """Run a command in this process, since starting a new process takes longer than most commands."""
        output, before = io.StringIO(), Path.cwd()
        os.chdir(self.path)
        try:
            with redirect_stdout(output):
                app(list(command), standalone_mode=False)
        finally:
            os.chdir(before)
        self.output_by_command[" ".join(command[:2])] = output.getvalue()

    def run_in_subprocess(self, *command: str) -> None:
        """Run a command in a new process."""
        plain_output = {"WASABI_LOG_FRIENDLY": "1", "NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        # This replaces PYTHONPATH, so that the installed package is tested.
        environment = {**os.environ, **hide_packages("transformers")}
        result = subprocess.run(
            [sys.executable, "-m", "spacy", *command],
            cwd=self.path,
            env={**environment, **plain_output, "PYTHONIOENCODING": "utf8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf8",
            check=False,
        )
        assert result.returncode == 0, f"spacy {' '.join(command)}:\n{result.stdout}"
        self.output_by_command[" ".join(command[:2])] = result.stdout


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace in which a corpus was converted, and a pipeline was trained and evaluated."""
    workspace = Workspace(tmp_path_factory.mktemp("work"))
    for name in ("train", "dev"):
        (workspace.path / f"{name}.char.bmes").write_text(SENTENCES, encoding="utf8")
    workspace.run("tener", "convert", "train.char.bmes", "dev.char.bmes", "-o", "corpus")
    workspace.run("init", "fill-config", str(CONFIG), "full.cfg")
    workspace.run("init", "labels", "full.cfg", "labels", *CORPUS)
    workspace.run("debug", "config", "full.cfg", *CORPUS)
    workspace.run("debug", "model", "full.cfg", "tener_ner", "--print-step1", "--print-step3", *CORPUS, *SMALL_MODEL)
    read_labels(workspace.path)
    workspace.run_in_subprocess("train", "labelled.cfg", "--output", "training", *CORPUS, *SMALL_MODEL, *SHORT_TRAINING)
    workspace.run("evaluate", "training/model-last", "corpus/dev.spacy", "--output", "scores.json")
    workspace.run("benchmark", "speed", "training/model-last", "corpus/dev.spacy")
    return workspace


def read_labels(path: Path) -> None:
    """Add a label that the data lacks to the file of `init labels`, and use this file in the config."""
    labels = path / "labels" / "tener_ner.json"
    srsly.write_json(labels, [*srsly.read_json(labels), "ORG"])
    config = load_config(path / "full.cfg")
    reader = {"@readers": "spacy.read_labels.v1", "path": "labels/tener_ner.json"}
    config["initialize"]["components"]["tener_ner"] = {"labels": reader}
    config.to_disk(path / "labelled.cfg")


def test_debug_config_reports_valid_config(workspace: Workspace) -> None:
    assert "Config is valid" in workspace.output_by_command["debug config"]


def test_debug_model_prints_layers_and_completes(workspace: Workspace) -> None:
    output = workspace.output_by_command["debug model"]
    assert "char_embed>>transformer_encoder>>crf_head" in output
    assert "Initialized the model with the training corpus" in output
    assert "Successfully ended analysis" in output


def test_training_uses_labels_from_init_labels(workspace: Workspace) -> None:
    meta = srsly.read_json(workspace.path / "training" / "model-last" / "meta.json")
    assert meta["labels"] == {"tener_ner": ["GPE", "PER", "ORG"]}


def test_training_prints_scores_and_saves_pipeline(workspace: Workspace) -> None:
    output = workspace.output_by_command["train labelled.cfg"]
    assert "LOSS TENER" in output
    assert "ENTS_F" in output
    rows = [line.split() for line in output.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[1] for row in rows] == ["0", "1", "2"]
    assert all(float(row[2]) > 0 for row in rows)
    assert (workspace.path / "training" / "model-best").is_dir()


def test_evaluate_scores_entities(workspace: Workspace) -> None:
    scores = srsly.read_json(workspace.path / "scores.json")
    assert {"ents_p", "ents_r", "ents_f", "ents_per_type", "speed"} <= set(scores)
    assert "NER F" in workspace.output_by_command["evaluate training/model-last"]


def test_benchmark_measures_speed(workspace: Workspace) -> None:
    assert "words/s" in workspace.output_by_command["benchmark speed"]


def test_trained_pipeline_can_resume_training(workspace: Workspace) -> None:
    nlp = spacy.load(workspace.path / "training" / "model-last")
    optimizer = nlp.resume_training()
    assert "learn_rate" in optimizer.schedules, "the config's schedule, which needs no other section to be resolved"
    assert optimizer.learn_rate > 0
    assert spacy.blank("zh").from_config(nlp.config).initialize() is not None


def test_command_line_does_not_import_model_code() -> None:
    """spaCy imports the commands of all plugins when it runs any command, so the import must be fast."""
    code = """
import sys
for name in ("torch", "gensim", "jieba", "matplotlib"):
    sys.modules[name] = None
import spacy_tener.cli
print(*(name for name in sys.modules if name.startswith("spacy_tener.")))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in result.stdout.split()}
    assert "cli" in loaded
    assert not loaded & {"architectures", "crf", "embedders", "nn", "onnx", "pipeline"}
