"""Without torch, in an environment with nothing but what pip installs: a trained pipeline runs there, and is small.

The packages come from the registry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spacy.cli.package import package
from spacy.language import Language
from test_packaging import ROOT, build, copy_sources

pytestmark = pytest.mark.slow

TEXT = "吴重阳在中国银行工作。"
MEGABYTES = 360
"""Of the packages, pip itself among them. Plain spaCy takes 331, of which .pyc files are 56, numpy's tests 26, pip and
setuptools 24; this package and its matcher of words take 7."""
PREDICT = """
import json, sys, spacy
nlp = spacy.load(sys.argv[1])
found = [[ent.start_char, ent.end_char, ent.label_] for ent in nlp(sys.argv[2]).ents]
print(json.dumps({"found": found, "torch": any(name.split(".")[0] == "torch" for name in sys.modules)}))
"""


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this package, made of a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    (made,) = build("wheel", copy_sources(folder / "source"), folder / "built")
    return made


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


def predictions(python: Path, pipeline: object) -> list[list[object]]:
    answer = json.loads(run(python, "-c", PREDICT, pipeline, TEXT))
    assert not answer["torch"]
    found: list[list[object]] = answer["found"]
    return found


def entities(nlp: Language) -> list[list[object]]:
    found = [[ent.start_char, ent.end_char, ent.label_] for ent in nlp(TEXT).ents]
    assert found == [[0, 3, "PER"], [4, 8, "ORG"]]
    return found


def test_a_saved_pipeline_runs_and_the_environment_is_small(
    distribution: Path, python: Path, train, tmp_path: Path
) -> None:
    nlp = train()
    nlp.to_disk(tmp_path / "saved")
    install(python, distribution)
    assert predictions(python, tmp_path / "saved") == entities(nlp)
    installed = {line.split("==")[0].lower() for line in run(python, "-m", "pip", "freeze").splitlines()}
    assert not installed & {"torch", "transformers", "scipy", "cupy"}
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and not path.is_symlink()) / 2**20
    print(f"{size:.0f} MB installed")
    assert size < MEGABYTES


def test_the_wheel_of_a_pipeline_is_installed_by_one_command(
    distribution: Path, python: Path, train, tmp_path: Path
) -> None:
    nlp = train()
    nlp.to_disk(tmp_path / "saved")
    (tmp_path / "packages").mkdir()
    package(
        tmp_path / "saved",
        tmp_path / "packages",
        name="tiny",
        version="1.0.0",
        create_sdist=False,
        create_wheel=True,
        require_parent=True,
    )
    (wheel,) = (tmp_path / "packages").glob("*/dist/*.whl")
    # The only thing that the registry does not have is this package.
    install(python, "--find-links", distribution.parent, wheel)
    assert predictions(python, "zh_tiny") == entities(nlp)
