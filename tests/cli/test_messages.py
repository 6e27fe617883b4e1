"""Test the messages and the help of the commands."""

from __future__ import annotations

import pytest
from command_line import run_tener

from spacy_tener.cli import COMMANDS
from spacy_tener.cli._common import Messages
from spacy_tener.errors import pluralize


def test_message_details_keep_lines_and_wrap_long_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Messages().warn("Changed: 2", "training.dropout: 0.1, was 0.2\n" + "word " * 30)
    title, first, *wrapped = capsys.readouterr().out.splitlines()
    assert "Changed: 2" in title
    assert first == "training.dropout: 0.1, was 0.2"
    assert len(wrapped) == 2
    assert " ".join(wrapped).split() == ["word"] * 30


def test_fail_exits_with_status_and_show_false_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        Messages().fail("Failed", "a\nb", exits=3)
    assert stop.value.code == 3
    title, *lines = capsys.readouterr().out.split("\n")[1:]
    assert "Failed" in title
    assert lines == ["a", "b", "", ""]
    Messages().info("Nothing", show=False)
    assert capsys.readouterr().out == ""


def test_help_shows_first_sentence_of_commands() -> None:
    shown = run_tener("--help").stdout.partition("Commands:\n")[2]
    assert " ".join(shown.split()) == " ".join(f"{name} {text}" for name, text in COMMANDS.items())
    assert all(text.endswith(".") for text in COMMANDS.values())


@pytest.mark.parametrize(("number", "expected"), [(0, "0 entities"), (1, "1 entity"), (1200, "1,200 entities")])
def test_counted_formats_number_with_noun(number: int, expected: str) -> None:
    assert pluralize(number, "entity", "entities") == expected
    assert pluralize(number, "text") == expected.replace("entities", "texts").replace("entity", "text")


@pytest.mark.parametrize(("number", "shown"), [(0, []), (2, ["0", "1"]), (3, ["0", "1", "... 1 more"])])
def test_long_list_is_truncated(number: int, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Messages().warn_list("Left out", range(number), most=2)
    title, *lines = capsys.readouterr().out.splitlines() or [""]
    assert title.endswith(f"Left out: {number}" if number else "")
    assert lines == shown
