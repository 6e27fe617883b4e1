"""benchmarks/soak.py: a pipeline and corpora in, a page with the speed and memory of each tenth of the texts out."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the resident size is read from /proc")


@pytest.mark.parametrize("options", [[], ["--zone", "3"]], ids=["no zones", "zones"])
def test_a_page_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: dict[str, Path], options: list[str]
) -> None:
    nlp = spacy.blank("zh")
    DocBin(docs=[nlp.make_doc(text) for text in ("王小明去了上海", "今天天气很好", "京")]).to_disk(
        tmp_path / "train.spacy"
    )
    page = tmp_path / "soak.md"
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    soak = importlib.import_module("soak")
    # It would start this process again.
    monkeypatch.setattr(soak._report, "single_thread", lambda cpu: None)
    arguments = [saved["tener"], tmp_path, "--texts", "200", "--out", page, *options]
    monkeypatch.setattr(sys, "argv", ["soak.py", *map(str, arguments)])
    soak.main()
    text = page.read_text(encoding="utf8")
    assert "over 200 texts" in text
    assert "2 documents" in text, "a text of one character cannot be cut"
    assert ("zones of 3 texts" in text) == bool(options)
    assert re.findall(r"^\| (\d+) \|", text, flags=re.M) == [str(number) for number in range(1, 11)]
    assert re.search(r"first: [+-][\d.]+% characters per second, [+-][\d.]+% memory", text)
