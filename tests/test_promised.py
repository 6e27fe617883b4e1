"""Backward compatibility: pipelines of earlier versions predict the same entities, and the public interface remains."""

from __future__ import annotations

import inspect
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import spacy
from make_promised import DATA, EXPECTED, predictions
from promises import COMMANDS as PROMISED_COMMANDS
from promises import METHODS, promises
from test_packaging import PROJECT, ROOT
from thinc.api import Config

from spacy_tener.cli import COMMANDS
from spacy_tener.pipeline.factory import make_tener_ner

ARCHIVES = sorted(DATA.glob("promised-*.zip"))
LISTS = sorted(DATA.glob("promised-*.txt"))


def read_expected(path: Path) -> dict[str, dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, dict[str, Any]] = json.loads(archive.read(EXPECTED))
    return found


PIPELINES = [(path.stem, name) for path in ARCHIVES for name in read_expected(path)]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("promised")
    for path in ARCHIVES:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder / path.stem)
    return folder


@pytest.mark.parametrize(("version", "name"), PIPELINES)
def test_saved_pipeline_predicts_same_entities(version: str, name: str, unpacked: Path) -> None:
    promised = read_expected(DATA / f"{version}.zip")[name]
    found = predictions(spacy.load(unpacked / version / name), promised["texts"])
    assert found["ents"] == promised["ents"]
    assert found["scored"] == promised["scored"]
    assert found["probabilities"] == pytest.approx(promised["probabilities"], abs=1e-4)
    assert promised["probabilities"], "the pipeline predicts no entities to compare"


def test_archives_cover_all_architectures_and_tokenizers(unpacked: Path) -> None:
    """If this fails for a new name, create its pipeline with `python tests/make_promised.py`."""
    configs = [Config().from_disk(path, interpolate=False) for path in unpacked.glob("*/*/config.cfg")]
    packed = "".join(config.to_str(interpolate=False) for config in configs)
    registered = PROJECT["entry-points"]
    names = {*registered["spacy_architectures"], *registered["spacy_tokenizers"]}
    assert {name for name in names if f'"{name}"' not in packed} == set()


def test_archives_are_small() -> None:
    assert all(path.stat().st_size < 300_000 for path in ARCHIVES)
    assert ARCHIVES


@pytest.mark.parametrize("path", LISTS, ids=[path.stem for path in LISTS])
def test_promised_interface_is_still_available(path: Path) -> None:
    current = set(promises())
    removed = [line for line in path.read_text(encoding="utf8").splitlines() if line not in current]
    assert not removed, (
        f"These were removed since {path.stem}, or have another default or type. Restore them. Only if this version is "
        f"not released yet: python tests/promises.py > tests/data/{path.name}"
    )


def test_page_lists_promised_and_provisional_names() -> None:
    """The page contains names without `spacy_tener.`. The options of commands are documented in their reference."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf8")
    assert len(page.splitlines()) <= 160
    stable, _, provisional = page.partition("## Provisional")
    registered = {name for names in PROJECT["entry-points"].values() for name in names}
    promised = {line.split()[1] for line in promises() if line.split()[0] in PROJECT["entry-points"]}
    methods = {name for names in METHODS.values() for name in names}
    settings = {*inspect.signature(make_tener_ner).parameters} - {"nlp", "name"}
    answers = {line.split()[1] for line in promises() if re.match("(GET|POST) .* 200$", line)}
    named = {*promised, *PROMISED_COMMANDS, *PROJECT["optional-dependencies"], *methods, *settings, *answers}
    assert missing_names(stable, named) == []
    assert missing_names(provisional, {*registered - promised, *set(COMMANDS) - set(PROMISED_COMMANDS)}) == []


def missing_names(page: str, names: set[str]) -> list[str]:
    short = {name.removeprefix("spacy_tener.") for name in names}
    return sorted(name for name in short if not re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", page))


def test_versions_with_archives_have_interface_lists() -> None:
    assert [path.stem for path in LISTS] == [path.stem for path in ARCHIVES]
