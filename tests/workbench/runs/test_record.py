"""What a training comes from: every change that may matter is named, and no other."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from thinc.api import Config

from spacy_tener.files import digest
from spacy_tener.workbench.runs.record import Record, changes, make_record, read_record, write_record

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


def made(*, train: str = '"train.spacy"', vectors: str = '"vectors"', **values: object) -> Record:
    defaults = {"component": "", "steps": 10, "log": "null", **values}
    config = Config().from_str(TEXT.format(train=train, vectors=vectors, **defaults), interpolate=False)
    return make_record(config)


def test_the_same_config_and_data_are_the_same() -> None:
    assert changes(made(), made()) == ()


def test_a_changed_value_is_named_with_what_it_was() -> None:
    assert changes(made(), made(steps=20)) == ("training.steps: was 10, is 20",)


def test_floats_are_shown_as_they_are_written() -> None:
    assert changes(made(steps=0.1), made(steps=0.3)) == ("training.steps: was 0.1, is 0.3",)


def test_a_setting_that_comes_or_goes_is_named() -> None:
    longer = made(component="window = 5")
    assert changes(made(), longer) == ("components.ner.window: was nothing, is 5",)
    assert changes(longer, made()) == ("components.ner.window: was 5, is nothing",)


def test_other_contents_of_a_file_are_named_wherever_it_is_used(here: Path) -> None:
    before = made()
    (here / "train.spacy").write_bytes(b"2")
    names = [line.partition(": was train.spacy (")[0] for line in changes(before, made())]
    assert names == ["paths.train", "training.corpus"]


def test_what_a_teacher_said_is_no_input(here: Path) -> None:
    """It is kept for other trainings, and grows with them."""
    names = accumulate(["initialize", "components", "ner", "teacher"], "{}.{}".format)
    sections = "\n".join(f"[{name}]" for name in names)
    section = f'\n{sections}\ncache_file = "lessons"\ncache_mb = {{}}\n'
    before = made(component=section.format(10))
    (here / "lessons").write_bytes(b"1")
    assert changes(before, made(component=section.format(20))) == ()


def test_a_file_may_move(here: Path) -> None:
    before = made()
    (here / "elsewhere").mkdir()
    (here / "train.spacy").rename(here / "elsewhere" / "moved.spacy")
    assert changes(before, made(train='"elsewhere/moved.spacy"')) == ()
    assert changes(before, made(train='"missing.spacy"'))[0].endswith(', is "missing.spacy"')


def test_all_files_of_a_directory_count(here: Path) -> None:
    before = made()
    (here / "vectors" / "data").write_bytes(b"1")
    (change,) = changes(before, made())
    assert change.startswith("paths.vectors: was vectors (")


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
    assert changes(before, made()) == ()


def test_a_source_of_a_component_counts(here: Path) -> None:
    (here / "model").mkdir()
    (here / "model" / "weights").write_bytes(b"1")
    before = made(component='source = "model"')
    (here / "model" / "weights").write_bytes(b"2")
    (change,) = changes(before, made(component='source = "model"'))
    assert change.startswith("components.ner.source: was model (")


def test_the_logger_does_not_count() -> None:
    assert changes(made(), made(log='"training.jsonl"')) == ()


def test_other_versions_count_only_where_something_else_differs() -> None:
    now = made()
    assert {"Python", "spacy_tener", "spacy", "thinc", "torch", "numpy"} <= set(now.versions)
    older = Record(now.inputs, {**now.versions, "torch": "1.0"})
    assert changes(older, now) == ()
    assert changes(older, made(steps=20)) == ("training.steps: was 10, is 20", "trained with torch 1.0")


def test_a_record_is_read_as_it_was_written(here: Path) -> None:
    record = Record(made().inputs, made().versions, evaluated="abc")
    write_record(here, record)
    assert read_record(here) == record


@pytest.mark.parametrize("text", ["{", "[]", '{"fingerprint": {}}'])
def test_a_damaged_record_is_none(here: Path, text: str) -> None:
    (here / "record.json").write_text(text, encoding="utf8")
    assert read_record(here) is None


def test_a_record_of_a_training_that_was_begun_by_an_older_version_is_none(here: Path) -> None:
    write_record(here, made())
    text = (here / "record.json").read_text(encoding="utf8")
    (here / "record.json").write_text(text.replace('"finished": true', '"finished": null'), encoding="utf8")
    assert read_record(here) is None


def test_long_values_are_shortened() -> None:
    (change,) = changes(made(), made(component=f'window = "{"x" * 500}"'))
    assert len(change) < 200
