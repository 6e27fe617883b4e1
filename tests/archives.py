"""Write archives of texts, and read annotated archives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def write_jsonl(path: Path, texts: Iterable[str]) -> Path:
    lines = (json.dumps({"key": key, "text": text}, ensure_ascii=False) for key, text in enumerate(texts))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf8")
    return path


def read_output(folder: Path) -> list[dict[str, Any]]:
    """Read all records of an output directory, in order. Works with all formats."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
        else:
            rows += map(json.loads, path.read_text(encoding="utf8").splitlines())
    return rows
