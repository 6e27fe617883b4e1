"""Manifests: they name the relevant changes of inputs and settings, and decide whether an output can be resumed."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from thinc.api import Config

from spacy_tener.errors import UserError
from spacy_tener.files import digest, write_bytes
from spacy_tener.manifest import NAME, Manifest, file_input, stream_input
from spacy_tener.training.runs import TrainingRun

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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.spacy").write_bytes(b"1")
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "key2row").write_bytes(b"1")
    return tmp_path


def make_manifest(*, train: str = '"train.spacy"', vectors: str = '"vectors"', **values: object) -> Manifest:
    defaults = {"component": "", "steps": 10, "log": "null", **values}
    config = Config().from_str(TEXT.format(train=train, vectors=vectors, **defaults), interpolate=False)
    return TrainingRun("run", Path(), config).manifest()


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        ({}, {}, ()),
        ({}, {"steps": 20}, ("training.steps: was 10, is 20",)),
        ({"steps": 0.1}, {"steps": 0.3}, ("training.steps: was 0.1, is 0.3",)),
        ({}, {"component": "window = 5"}, ("components.ner.window: was nothing, is 5",)),
        ({"component": "window = 5"}, {}, ("components.ner.window: was 5, is nothing",)),
        ({}, {"log": '"training.jsonl"'}, ()),
    ],
)
def test_changes_name_old_and_new_values_except_log_paths(before, now, changes) -> None:
    assert make_manifest(**before).changes(make_manifest(**now)) == changes


def test_changed_file_is_named_for_all_settings_that_use_it(folder: Path) -> None:
    before = make_manifest()
    (folder / "train.spacy").write_bytes(b"2")
    (folder / "vectors" / "data").write_bytes(b"1")
    assert before.changes(make_manifest()) == (
        "paths.train: train.spacy changed",
        "paths.vectors: vectors changed",
        "training.corpus: train.spacy changed",
    )


def test_teacher_cache_size_is_ignored(folder: Path) -> None:
    names = accumulate(["initialize", "components", "ner", "teacher"], "{}.{}".format)
    section = "\n".join(f"[{name}]" for name in names) + "\ncache_mb = {}\n"
    assert make_manifest(component=section.format(10)).changes(make_manifest(component=section.format(20))) == ()


def test_moved_file_is_not_a_change(folder: Path) -> None:
    before = make_manifest()
    (folder / "elsewhere").mkdir()
    (folder / "train.spacy").rename(folder / "elsewhere" / "moved.spacy")
    assert before.changes(make_manifest(train='"elsewhere/moved.spacy"')) == ()
    assert before.changes(make_manifest(train='"missing.spacy"'))[0].endswith(', is "missing.spacy"')


def test_digest_ignores_hidden_files_and_directory_name(folder: Path) -> None:
    before = digest(folder / "vectors")
    (folder / "vectors" / ".cache").write_bytes(b"1")
    (folder / "vectors").rename(folder / "others")
    assert digest(folder / "others") == before
    (folder / "others" / "key2row").rename(folder / "others" / "row2key")
    assert digest(folder / "others") != before


def test_directory_named_like_a_value_is_ignored(folder: Path) -> None:
    before = make_manifest()
    for name in ("ner", "zh"):
        (folder / name).mkdir()
    assert before.changes(make_manifest()) == ()


def test_changed_component_source_is_named(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"1")
    before = make_manifest(component='source = "model"')
    (folder / "model" / "weights").write_bytes(b"2")
    assert before.changes(make_manifest(component='source = "model"')) == ("components.ner.source: model changed",)


def test_version_changes_are_named_only_with_other_changes() -> None:
    now = make_manifest()
    assert {"Python", "spacy_tener", "spacy", "thinc", "torch", "numpy"} <= set(now.versions)
    older = Manifest(Path(), now.made_of, versions={**now.versions, "torch": "1.0"})
    assert older.changes(now) == ()
    assert older.changes(make_manifest(steps=20)) == ("training.steps: was 10, is 20", "created with torch 1.0")


def test_manifest_is_saved_and_loaded(folder: Path) -> None:
    manifest = make_manifest()
    manifest.finish("model-best", {"score": 0.5})
    read = Manifest.read(folder)
    assert read is not None
    assert (read.made_of, read.versions, read.parts) == (manifest.made_of, manifest.versions, manifest.parts)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"made_of": {}}', '{"made_of": 1, "versions": {}, "parts": {}}', "\xff"]
)
def test_damaged_manifest_reads_as_none(folder: Path, text: str) -> None:
    (folder / NAME).write_text(text, encoding="latin-1")
    assert Manifest.read(folder) is None


# Outputs with several parts

FIX = "Name another."


def resume(folder: Path, **made_of: object) -> Manifest:
    return Manifest.resume(folder, made_of, fix=FIX)


def resume_error(folder: Path, **made_of: object) -> str:
    with pytest.raises(UserError) as caught:
        resume(folder, **made_of)
    assert caught.value.fix == FIX
    return caught.value.reason


def write_parts(folder: Path, *parts: str, **made_of: object) -> None:
    manifest = resume(folder, **made_of)
    for number, part in enumerate(parts):
        write_bytes(manifest.folder / part, b"1")
        manifest.finish(part, {"texts": number})
    manifest.save()


def test_resume_keeps_finished_parts_with_existing_files(tmp_path: Path) -> None:
    write_parts(tmp_path / "out", "a", "b", "c", size=3)
    (tmp_path / "out" / "b").unlink()
    (tmp_path / "out" / "d").touch()  # a part that is not listed in the manifest
    assert resume(tmp_path / "out", size=3).parts == {"a": {"texts": 0}, "c": {"texts": 2}}


def test_resume_error_names_changed_settings_and_inputs(tmp_path: Path) -> None:
    for name in "xyz":
        (tmp_path / name).write_text(name)
    inputs = [file_input(tmp_path / name) for name in "xyz"]
    write_parts(tmp_path / "out", "a", inputs=inputs[:2], size=3, labels=["A", "B"])
    same = {"size": 3, "labels": ["A", "B"]}
    assert resume_error(tmp_path / "out", inputs=inputs[:2], size=4, labels=["A"]) == (
        'The output was created from other inputs or settings: size: was 3, is 4; labels: was ["A", "B"], is ["A"]'
    )
    assert resume_error(tmp_path / "out", inputs=inputs, **same).endswith(f": inputs: {tmp_path / 'z'} changed")
    assert resume_error(tmp_path / "out", inputs=inputs[:1], **same).endswith(f": inputs: {tmp_path / 'y'} changed")
    assert resume_error(tmp_path / "out", inputs=inputs[1::-1], **same).endswith(": inputs: in another order")
    (tmp_path / "x").write_text("w")
    changed = [file_input(tmp_path / name) for name in "xy"]
    assert resume_error(tmp_path / "out", inputs=changed, **same).endswith(f": inputs: {tmp_path / 'x'} changed")
    (tmp_path / "y").rename(tmp_path / "moved")
    (tmp_path / "x").write_text("x")
    assert resume(tmp_path / "out", inputs=[file_input(tmp_path / name) for name in ("x", "moved")], **same).parts


def test_resume_error_names_at_most_three_inputs(tmp_path: Path) -> None:
    inputs = [file_input(name, content="before") for name in "abcd"]
    for number, end in ((3, "inputs: a, b, c changed"), (4, "inputs: a, b, c ... changed")):
        write_parts(tmp_path / str(number), "a", inputs=inputs[:number])
        changed = [file_input(name, content=f"after {name}") for name in "abcd"[:number]]
        assert resume_error(tmp_path / str(number), inputs=changed).endswith(end)


def test_standard_input_cannot_be_resumed(tmp_path: Path) -> None:
    write_parts(tmp_path / "out", "a", texts=[stream_input("standard input")])
    reason = resume_error(tmp_path / "out", texts=[stream_input("standard input")])
    assert reason.endswith("texts: standard input can be read only once and cannot be compared")


def test_output_without_parts_accepts_other_settings(tmp_path: Path) -> None:
    write_parts(tmp_path / "out", text="wrong")
    resume(tmp_path / "out", text="right").finish("a")
    (tmp_path / "out" / "a").touch()
    assert "text" in resume_error(tmp_path / "out", text="wrong")


def test_directory_with_other_files_raises_error(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("thesis.txt", ".hidden"):
        (out / name).touch()
    assert resume_error(out) == f"The output contains files (thesis.txt) but no valid {NAME}"
    (out / "thesis.txt").unlink()
    resume(out)


@pytest.mark.parametrize("second", ["the same settings", "others"])
def test_concurrent_writers_raise_error(tmp_path: Path, second: str) -> None:
    manifests = [resume(tmp_path / "out", text=text) for text in ("the same settings", second)]
    refused = []
    for manifest in manifests:
        try:
            manifest.save()
            manifest.parts["part-00000"] = None
            manifest.save()
        except UserError as error:
            refused.append(error.reason)
    assert refused == ["Another process writes to the output"]


@pytest.mark.parametrize("is_written", [False, True])
def test_interrupted_save_is_not_a_concurrent_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    def interrupted(path: Path, content: bytes) -> None:
        if is_written:
            write_bytes(path, content)
        raise KeyboardInterrupt

    manifest = resume(tmp_path / "out", text="a")
    manifest.parts["part-00000"] = None
    with monkeypatch.context() as patched:
        patched.setattr("spacy_tener.manifest.write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manifest.save()
    manifest.save()
    assert (saved := Manifest.read(tmp_path / "out")) is not None
    assert saved.parts == {"part-00000": None}
