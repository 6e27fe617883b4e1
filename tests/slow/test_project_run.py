"""The spaCy project, run in a copy with the sample corpus and a short training run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin
from spacy.vocab import Vocab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SHORT_TRAINING = "-s training.max_steps=40 -s training.eval_frequency=20"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "assets" / "sample", folder / "assets" / "sample")
    shutil.copy(ROOT / "project.yml", folder)
    for name in ("spacy_tener", "research", "configs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(project: Path, workflow: str, *variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    plain_output = {"PYTHONIOENCODING": "utf8", "NO_COLOR": "1", "COLUMNS": "200"}
    result = subprocess.run(
        [sys.executable, "-m", "spacy", "project", "run", workflow, ".", "--vars.settings", SHORT_TRAINING, *variables],
        cwd=project,
        env={**environment, **plain_output},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf8",
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def workflow_output(project: Path) -> str:
    return run(project, "all")


def test_workflow_converts_trains_scores_and_writes_pages(project: Path, workflow_output: str) -> None:
    folder = project / "project" / "training" / "sample" / "lac" / "1"
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf8"))
    assert f"{100 * metrics['ents_f']:.2f}" in workflow_output
    assert spacy.load(folder / "model-best").pipe_names == ["tener_ner"]
    page = (project / "project" / "pages" / "sample-lac.html").read_text(encoding="utf8")
    texts = DocBin().from_disk(project / "project" / "corpus" / "sample" / "test.spacy").get_docs(Vocab())
    assert all(json.dumps(doc.text, ensure_ascii=False) in page for doc in texts)
    assert '"page":"sample-lac-why.html"' in page
    assert 'id="attributions"' in (project / "project" / "pages" / "sample-lac-why.html").read_text(encoding="utf8")


@pytest.mark.usefixtures("workflow_output")
def test_second_run_skips_all_steps(project: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (project / "project" / "training").rglob("*")}
    again = run(project, "all")
    assert again.count("nothing changed") == 3
    assert "Running command" not in again
    assert {path: path.stat().st_mtime_ns for path in (project / "project" / "training").rglob("*")} == before


@pytest.mark.usefixtures("workflow_output")
def test_package_command_builds_wheel(project: Path) -> None:
    run(project, "package", "--vars.version", "2.0.1")
    (wheel,) = (project / "project" / "packages").glob("*/dist/*.whl")
    assert wheel.name == "zh_sample-2.0.1-py3-none-any.whl"
    assert "nothing changed" in run(project, "package", "--vars.version", "2.0.1")


def test_missing_licensed_corpus_raises_error(project: Path) -> None:
    with pytest.raises(AssertionError, match=r"Missing: assets/msra/train\.char\.bmes, assets/msra/test"):
        run(project, "msra")
