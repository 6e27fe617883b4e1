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
import spacy
from conversion import convert
from spacy.tokens import DocBin
from tqdm import tqdm

from spacy_tener.workbench.corpus.convert import DocOptions
from spacy_tener.workbench.vectors.strings import BIGRAMS, CHARS
from spacy_tener.workbench.vectors.training import TrainingSettings, make_vectors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork, and no signal that cannot be caught")

TIMES = 8
VOCAB = spacy.blank("zh").vocab
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


def test_convert(tmp_path: Path) -> None:
    names = [f"{number}.spacy" for number in range(6)]
    for number in range(6):
        text = "".join(f"{char}\tO\n" for char in f"第{number}个文件") + "\n上\tB-LOC\n海\tI-LOC\n\n"
        (tmp_path / f"{number}.txt").write_text(text * 60, encoding="utf8")
    sources = [tmp_path / f"{number}.txt" for number in range(6)]
    out = tmp_path / "out"
    finished: set[str] = set()

    def whole(name: str) -> bool:
        docs = list(DocBin().from_disk(out / name).get_docs(VOCAB))
        return len(docs) == 120 and docs[0].text == f"第{name[0]}个文件" and sum(len(doc.ents) for doc in docs) == 60

    def check() -> None:
        written = {path.name for path in out.iterdir() if not path.name.startswith(".")}
        assert finished <= written <= set(names)
        assert all(map(whole, written))
        finished.update(written)

    convert(sources[:1], out, making=DocOptions(lang="zh"))
    for path in out.iterdir():
        path.unlink()
    assert kill_at_random(lambda: convert(sources, out, making=DocOptions(lang="zh")), check) > TIMES // 3
    convert(sources, out, making=DocOptions(lang="zh"))
    check()
    assert finished == set(names)


def test_vectors(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("上海市人民政府今天在北京宣布了新的规定\n" * 150, encoding="utf8")
    out = tmp_path / "vectors"
    settings = dict.fromkeys((CHARS, BIGRAMS), TrainingSettings(width=8, epochs=2, min_count=1))

    def command() -> None:
        make_vectors([str(text)], out, settings)

    command()
    expected = {path.name: path.read_bytes() for path in out.glob("*.vec")}
    assert set(expected) == {"chars.vec", "bigrams.vec"}

    def check() -> None:
        found = {path.name: path.read_bytes() for path in out.glob("*.vec")}
        assert found == expected

    assert kill_at_random(command, check) > TIMES // 3
    for path in out.iterdir():
        path.unlink()

    def check_parts() -> None:
        found = {path.name: path.read_bytes() for path in out.glob("*.vec")}
        assert found.items() <= expected.items()

    kill_at_random(command, check_parts)
    command()
    check()
