"""Grids and searches as tasks of Ray, on two nodes of which one is killed. `fake_spacy` trains instead of spaCy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import srsly
from made_trainings import FAILS, is_alive, make_grid, train_nothing
from ray.cluster_utils import Cluster
from ray_nodes import FAKE, kill_second_node, two_nodes
from research_commands import run_research
from waiting import wait_until

from research.on_ray import RayEngine

GRID = ("grid", "out", "--configs", "configs", "--corpora", "red", "--systems", "tener,bad", "--seeds", "1,2")


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hold") / "hold"


@pytest.fixture(scope="module")
def cluster(hold: Path) -> Iterator[Cluster]:
    with two_nodes(FAKE_HOLD=str(hold), **FAKE) as cluster:
        yield cluster


@pytest.fixture
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold: Path) -> Path:
    """A corpus, its config, and an overlay that fails, in the current directory."""
    monkeypatch.chdir(tmp_path)
    train_nothing(monkeypatch, hold)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    make_grid(tmp_path, ["red"], {"bad": FAILS})
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    ran = run_research(*arguments)
    return ran.code, ran.stdout, ran.stderr


def results(folder: Path) -> dict[str, object]:
    return {str(path.relative_to(folder)): srsly.read_json(path) for path in sorted(folder.rglob("*.json"))}


@pytest.mark.slow
def test_a_grid_on_ray_is_that_of_one_machine_though_a_node_is_killed(
    work_dir: Path, cluster: Cluster, hold: Path
) -> None:
    code, table, _ = run(*GRID)
    alone = results(work_dir / "out")
    (work_dir / "out").rename(work_dir / "alone")
    hold.write_text("tener")
    pids = [work_dir / "out" / "red" / "tener" / seed / "pid" for seed in "12"]

    def kill() -> None:
        wait_until(lambda: all(path.exists() for path in pids))
        kill_second_node(cluster)
        wait_until(lambda: sum(is_alive(int(path.read_text())) for path in pids) == 1)
        hold.unlink()

    thread = threading.Thread(target=kill)
    thread.start()
    found = run(*GRID, "--engine", "ray")
    thread.join()
    assert found[:2] == (code, table) == (1, table)
    assert "red/bad/2: training ended with exit status 1: ValueError: [E910] Encountered NaN loss value" in found[2]
    assert results(work_dir / "out") == alone
    assert "Finished already: 2 of 4" in run(*GRID, "--engine", "ray")[2]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_trainings_on_ray_end_with_the_command(work_dir: Path, cluster: Cluster, hold: Path, number: int) -> None:
    hold.write_text("tener")
    command = [sys.executable, "-m", "research", *GRID, "--engine", "ray"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    pid = work_dir / "out" / "red" / "tener" / "1" / "pid"
    wait_until(pid.exists)
    process.send_signal(number)
    _, messages = process.communicate(timeout=60)
    wait_until(lambda: not is_alive(int(pid.read_text())))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "The same command resumes" in messages
    hold.unlink()


@pytest.mark.slow
def test_a_search_on_ray_draws_what_it_would_on_one_machine_and_stops_what_is_worse(
    work_dir: Path, cluster: Cluster, hold: Path
) -> None:
    (work_dir / "space.cfg").write_text("[components.tener_ner.model.tok2vec]\nheads = [2, 8]\n")
    paths = [part for name in ("train", "dev") for part in ("--set", f"paths.{name}=corpus/red/{name}.spacy")]
    search = ("search", "configs/red.cfg", "--space", "space.cfg", *paths, "--seed", "11", "--prune")
    on_ray = (*search, "-o", "there", "--engine", "ray", "--cpus-per-run", "0.5")
    run(*on_ray, "--trials", "5", "--jobs", "3")
    hold.write_text("trials/0005")
    code, table, messages = run(*on_ray, "--trials", "6")
    hold.unlink()
    assert code == 0, messages
    run(*search, "-o", "here", "--trials", "6")
    on_cluster, alone = (srsly.read_json(work_dir / name / "trials.json")["trials"] for name in ("there", "here"))
    assert [(trial["state"], trial["reason"]) for trial in on_cluster] == [("done", None)] * 5 + [("pruned", None)]
    assert [trial["values"] for trial in on_cluster] == [trial["values"] for trial in alone]
    assert "best.cfg: trial 1, F1 80.00 on dev" in " ".join(table.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpus-per-run", "0.5"), "--gpus-per-run: only for --engine ray"),
        (("--engine", "spark"), "'spark' is not one of: local, ray"),
        (("--engine", "ray", "--gpu-id", "0"), "Ray chooses GPUs"),
        (("--engine", "ray", "--address", "127.0.0.1:1"), "There is no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_trained(
    work_dir: Path, options: tuple[str, ...], said: str
) -> None:
    code, _, messages = run(*GRID, *options)
    assert (code, said in messages) == (1 if "cluster at" in said else 2, True), messages
    assert not (work_dir / "out" / "red").exists()


def test_without_ray_the_extra_is_named(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert 'pip install "ray[data]"' in run(*GRID, "--engine", "ray")[2]


@pytest.mark.parametrize(
    ("wanted", "at_once"),
    [
        ({"cpus": 2.0, "gpus": 0.0}, 2),
        ({"cpus": 1.0, "gpus": 0.5}, 2),
        ({"cpus": 8.0, "gpus": 0.0}, 1),
        ({"cpus": 0.0, "gpus": 0.0}, 1),
        ({"cpus": 1.0, "gpus": 0.0, "at_once": 3}, 3),
    ],
)
def test_on_a_cluster_as_many_run_at_once_as_have_room_or_one_that_waits(wanted: dict[str, Any], at_once: int) -> None:
    remote = SimpleNamespace(options=lambda **_: None)
    cluster: Any = SimpleNamespace(remote=lambda _: remote, cluster_resources=lambda: {"CPU": 5.0, "GPU": 1.0})
    assert RayEngine(cluster, **{"at_once": None, **wanted}).at_once == at_once
