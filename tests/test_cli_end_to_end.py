"""Everything by spaCy's own commands; training in a process of its own, which finds the package by its entry points."""

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
from spacy.cli._util import app
from spacy.util import load_config

import spacy_tener.cli  # noqa: F401 (puts `tener` into spaCy's command line)

pytestmark = pytest.mark.integration

CONFIG = Path(__file__).parent.parent / "configs" / "weibo.cfg"
SENTENCES = "王 B-PER\n小 M-PER\n明 E-PER\n去 O\n上 B-GPE\n海 E-GPE\n\n京 S-GPE\n\n今 O\n天 O\n\n"
CORPUS = ["--paths.train", "corpus/train.spacy", "--paths.dev", "corpus/dev.spacy"]
MODEL = "--components.tener_ner.model"
TINY = [f"{MODEL}.tok2vec.width", "16", f"{MODEL}.tok2vec.heads", "2", f"{MODEL}.tok2vec.embed.width", "8"]
SHORT = ["--training.max_steps", "2", "--training.eval_frequency", "1"]


@dataclass
class Workspace:
    """A directory where commands ran, and what each of them printed."""

    path: Path
    printed: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str) -> None:
        """Run a command in this process, for the start of another takes longer than what most of them do."""
        output, before = io.StringIO(), Path.cwd()
        os.chdir(self.path)
        try:
            with redirect_stdout(output):
                app(list(command), standalone_mode=False)
        finally:
            os.chdir(before)
        self.printed[" ".join(command[:2])] = output.getvalue()

    def run_apart(self, *command: str) -> None:
        """Run a command in a process of its own."""
        plain = {"WASABI_LOG_FRIENDLY": "1", "NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        # No other PYTHONPATH: what is installed is what is tested.
        environment = {**os.environ, **hide_packages("transformers")}
        result = subprocess.run(
            [sys.executable, "-m", "spacy", *command],
            cwd=self.path,
            env={**environment, **plain, "PYTHONIOENCODING": "utf8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf8",
            check=False,
        )
        assert result.returncode == 0, f"spacy {' '.join(command)}:\n{result.stdout}"
        self.printed[" ".join(command[:2])] = result.stdout


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """From text files to scores."""
    work = Workspace(tmp_path_factory.mktemp("work"))
    for name in ("train", "dev"):
        (work.path / f"{name}.char.bmes").write_text(SENTENCES, encoding="utf8")
    work.run("tener", "convert", "train.char.bmes", "dev.char.bmes", "-o", "corpus")
    work.run("init", "fill-config", str(CONFIG), "full.cfg")
    work.run("init", "labels", "full.cfg", "labels", *CORPUS)
    work.run("debug", "config", "full.cfg", *CORPUS)
    work.run("debug", "model", "full.cfg", "tener_ner", "--print-step1", "--print-step3", *CORPUS, *TINY)
    read_labels(work.path)
    work.run_apart("train", "labelled.cfg", "--output", "training", *CORPUS, *TINY, *SHORT)
    work.run("evaluate", "training/model-last", "corpus/dev.spacy", "--output", "scores.json")
    work.run("benchmark", "speed", "training/model-last", "corpus/dev.spacy")
    return work


def read_labels(path: Path) -> None:
    """Let the config read its labels from the file of `init labels`, to which a label is added that the data lacks."""
    labels = path / "labels" / "tener_ner.json"
    srsly.write_json(labels, [*srsly.read_json(labels), "ORG"])
    config = load_config(path / "full.cfg")
    reader = {"@readers": "spacy.read_labels.v1", "path": "labels/tener_ner.json"}
    config["initialize"]["components"]["tener_ner"] = {"labels": reader}
    config.to_disk(path / "labelled.cfg")


def test_debug_config_finds_nothing_wrong(work: Workspace) -> None:
    assert "Config is valid" in work.printed["debug config"]


def test_debug_model_shows_the_layers_and_goes_through_training_and_prediction(work: Workspace) -> None:
    printed = work.printed["debug model"]
    assert "char_embed>>transformer_encoder>>crf_head" in printed
    assert "Initialized the model with the training corpus" in printed
    assert "Successfully ended analysis" in printed


def test_training_takes_the_labels_that_init_labels_wrote(work: Workspace) -> None:
    meta = srsly.read_json(work.path / "training" / "model-last" / "meta.json")
    assert meta["labels"] == {"tener_ner": ["GPE", "PER", "ORG"]}


def test_training_prints_losses_and_scores_and_saves_the_pipeline(work: Workspace) -> None:
    printed = work.printed["train labelled.cfg"]
    assert "LOSS TENER" in printed
    assert "ENTS_F" in printed
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[1] for row in rows] == ["0", "1", "2"]
    assert all(float(row[2]) > 0 for row in rows)
    assert (work.path / "training" / "model-best").is_dir()


def test_evaluate_scores_entities(work: Workspace) -> None:
    scores = srsly.read_json(work.path / "scores.json")
    assert {"ents_p", "ents_r", "ents_f", "ents_per_type", "speed"} <= set(scores)
    assert "NER F" in work.printed["evaluate training/model-last"]


def test_benchmark_measures_speed(work: Workspace) -> None:
    assert "words/s" in work.printed["benchmark speed"]


def test_the_trained_pipeline_can_be_trained_further(work: Workspace) -> None:
    nlp = spacy.load(work.path / "training" / "model-last")
    optimizer = nlp.resume_training()
    assert "learn_rate" in optimizer.schedules, "the config's schedule, which needs no other section to be resolved"
    assert optimizer.learn_rate > 0
    assert spacy.blank("zh").from_config(nlp.config).initialize() is not None


def test_the_command_line_loads_no_model_code() -> None:
    """spaCy imports its plugins' commands whatever command it runs: ours may not make all of them slower."""
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
    assert not loaded & {"layers", "models", "pipeline"}
