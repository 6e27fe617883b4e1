"""Renamed functions, arguments, overlays, options and commands: errors for old names contain the new name."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

import pytest
import spacy
from command_line import run_tener

from spacy_tener import renamed
from spacy_tener.cli import COMMANDS
from spacy_tener.training.config_files import OVERLAYS, ConfigError, find_overlay, names_in
from spacy_tener.training.overlays import compose

TEACHER = """[initialize.components.tener_ner.teacher]
@misc = "spacy_tener.Teacher.v1"
path = "teacher"
"""


@pytest.mark.parametrize(("old", "new"), renamed.OLD_OVERLAYS.items())
def test_old_overlay_name_raises_error(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=rf"the overlay '{old}' was renamed\. Use {new}\."):
        compose("sample", [old])
    assert find_overlay(new).is_file()


def test_path_is_not_an_old_overlay_name() -> None:
    assert find_overlay("my/taught.cfg") == Path("my/taught.cfg")


@pytest.mark.parametrize(("old", "new"), [("share", "weight"), ("completes", "only_missing_labels")])
def test_old_argument_raises_error(tmp_path: Path, old: str, new: str) -> None:
    overlay = tmp_path / "old.cfg"
    overlay.write_text(f"{TEACHER}{old} = 1.0\n", encoding="utf8")
    with pytest.raises(ConfigError, match=rf"tener_ner\.teacher\]: the argument '{old}' was renamed\. Use '{new}'\."):
        compose("sample", [overlay])


def test_old_argument_in_setting_raises_error() -> None:
    teacher = "initialize.components.tener_ner.teacher"
    with pytest.raises(ConfigError, match=rf"--set .*'share' was renamed\. Use {teacher}\.weight\."):
        compose("sample", ["distilled"], [f"{teacher}.share=0.3"])


def test_old_function_raises_error(tmp_path: Path) -> None:
    overlay = tmp_path / "old.cfg"
    section = "[components.tener_ner.model.tok2vec.embed]"
    overlay.write_text(f'{section}\n@architectures = "spacy_tener.ComponentEmbed.v1"\n', encoding="utf8")
    with pytest.raises(ConfigError, match=r"ComponentEmbed\.v1 was renamed\. Use spacy_tener\.RadicalEmbed\.v1\."):
        compose("sample", [overlay])


@pytest.mark.parametrize(("command", "option"), renamed.OLD_OPTIONS)
def test_old_option_raises_error(command: str, option: str) -> None:
    for options in ([option, "x"], [f"{option}=x"]):
        ran = run_tener(command, "model", "data.spacy", *options)
        message = f"The option {option} was renamed. Use {renamed.OLD_OPTIONS[command, option]}."
        assert (ran.code, message in ran.text) == (2, True), ran.text


@pytest.mark.parametrize(("old", "new"), renamed.OLD_COMMANDS.items())
def test_old_command_raises_error(old: str, new: str) -> None:
    ran = run_tener(old, "model")
    assert (ran.code, f"The command '{old}' was renamed. Use '{new}'." in ran.text) == (2, True), ran.text
    assert new in COMMANDS


def test_only_new_names_are_registered() -> None:
    registered = {entry.name for entry in distribution("spacy_tener").entry_points}
    assert set(renamed.OLD_FUNCTIONS.values()) | set(renamed.OLD_ARGUMENTS) <= registered
    assert registered.isdisjoint(renamed.OLD_FUNCTIONS)
    assert set(names_in(OVERLAYS)).isdisjoint(renamed.OLD_OVERLAYS)


def test_saved_pipeline_with_old_training_settings_loads(tmp_path: Path) -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner")
    teacher = {"@misc": "spacy_tener.Teacher.v1", "path": "teacher", "share": 0.5, "completes": False}
    nlp.config["initialize"]["components"]["tener_ner"] = {"teacher": teacher}
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    assert loaded.config["initialize"]["components"]["tener_ner"]["teacher"]["share"] == 0.5
    assert loaded.pipe_names == ["tener_ner"]
