"""What earlier versions promised: their pipelines load and find what they found, and no name or option goes."""

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


def expected(path: Path) -> dict[str, dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, dict[str, Any]] = json.loads(archive.read(EXPECTED))
    return found


PIPELINES = [(path.stem, name) for path in ARCHIVES for name in expected(path)]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("promised")
    for path in ARCHIVES:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder / path.stem)
    return folder


@pytest.mark.parametrize(("version", "name"), PIPELINES)
def test_a_saved_pipeline_finds_what_it_found(version: str, name: str, unpacked: Path) -> None:
    promised = expected(DATA / f"{version}.zip")[name]
    found = predictions(spacy.load(unpacked / version / name), promised["texts"])
    assert found["ents"] == promised["ents"]
    assert found["scored"] == promised["scored"]
    assert found["probabilities"] == pytest.approx(promised["probabilities"], abs=1e-4)
    assert promised["probabilities"], "a pipeline that finds nothing proves nothing"


def test_there_is_one_of_every_architecture_and_tokenizer(unpacked: Path) -> None:
    """A name that is added is packed by the version that brings it: `python tests/make_promised.py`."""
    configs = [Config().from_disk(path, interpolate=False) for path in unpacked.glob("*/*/config.cfg")]
    packed = "".join(config.to_str(interpolate=False) for config in configs)
    registered = PROJECT["entry-points"]
    names = {*registered["spacy_architectures"], *registered["spacy_tokenizers"]}
    assert {name for name in names if f'"{name}"' not in packed} == set()


def test_they_are_small() -> None:
    assert all(path.stat().st_size < 300_000 for path in ARCHIVES)
    assert ARCHIVES


@pytest.mark.parametrize("path", LISTS, ids=[path.stem for path in LISTS])
def test_nothing_goes_that_was_promised(path: Path) -> None:
    now = set(promises())
    gone = [line for line in path.read_text(encoding="utf8").splitlines() if line not in now]
    assert not gone, (
        f"These went, or have another default or kind, than in {path.stem}: bring them back, beside what is new. Only "
        f"if that version is not released yet: python tests/promises.py > tests/data/{path.name}"
    )


def test_the_page_names_all_that_is_promised_and_all_that_is_provisional() -> None:
    """Names without `spacy_tener.`; the options of each command are in its reference."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf8")
    assert len(page.splitlines()) <= 160
    kept, _, provisional = page.partition("## Provisional")
    registered = {name for names in PROJECT["entry-points"].values() for name in names}
    promised = {line.split()[1] for line in promises() if line.split()[0] in PROJECT["entry-points"]}
    methods = {name for names in METHODS.values() for name in names}
    settings = {*inspect.signature(make_tener_ner).parameters} - {"nlp", "name"}
    answers = {line.split()[1] for line in promises() if re.match("(GET|POST) .* 200$", line)}
    named = {*promised, *PROMISED_COMMANDS, *PROJECT["optional-dependencies"], *methods, *settings, *answers}
    assert missing(kept, named) == []
    assert missing(provisional, {*registered - promised, *set(COMMANDS) - set(PROMISED_COMMANDS)}) == []


def missing(page: str, names: set[str]) -> list[str]:
    short = {name.removeprefix("spacy_tener.") for name in names}
    return sorted(name for name in short if not re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w/-])", page))


def test_each_version_with_pipelines_has_a_list() -> None:
    assert [path.stem for path in LISTS] == [path.stem for path in ARCHIVES]
