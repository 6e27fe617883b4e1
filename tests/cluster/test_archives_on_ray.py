"""Archives on a cluster of Ray: an actor and a node are killed in the midst, and the output is that of one machine."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from archives import read_output, write_jsonl
from made_trainings import wait_for
from ray.cluster_utils import Cluster
from ray_nodes import kill_second_node, two_nodes
from spacy.cli._util import app, import_code
from typer.testing import CliRunner

import spacy_tener.cli  # noqa: F401 - registers the commands
from spacy_tener.annotate import Annotator
from spacy_tener.annotate.on_ray import _groups, _number, _read, _Writer
from spacy_tener.annotate.output import AnnotationJob, check_columns
from spacy_tener.annotate.reading import ReadOptions, Source, find_sources
from spacy_tener.cluster import work_in

TEXTS = [f"王小明去了上海{n}次。" * (1 + n % 4) for n in range(150)]
SLOW = """
import time
from spacy.language import Language

@Language.component("slow")
def slow(doc):
    time.sleep(0.02)
    return doc
"""


def test_a_directory_that_a_node_lacks_is_named_on_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "uname")  # which Windows does not have
    with pytest.raises(OSError, match=r"nowhere is not on the node \S+: all nodes need the same files"):
        work_in(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline that takes its time, and an archive of two files, in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW)
    nlp = spacy.blank("zh")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "GPE", "pattern": "上海"}])
    nlp.to_disk("plain")
    import_code("slow.py")
    nlp.add_pipe("slow")
    nlp.to_disk("model")
    (tmp_path / "in").mkdir()
    write_jsonl(tmp_path / "in" / "1.jsonl", TEXTS)
    with write_jsonl(tmp_path / "in" / "2.jsonl", TEXTS).open("a") as file:
        file.write('{"key": 150, "text": "\\ud800 a"}\n{no json\n{"key": 152}\n')
    return tmp_path


def annotate(output: str, *options: str) -> str:
    words = ["annotate", "model", "in", "-o", output, "--part-size", "10", "--code", "slow.py", *options]
    result = CliRunner(env={"WASABI_LOG_FRIENDLY": "1"}).invoke(app, ["tener", *words])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def rows(output: str) -> list[str]:
    return [json.dumps(row, sort_keys=True, ensure_ascii=True) for row in read_output(Path(output))]


def an_actor() -> int:
    """The process of one of this cluster's."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    pids = [line.split()[0] for line in listed.splitlines() if "ray::MapWorker" in line]
    return next(int(pid) for pid in pids if str(Path(__file__).parent) in Path(f"/proc/{pid}/environ").read_text())


def test_what_tasks_read_and_actors_write_is_that_of_one_machine(here: Path) -> None:
    annotate("alone", "--processes", "1")
    sources, _ = find_sources(["in"])
    job = AnnotationJob(Annotator("plain"), sources, "there", ReadOptions(part_size=10), entities="csv")
    maker = _Writer(here, job, check_columns(job))
    group = {"group": [0], "sources": [pickle.dumps(sources)]}
    made = [maker(part) for part in _read(group, here, job.options, "text", frozenset({3}))]
    assert [each["number"] for each in made] == [[number] for number in range(31) if number != 3]
    assert sum(each["bytes"][0] for each in made) == sum(source.size for source in sources)
    second = list(_read({**group, "group": [1]}, here, job.options, "text", frozenset({1_000_003})))
    assert [each["number"] for each in second] == [[1_000_000 + number] for number in range(31) if number != 3]
    assert [[pickle.loads(each["part"][0]).number] for each in second] == [each["number"] for each in second]
    kept = rows("alone")
    assert rows("there") == kept[:30] + kept[40:]
    tables = {path.stem: path.read_text(encoding="utf8").splitlines()[1:] for path in Path("there/_entities").iterdir()}
    assert [_number(f"{name}.parquet") for name in sorted(tables)] == [number for number in range(31) if number != 3]
    assert _number("part-00012-00345.jsonl") == 12_000_345
    assert tables["part-00000-00000"][0] == "part-00000-00000:0,5,7,上海,GPE"
    assert sum(map(len, tables.values())) == sum(len(json.loads(row)["entities"]) for row in rows("there"))


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([], []),
        ([0, 0, 0], [3]),
        ([16, 15, 1, 32, 5], [3, 1, 1]),
        ([40, 31, 40], [1, 2]),
        ([64] * 20_000, [2] * 10_000),
    ],
)
def test_files_that_are_small_or_many_are_read_together(sizes: list[int], together: list[int]) -> None:
    sources = [Source(str(number), size << 20, "") for number, size in enumerate(sizes)]
    groups = _groups(sources)
    assert [len(group) for group in groups] == together
    assert [source for group in groups for source in group] == sources


@pytest.mark.slow
def test_what_is_killed_is_made_again_and_each_text_is_there_once(here: Path, cluster: Cluster) -> None:
    said = annotate("alone", "--processes", "1")
    assert "303 texts, 746 entities, 3 errors" in said
    there: list[Any] = []

    def kill() -> None:
        wait_for(lambda: len(list(Path("there").glob("part-*"))) >= 2, 120)
        os.kill(an_actor(), signal.SIGKILL)
        wait_for(lambda: len(list(Path("there").glob("part-*"))) >= 5)
        kill_second_node(cluster)
        there.extend(Path("there").glob("part-*"))

    thread = threading.Thread(target=kill)
    thread.start()
    assert "303 texts, 746 entities, 3 errors" in annotate("there", "--engine", "ray", "--actors", "2")
    thread.join()
    assert 5 <= len(there) < 31
    assert rows("there") == rows("alone")
    # And the same command goes on.
    before = {path: path.stat().st_mtime_ns for path in Path("there").glob("part-*")}
    lost = sorted(before)[7]
    lost.unlink()
    assert "303 texts, 746 entities, 3 errors (293 texts annotated before)" in annotate("there", "--engine", "ray")
    assert {path: path.stat().st_mtime_ns for path in before if path != lost}.items() <= before.items()
    assert rows("there") == rows("alone")
