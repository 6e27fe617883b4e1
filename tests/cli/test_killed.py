"""Commands that write files, killed at random moments: what has its name is whole, and the same command goes on."""

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

TIMES = 8
SEED = 3


def kill_at_random(command: Callable[[], object], check: Callable[[], None]) -> int:
    """Fork a process for the command again and again, and kill it somewhere on its way. Returns how often it was."""
    fork, rng, killed = multiprocessing.get_context("fork"), random.Random(SEED), 0

    def alone() -> None:
        # tqdm's own lock is shared with forks: one that is killed while it holds it would hold it for ever.
        tqdm.set_lock(threading.RLock())
        command()

    start = time.perf_counter()
    command()
    seconds = time.perf_counter() - start
    for _ in range(TIMES):
        process = fork.Process(target=alone)
        start = time.perf_counter()
        process.start()
        process.join(rng.uniform(0, 1.2 * seconds))
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed += 1
        else:  # The first one took longer, as on a machine that was busy then.
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
    assert kill_at_random(lambda: convert(sources, out, lang="zh"), check) > TIMES // 3
    convert(sources, out, lang="zh")
    check()
    assert finished == set(names)
