"""The lines for Spark on the page, as they stand there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from small_corpora import ruled

PAGE = Path(__file__).parents[2] / "docs" / "many-machines.md"
ENTITY = {"start": 5, "end": 7, "label": "GPE", "text": "上海"}


@pytest.fixture
def code(tmp_path: Path) -> list[str]:
    """The blocks of the section, with a pipeline that is there."""
    ruled(GPE="上海").to_disk(tmp_path / "model")
    section = PAGE.read_text(encoding="utf8").partition("\n## Spark\n")[2]
    return [
        part.partition("```")[0].replace("/models/news", str(tmp_path / "model"))
        for part in section.split("```python\n")[1:]
    ]


def test_frames_are_annotated_one_after_the_other(code: list[str]) -> None:
    names: dict[str, Any] = {}
    exec(code[0], names)
    frames = [
        pd.DataFrame({"key": keys, "body": texts})
        for keys, texts in (([1, 2], ["王小明去了上海。", None]), ([3], ["好"]))
    ]
    found = list(names["annotate"](iter(frames)))
    assert [list(frame.columns) for frame in found] == [["key", "body", "entities", "error"]] * 2
    assert [frame["key"].tolist() for frame in found] == [[1, 2], [3]]
    assert [list(map(list, frame["entities"])) for frame in found] == [[[ENTITY], []], [[]]]
    assert found[0]["error"].isna().tolist() == [True, False]
    assert found[0]["error"][1] == "there is no text"


@pytest.mark.slow
def test_spark_runs_the_lines(
    code: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Needs `pip install pyspark`, and Java."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names: dict[str, Any] = {}
    for block in code:
        exec(block, names)
    rows = names["texts"].repartition(2).mapInPandas(names["annotate"], names["schema"]).collect()
    names["spark"].stop()
    found = {row.key: ([entity.asDict() for entity in row.entities], row.error) for row in rows}
    assert found == {1: ([ENTITY], None), 2: ([], "there is no text")}
