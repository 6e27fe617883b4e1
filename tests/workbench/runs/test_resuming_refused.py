"""When a training does not go on: what it says, and that everything stays as it was."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import srsly
from made_trainings import LOG, make_config, run, stop, tener, write_corpus
from thinc.api import Config

from spacy_tener.workbench.files import TrainingError, only_one
from spacy_tener.workbench.runs import fingerprint as fingerprints
from spacy_tener.workbench.runs.checkpoint import read_checkpoint, write_checkpoint
from spacy_tener.workbench.runs.output_folder import CHECKPOINT, LOCK, RECORD, read_record, write_record

MODELS = ("model-last", "model-best")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora, a training that was stopped after step 2, and one that is finished."""
    folder = tmp_path_factory.mktemp("made")
    write_corpus(folder / "train.spacy")
    write_corpus(folder / "dev.spacy", 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        run(config_in(folder), folder / "stopped", before=3)
        run(config_in(folder), folder / "finished")
    return folder


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def there(made: Path, tmp_path: Path) -> Path:
    """A copy of all that, at a place of its own."""
    shutil.copytree(made, tmp_path / "made")
    for name in ("stopped", "finished"):
        folder = tmp_path / "made" / name
        record = read_record(folder)
        assert record is not None
        write_record(folder, replace(record, log=str(folder / LOG)))
    return tmp_path / "made"


def config_in(folder: Path, **training: Any) -> Config:
    return make_config(folder, tener(), **{"max_steps": 4, "eval_frequency": 2, **training})


def contents(folder: Path) -> dict[Path, str]:
    return {path: fingerprints.digest(path) for path in folder.rglob("*") if path.is_file()}


def refusal(config: Config, output: Path) -> TrainingError:
    before = contents(output)
    with pytest.raises(TrainingError) as caught:
        run(config, output)
    assert contents(output) == before
    assert "--restart" in caught.value.remedy
    return caught.value


# Another config, other data, other versions


def test_the_same_command_goes_on(there: Path) -> None:
    assert "Continuing after step 2" in run(config_in(there), there / "stopped")


@pytest.mark.parametrize("output", ["stopped", "finished"])
def test_a_changed_config_is_named(there: Path, output: str) -> None:
    config = config_in(there, dropout=0.3, batcher__size=5)
    config["components"]["tener_ner"]["window"] = 100
    first, *changes = refusal(config, there / output).reason.splitlines()
    assert first == f"{there / output}: the training there is {output}, and was not the same:"
    assert sorted(changes) == [
        "components.tener_ner.window: was nothing, is 100",
        "training.batcher.size: was 4, is 5",
        "training.dropout: was 0.2, is 0.3",
    ]


@pytest.mark.parametrize("output", ["stopped", "finished"])
@pytest.mark.parametrize("part", ["train", "dev"])
def test_changed_data_is_named(there: Path, output: str, part: str) -> None:
    write_corpus(there / f"{part}.spacy", 4)
    lines = refusal(config_in(there), there / output).reason.splitlines()
    path = there / f"{part}.spacy"
    assert f"paths.{part}: was {path_made(output, there, part)}, is {path}, which has other contents" in lines


def path_made(output: str, there: Path, part: str) -> str:
    record = read_record(there / output)
    assert record is not None
    return str(record.fingerprint.inputs[f"paths.{part}"]["path"])


def test_many_changes_are_not_all_listed(there: Path) -> None:
    config = config_in(there)
    config["training"]["optimizer"] = {f"other{number}": number for number in range(20)}
    lines = refusal(config, there / "stopped").reason.splitlines()
    assert len(lines) == 10
    assert lines[-1].endswith(" more")


def test_other_versions_are_named(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions: dict[str, str] = {"torch": "99.1"}
    was = fingerprints.fingerprint(config_in(there)).versions["torch"]
    original: Callable[[str], str | None] = fingerprints._version
    monkeypatch.setattr(fingerprints, "_version", lambda name: versions.get(name) or original(name))
    assert f"torch: was {was}, is 99.1" in refusal(config_in(there), there / "stopped").reason
    assert "finished" in run(config_in(there), there / "finished"), "what is finished does not depend on versions"


def test_a_logger_may_change(there: Path) -> None:
    config = config_in(there)
    config["training"]["logger"]["console_output"] = False
    assert "Continuing after step 2" in run(config, there / "stopped")


# Beginning anew


@pytest.mark.parametrize("output", ["stopped", "finished"])
def test_a_restart_begins_anew_with_whatever_is_asked(there: Path, output: str) -> None:
    printed = run(config_in(there, max_steps=2), there / output, restart=True)
    assert "Continuing" not in printed
    assert stop.updates == [0, 1, 2]
    assert [line["step"] for line in srsly.read_jsonl(there / output / LOG)] == [0, 2]


def test_a_training_stopped_before_its_first_evaluation_begins_again(there: Path) -> None:
    run(config_in(there), there / "new", before=0)
    assert {path.name for path in (there / "new").iterdir()} == {RECORD, LOG}
    # Nothing is lost, so it may be another.
    printed = run(config_in(there, max_steps=2), there / "new")
    assert "Continuing" not in printed
    assert [line["step"] for line in srsly.read_jsonl(there / "new" / LOG)] == [0, 2]


def test_a_log_that_was_there_before_is_left_alone(there: Path) -> None:
    (there / "new").mkdir()
    (there / "new" / LOG).write_text("mine", encoding="utf8")
    assert "already exists" in " ".join(run(config_in(there), there / "new", before=3).split())
    run(config_in(there), there / "new")
    assert (there / "new" / LOG).read_text(encoding="utf8") == "mine"


# What is finished


def test_a_finished_training_says_so_and_does_nothing(there: Path) -> None:
    before = contents(there / "finished")
    printed = " ".join(run(config_in(there), there / "finished").split())
    assert "this training is finished, after step 4; best score" in printed
    assert "--restart" in printed
    assert contents(there / "finished") == before
    assert stop.updates == []


def test_a_finished_training_keeps_no_checkpoint(there: Path) -> None:
    assert {path.name for path in (there / "finished").iterdir()} == {*MODELS, LOG, RECORD}


def test_one_model_is_enough_to_be_finished_and_none_is_not(there: Path) -> None:
    shutil.rmtree(there / "finished" / "model-last")
    assert "is finished" in run(config_in(there), there / "finished")
    shutil.rmtree(there / "finished" / "model-best")
    assert "is finished" not in run(config_in(there), there / "finished")
    assert stop.updates == [0, 1, 2, 3, 4]


# What is broken


def broken(there: Path, damage: Callable[[Path], Any]) -> str:
    damage(there / "stopped" / CHECKPOINT)
    error = refusal(config_in(there), there / "stopped")
    assert error.reason.startswith(str(there / "stopped"))
    assert "\n" not in error.reason
    return error.reason


@pytest.mark.parametrize("kept", [0, 1, 10, 1000, -1000, -1])
def test_a_checkpoint_that_is_cut_off_is_refused(there: Path, kept: int) -> None:
    assert "broken checkpoint" in broken(there, lambda path: path.write_bytes(path.read_bytes()[:kept]))


def test_a_checkpoint_with_a_damaged_byte_is_refused(there: Path) -> None:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))

    assert "broken checkpoint" in broken(there, damage)


def test_a_checkpoint_of_another_format_is_refused(there: Path) -> None:
    def damage(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("something.txt", "else")

    assert "broken checkpoint" in broken(there, damage)


def test_a_checkpoint_without_its_record_is_refused(there: Path) -> None:
    assert "no record.json" in broken(there, lambda path: (path.parent / RECORD).unlink())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"fingerprint": 1}'])
def test_a_broken_record_is_refused(there: Path, text: str) -> None:
    reason = broken(there, lambda path: (path.parent / RECORD).write_text(text, encoding="utf8"))
    assert reason.startswith(f"{there / 'stopped' / RECORD}: broken record")


def test_a_checkpoint_of_another_pipeline_is_refused(there: Path) -> None:
    def damage(path: Path) -> None:
        tree = read_checkpoint(path)
        tree["weights"]["shims"] = {f"{place}9": data for place, data in tree["weights"]["shims"].items()}
        write_checkpoint(path, tree)

    assert "broken checkpoint" in broken(there, damage)


def test_another_outcome_of_initialize_is_refused(there: Path) -> None:
    def damage(path: Path) -> None:
        tree = read_checkpoint(path)
        tree["structure"]["tener_ner/0"] = "other"
        write_checkpoint(path, tree)

    damage(there / "stopped" / CHECKPOINT)
    reason = refusal(config_in(there), there / "stopped").reason
    assert reason.endswith("has other labels or tables than when this training began: tener_ner")


def test_two_processes_do_not_train_in_the_same_place(there: Path) -> None:
    with only_one(there / "stopped" / LOCK), pytest.raises(TrainingError, match="another process is at work there"):
        run(config_in(there), there / "stopped")
    assert "Continuing" in run(config_in(there), there / "stopped")
