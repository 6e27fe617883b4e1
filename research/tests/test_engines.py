"""Tasks on this machine: so many at once, each with its result, and all ended by an exception."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from made_trainings import make_config, tener

from research.engines import Task, on_this_machine, run_tasks
from spacy_tener.errors import RemedyError
from spacy_tener.workbench.runs.processes import Processes
from spacy_tener.workbench.runs.training import TrainingResult, TrainingRun, train


def test_so_many_run_at_once_and_the_next_is_taken_when_one_has_ended() -> None:
    taken: list[int] = []
    together = threading.Barrier(2, timeout=30)

    def task(number: int, processes: Processes) -> TrainingResult:
        if number < 4:
            together.wait()
        return TrainingResult(number / 10)

    def tasks() -> Iterator[tuple[int, Task]]:
        for number in range(5):
            taken.append(number)
            yield number, partial(task, number)

    results = {}
    with on_this_machine(2) as engine:
        assert engine.shares_cores
        for number, result in run_tasks(engine, tasks()):
            results[number] = result.score
            assert len(taken) <= len(results) + 1
    assert results == {number: number / 10 for number in range(5)}
    assert taken == list(range(5))


def test_a_task_that_fails_has_its_message_and_the_others_go_on() -> None:
    def task(error: Exception | None, processes: Processes) -> TrainingResult:
        if error:
            raise error
        return TrainingResult(0.5)

    errors = {"a": RemedyError("No room", "Make some."), "b": None, "c": OSError("disk full")}
    with on_this_machine() as engine:
        assert not engine.shares_cores
        found = [
            (key, result.failure)
            for key, result in run_tasks(engine, ((k, partial(task, e)) for k, e in errors.items()))
        ]
    assert found == [("a", "No room. Make some."), ("b", ""), ("c", "disk full")]


def test_seconds_are_those_of_the_task() -> None:
    with on_this_machine() as engine:
        ((_, result),) = run_tasks(engine, [("", lambda processes: TrainingResult(None, seconds=-1.0))])
    assert 0 <= result.seconds < 30


def test_an_exception_ends_what_runs_and_nothing_else_begins(tmp_path: Path) -> None:
    begun = []

    def task(number: int, processes: Processes) -> TrainingResult:
        begun.append(number)
        if number:
            raise KeyboardInterrupt
        while True:  # ends by a StoppedError
            processes.run(["--help"], tmp_path / "log")

    with pytest.raises(KeyboardInterrupt), on_this_machine(2) as engine:
        list(run_tasks(engine, ((number, partial(task, number)) for number in range(5))))
    assert begun == [0, 1]


def test_tasks_can_be_sent_to_other_machines(tmp_path: Path) -> None:
    run = TrainingRun("1", tmp_path, make_config(tmp_path, tener()))
    sent = pickle.loads(pickle.dumps(partial(train, run)))
    assert sent.args == (run,)
