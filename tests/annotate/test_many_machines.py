"""Test the code for Spark and Ray Data in docs/archives.md."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from small_corpora import rule_pipeline

from spacy_tener.annotate import AnnotateSettings, Annotator

PAGE = Path(__file__).parents[2] / "docs" / "archives.md"
ENTITY = {"start": 5, "end": 7, "label": "GPE", "text": "上海"}
# Timeout in seconds of a test with Spark or Ray, which takes one minute on an idle machine and longer on a busy one.
TIMEOUT = 1800


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rule_pipeline(GPE="上海").to_disk(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def time_limit() -> Iterator[None]:
    """Fail a test if Spark or Ray does not respond."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"Not done in {TIMEOUT} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TIMEOUT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def code_blocks(section: str, model: Path) -> list[str]:
    """Return the Python blocks of a third-level section, with the path of the pipeline replaced by `model`."""
    text = PAGE.read_text(encoding="utf8").partition(f"\n### {section}\n")[2].partition("\n##")[0]
    return [part.partition("```")[0].replace("/models/news", str(model)) for part in text.split("```python\n")[1:]]


def test_spark_function_annotates_pandas_frames(model: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(code_blocks("Spark", model)[0], namespace)
    frames = [
        pd.DataFrame({"key": keys, "body": texts})
        for keys, texts in (([1, 2], ["王小明去了上海。", None]), ([3], ["好"]))
    ]
    found = list(namespace["annotate"](iter(frames)))
    assert [list(frame.columns) for frame in found] == [["key", "body", "entities", "error"]] * 2
    assert [frame["key"].tolist() for frame in found] == [[1, 2], [3]]
    assert [list(map(list, frame["entities"])) for frame in found] == [[[ENTITY], []], [[]]]
    assert found[0]["error"].isna().tolist() == [True, False]
    assert found[0]["error"][1] == "there is no text"


@pytest.mark.slow
@pytest.mark.usefixtures("time_limit")
def test_spark_example_runs(model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Requires Java, and `pip install pyspark`."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    namespace: dict[str, Any] = {}
    for block in code_blocks("Spark", model):
        exec(block, namespace)
    rows = namespace["texts"].repartition(2).mapInPandas(namespace["annotate"], namespace["schema"]).collect()
    namespace["spark"].stop()
    found = {row.key: ([entity.asDict() for entity in row.entities], row.error) for row in rows}
    assert found == {1: ([ENTITY], None), 2: ([], "there is no text")}


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Start Ray. Requires `pip install 'ray[data]'`."""
    import ray
    from ray._private import services

    get_node = services.get_node

    def wait_for_node(*args: Any) -> Any:
        """Wait for the node of Ray until the timeout. Ray itself waits for half a minute only."""
        start = time.monotonic()
        while True:
            try:
                return get_node(*args)
            except RuntimeError:
                if time.monotonic() - start > TIMEOUT:
                    raise
                time.sleep(1)

    # By default, Ray lowers the priority of its workers by 15, and kills workers that take a minute to start. If other
    # programs keep all cores busy, it would restart them again and again.
    system_config = {
        "worker_niceness": 0,
        "worker_register_timeout_seconds": TIMEOUT,
        "agent_register_timeout_ms": 1000 * TIMEOUT,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "get_node", wait_for_node)
        ray.init("local", num_cpus=2, include_dashboard=False, _system_config=system_config)
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("time_limit")
def test_ray_example_runs(ray: Any, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for block in code_blocks("Ray Data", model):
        exec(block, namespace)
    expected = {1: ([ENTITY], None), 2: ([], "there is no text")}
    assert "上海" in capsys.readouterr().out
    namespace["annotated"].write_parquet(str(tmp_path / "entities"))
    found = pq.read_table(tmp_path / "entities").to_pylist()
    assert {row["key"]: (row["entities"], row["error"]) for row in found} == expected


@pytest.mark.slow
@pytest.mark.usefixtures("time_limit")
def test_batch_of_lost_ray_actor_is_annotated_once(ray: Any, model: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"

    class CrashingAnnotator(Annotator):
        """End the process at the first batch of the first actor."""

        def __call__(self, rows: Any) -> Any:
            if not crashed.exists():
                crashed.touch()
                os._exit(1)
            return super().__call__(rows)

    texts = ray.data.from_items([{"key": key, "body": "王小明去了上海。"} for key in range(20)])
    annotated = texts.map_batches(
        CrashingAnnotator,
        fn_constructor_args=(str(model), AnnotateSettings(text="body")),
        batch_format="pyarrow",
        batch_size=5,
        compute=ray.data.ActorPoolStrategy(size=1),
    )
    rows = annotated.take_all()
    assert crashed.exists()
    assert sorted(row["key"] for row in rows) == list(range(20))
    assert all(row["entities"] == [ENTITY] for row in rows)
