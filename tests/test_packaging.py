"""Packaging: entry points, the files in sdist and wheel, and requirements with their pinned versions."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from spacy.util import registry

import spacy_tener
from spacy_tener.requirements import TRANSFORMER

ROOT = Path(__file__).parent.parent
REGISTERED = re.compile(r"\bspacy_tener\.\w+\.v\d+\b")
# Group of entry points -> registry in which spaCy looks up their names.
REGISTRIES = {
    "spacy_factories": "_entry_point_factories",
    "spacy_architectures": "architectures",
    "spacy_misc": "misc",
    "spacy_scorers": "scorers",
    "spacy_callbacks": "callbacks",
    "spacy_loggers": "loggers",
    "spacy_readers": "readers",
    "spacy_tokenizers": "tokenizers",
    "spacy_cli": "cli",
    "thinc_optimizers": "optimizers",
    "thinc_schedules": "schedules",
}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
# Group -> name -> module:attribute.
DECLARED = PROJECT["entry-points"]
ENTRIES = [(group, name, target) for group, names in DECLARED.items() for name, target in names.items()]
NAMES = {name for _, name, _ in ENTRIES}


def test_installed_version_matches_package() -> None:
    assert distribution("spacy_tener").version == spacy_tener.__version__


def test_installed_entry_points_match_pyproject() -> None:
    installed: dict[str, dict[str, str]] = {}
    for entry in distribution("spacy_tener").entry_points:
        installed.setdefault(entry.group, {})[entry.name] = entry.value
    declared = {**DECLARED, "console_scripts": PROJECT["scripts"]}
    assert installed == declared, "pyproject.toml changed since the package was installed: run `make`"


@pytest.mark.parametrize(("group", "name", "target"), ENTRIES)
def test_entry_point_is_found_by_spacy_registry(group: str, name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    found: Any = getattr(registry, REGISTRIES[group]).get(name)
    assert found is getattr(importlib.import_module(module), attribute)
    assert callable(found)


@pytest.mark.parametrize(("name", "target"), [entry[1:] for entry in ENTRIES if entry[1].startswith("spacy_tener.")])
def test_registered_function_has_version_and_docstring(name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    assert REGISTERED.fullmatch(name)
    assert getattr(importlib.import_module(module), attribute).__doc__
    assert name in inspect.getsource(importlib.import_module(module))


def test_names_in_configs_and_code_are_registered() -> None:
    # renamed.py lists names of earlier versions.
    code = [path for path in (ROOT / "spacy_tener").rglob("*.py") if path.name != "renamed.py"]
    files = [*ROOT.glob("configs/**/*.cfg"), *code]
    names = {name: path for path in files for name in REGISTERED.findall(path.read_text(encoding="utf8"))}
    assert names
    assert {name: path.name for name, path in names.items() if name not in NAMES} == {}


def test_package_import_does_not_load_spacy_or_torch() -> None:
    code = "import sys, spacy_tener; print(sorted({'spacy', 'thinc', 'torch'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_all_directories_with_code_are_packages() -> None:
    with_code = {path.parent for path in (ROOT / "spacy_tener").rglob("*.py")}
    assert {directory for directory in with_code if not (directory / "__init__.py").exists()} == set()


@pytest.mark.parametrize(("link", "source"), [("reader.py", "python/tener_reader.py"), ("reader.js", "js/reader.js")])
def test_readers_are_symlinks_to_published_readers(link: str, source: str) -> None:
    path = ROOT / "spacy_tener" / "export" / link
    assert path.is_symlink()
    assert path.resolve() == ROOT / "readers" / source


def test_package_contains_py_typed_marker() -> None:
    assert (Path(spacy_tener.__file__).parent / "py.typed").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel that was built from the sdist. Both are built from copies, so the source tree is unchanged."""
    folder = tmp_path_factory.mktemp("build")
    source = copy_sources(folder / "source")
    (sdist,) = build_package("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (packed,) = build_package("wheel", next((folder / "unpacked").iterdir()), folder / "wheel")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def copy_sources(source: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("spacy_tener", "research", "scripts", "assets/sample"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for path in (path for path in ROOT.iterdir() if path.is_file()):
        shutil.copy(path, source)
    (source / "configs").symlink_to(Path("spacy_tener") / "training" / "configs")
    return source


def build_package(kind: str, source: Path, output: Path) -> list[Path]:
    output.mkdir()
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(output)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    return list(output.iterdir())


def test_sdist_and_wheel_contain_all_package_files(wheel: Path) -> None:
    def files(folder: Path) -> set[Path]:
        found = {path for name in ("spacy_tener", "configs") for path in (folder / name).rglob("*") if path.is_file()}
        return {path.relative_to(folder) for path in found if path.suffix != ".pyc"}

    (unpacked,) = (wheel.parent / "unpacked").iterdir()
    source_files = {path for path in files(ROOT) if path.parts[0] == "spacy_tener"}
    assert sum(path.suffix == ".cfg" for path in source_files) > 20
    assert files(unpacked) == files(wheel) == source_files
    assert (unpacked / "project.yml").exists()
    assert {path.name.partition("-")[0] for path in wheel.iterdir()} == {"spacy_tener"}, "no research in a wheel"


def test_installed_wheel_finds_configs_by_name(wheel: Path, tmp_path: Path, without_torch: None) -> None:
    code = "import spacy_tener; print(spacy_tener.__file__); from spacy.cli import setup_cli; setup_cli()"
    command = [sys.executable, "-c", code, "tener", "config", "weibo", "flat-atssa", "--output", "out.cfg"]
    environment = {**os.environ, "PYTHONPATH": f"{wheel}{os.pathsep}{os.environ['PYTHONPATH']}"}
    found = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert Path(found.stdout.splitlines()[0]).parent == wheel / "spacy_tener"
    assert "spacy_tener.FLAT_ATSSA.v1" in (tmp_path / "out.cfg").read_text(encoding="utf8")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_clean_keeps_files_of_users() -> None:
    def make_output(target: str) -> set[str]:
        command = ["make", "--dry-run", target]
        return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())

    of_users = {"project", "vectors", "project.lock"}
    assert make_output("clean") & of_users == set()
    assert ".venv" in make_output("clean")
    assert make_output("clean-project") & {*of_users, ".venv", "assets"} == of_users


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf8").splitlines()
    return {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }


EXTRAS = PROJECT["optional-dependencies"]
# `make` does not install CuPy, which requires a CUDA device.
INSTALLED = [text for extra in EXTRAS if not extra.startswith("cuda") for text in EXTRAS[extra]]


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *INSTALLED])
def test_requirement_is_pinned_to_compatible_version(text: str) -> None:
    requirement = Requirement(text)
    if requirement.name == "spacy_tener":
        assert requirement.extras <= set(EXTRAS)
        return
    assert requirement.specifier.contains(pinned_versions()[canonicalize_name(requirement.name)])


def test_transformer_requirements_are_in_extra() -> None:
    assert set(TRANSFORMER) <= set(EXTRAS["transformers"])


def test_pinned_versions_have_no_local_build_tag() -> None:
    assert not [name for name, version in pinned_versions().items() if "+" in version]
