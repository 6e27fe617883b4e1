"""Test that commands that are killed at random times leave only complete files, and can be resumed."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conversion import convert
from tqdm import tqdm

from spacy_tener.corpora.docs import read_docs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork, and no signal that cannot be caught")

N_KILLS = 8
SEED = 3


def kill_repeatedly(command: Callable[[], object], check: Callable[[], None]) -> int:
    """Run a command in forked processes, and kill them at random times. Return how many were killed before the end."""
    fork, rng, killed = multiprocessing.get_context("fork"), random.Random(SEED), 0

    def run_in_fork() -> None:
        # Forks share the lock of tqdm. A process that is killed while it holds the lock would never release it.
        tqdm.set_lock(threading.RLock())
        command()

    start = time.perf_counter()
    command()
    seconds = time.perf_counter() - start
    for _ in range(N_KILLS):
        process = fork.Process(target=run_in_fork)
        start = time.perf_counter()
        process.start()
        process.join(rng.uniform(0, 1.2 * seconds))
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed += 1
        else:  # The first run was slower, for example because the machine was busy.
            seconds = min(seconds, time.perf_counter() - start)
        check()
    return killed


def test_killed_convert_leaves_only_complete_files(tmp_path: Path) -> None:
    names = [f"{number}.spacy" for number in range(6)]
    for number in range(6):
        text = "".join(f"{char}\tO\n" for char in f"第{number}个文件") + "\n上\tB-LOC\n海\tI-LOC\n\n"
        (tmp_path / f"{number}.txt").write_text(text * 60, encoding="utf8")
    sources = [tmp_path / f"{number}.txt" for number in range(6)]
    out = tmp_path / "out"
    finished: set[str] = set()

    def is_complete(name: str) -> bool:
        docs = list(read_docs(out / name))
        return len(docs) == 120 and docs[0].text == f"第{name[0]}个文件" and sum(len(doc.ents) for doc in docs) == 60

    def check() -> None:
        written = {path.name for path in out.iterdir() if not path.name.startswith(".")}
        assert finished <= written <= set(names)
        assert all(map(is_complete, written))
        finished.update(written)

    convert(sources[:1], out, lang="zh")
    for path in out.iterdir():
        path.unlink()
    assert kill_repeatedly(lambda: convert(sources, out, lang="zh"), check) > N_KILLS // 3
    convert(sources, out, lang="zh")
    check()
    assert finished == set(names)
