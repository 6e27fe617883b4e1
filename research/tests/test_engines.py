"""Tests of parallel tasks: their number is limited, all results are returned, and an exception stops all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from research.engines import Task, on_this_machine, run_tasks
from spacy_tener.errors import UserError
from spacy_tener.training.runs import Processes


def test_so_many_run_at_once_and_the_next_is_taken_when_one_has_ended() -> None:
    taken: list[int] = []
    together = threading.Barrier(2, timeout=30)

    def task(number: int, processes: Processes) -> str:
        if number < 4:
            together.wait()
        return str(number)

    def tasks() -> Iterator[tuple[int, Task]]:
        for number in range(5):
            taken.append(number)
            yield number, partial(task, number)

    results = {}
    with on_this_machine(2) as engine:
        assert engine.shares_cores
        for number, result in run_tasks(engine, tasks()):
            results[number] = result
            assert len(taken) <= len(results) + 1
    assert results == {number: str(number) for number in range(5)}
    assert taken == list(range(5))


def test_a_task_that_fails_has_its_message_and_the_others_go_on() -> None:
    def task(error: Exception | None, processes: Processes) -> str:
        if error:
            raise error
        return ""

    errors = {"a": UserError("No room", "Make some."), "b": None, "c": OSError("disk full")}
    with on_this_machine() as engine:
        assert not engine.shares_cores
        found = list(run_tasks(engine, ((key, partial(task, error)) for key, error in errors.items())))
    assert found == [("a", "No room. Make some."), ("b", ""), ("c", "disk full")]


def test_an_exception_ends_what_runs_and_nothing_else_begins(tmp_path: Path) -> None:
    begun = []

    def task(number: int, processes: Processes) -> str:
        begun.append(number)
        if number:
            raise KeyboardInterrupt
        while True:  # ends with a StoppedError
            processes.run(["--help"], tmp_path / "log")

    with pytest.raises(KeyboardInterrupt), on_this_machine(2) as engine:
        list(run_tasks(engine, ((number, partial(task, number)) for number in range(5))))
    assert begun == [0, 1]
