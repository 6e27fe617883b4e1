"""What a training comes from: every change that may matter is named, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from thinc.api import Config

from spacy_tener.workbench.runs.fingerprint import Fingerprint, digest, fingerprint, input_changes, version_changes

TEXT = """
[paths]
train = {train}
vectors = {vectors}

[nlp]
lang = "zh"
pipeline = ["ner"]

[components]

[components.ner]
factory = "ner"
{component}

[training]
steps = {steps}
corpus = ${{paths.train}}

[training.logger]
@loggers = "spacy.ConsoleLogger.v3"
output_file = {log}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.spacy").write_bytes(b"1")
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "key2row").write_bytes(b"1")
    return tmp_path


def made(*, train: str = '"train.spacy"', vectors: str = '"vectors"', **values: object) -> Fingerprint:
    defaults = {"component": "", "steps": 10, "log": "null", **values}
    config = Config().from_str(TEXT.format(train=train, vectors=vectors, **defaults), interpolate=False)
    return fingerprint(config)


def test_the_same_config_and_data_are_the_same() -> None:
    assert input_changes(made(), made()) == []
    assert version_changes(made(), made()) == []


def test_a_changed_value_is_named_with_what_it_was() -> None:
    assert input_changes(made(), made(steps=20)) == ["training.steps: was 10, is 20"]


def test_floats_are_shown_as_they_are_written() -> None:
    assert input_changes(made(steps=0.1), made(steps=0.3)) == ["training.steps: was 0.1, is 0.3"]


def test_a_setting_that_comes_or_goes_is_named() -> None:
    longer = made(component="window = 5")
    assert input_changes(made(), longer) == ["components.ner.window: was nothing, is 5"]
    assert input_changes(longer, made()) == ["components.ner.window: was 5, is nothing"]


def test_other_contents_of_a_file_are_named_wherever_it_is_used(here: Path) -> None:
    before = made()
    (here / "train.spacy").write_bytes(b"2")
    assert input_changes(before, made()) == [
        "paths.train: train.spacy has other contents",
        "training.corpus: train.spacy has other contents",
    ]


def test_a_file_may_move(here: Path) -> None:
    before = made()
    (here / "elsewhere").mkdir()
    (here / "train.spacy").rename(here / "elsewhere" / "moved.spacy")
    assert input_changes(before, made(train='"elsewhere/moved.spacy"')) == []
    assert input_changes(before, made(train='"missing.spacy"'))[0] == (
        'paths.train: was train.spacy, is "missing.spacy"'
    )


def test_all_files_of_a_directory_count(here: Path) -> None:
    before = made()
    (here / "vectors" / "data").write_bytes(b"1")
    assert input_changes(before, made()) == ["paths.vectors: vectors has other contents"]


def test_hidden_files_and_names_of_places_do_not_count(here: Path) -> None:
    before = digest(here / "vectors")
    (here / "vectors" / ".cache").write_bytes(b"1")
    (here / "vectors").rename(here / "others")
    assert digest(here / "others") == before
    (here / "others" / "key2row").rename(here / "others" / "row2key")
    assert digest(here / "others") != before


def test_a_directory_that_has_the_name_of_some_value_is_not_taken_for_it(here: Path) -> None:
    before = made()
    for name in ("ner", "zh"):
        (here / name).mkdir()
    assert input_changes(before, made()) == []


def test_a_source_of_a_component_counts(here: Path) -> None:
    (here / "model").mkdir()
    (here / "model" / "weights").write_bytes(b"1")
    before = made(component='source = "model"')
    (here / "model" / "weights").write_bytes(b"2")
    assert input_changes(before, made(component='source = "model"')) == [
        "components.ner.source: model has other contents"
    ]


def test_the_logger_does_not_count() -> None:
    assert input_changes(made(), made(log='"training.jsonl"')) == []


def test_code_counts(here: Path) -> None:
    code = here / "functions.py"
    code.write_text("x = 1", encoding="utf8")
    config = Config().from_str("[paths]\ntrain = null\n")
    before = fingerprint(config, code=code)
    code.write_text("x = 2", encoding="utf8")
    assert input_changes(before, fingerprint(config, code=code)) == [f"--code: {code} has other contents"]
    assert input_changes(before, fingerprint(config)) == [f"--code: was {code}, is nothing"]


def test_versions_and_device_are_told_apart_from_inputs() -> None:
    before = made()
    assert {"python", "spacy", "thinc", "torch", "numpy"} <= set(before.versions)
    config = Config().from_str("[paths]\ntrain = null\n")
    cpu, gpu = fingerprint(config), fingerprint(config, use_gpu=1)
    assert input_changes(cpu, gpu) == []
    assert version_changes(cpu, gpu) == ["device: was cpu, is gpu"]
    assert version_changes(gpu, fingerprint(config, use_gpu=0)) == []
    without = Fingerprint({}, {"spacy": "3.8"})
    assert version_changes(Fingerprint({}, {}), without) == ["spacy: was not there, is 3.8"]


def test_long_values_are_shortened() -> None:
    (change,) = input_changes(made(), made(component=f'window = "{"x" * 500}"'))
    assert len(change) < 200
