"""Tests of `python -m research speed` and `radicals`."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from matplotlib.backends.backend_agg import FigureCanvasAgg
from research_commands import run_research
from small_corpora import rule_pipeline
from spacy.tokens import DocBin, Span

from research.relative_speed import draw_relative_speeds, measure_speeds


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rule_pipeline(GPE="上海").to_disk(tmp_path / "model")
    return tmp_path / "model"


def test_speeds_are_drawn_as_times_the_first_pipeline_in_the_smallest_batch(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("王小明去了上海。\n好\n", encoding="utf8")
    ran = run_research(
        *("speed", f"first={model}", f"second={model}", "--texts", tmp_path / "texts.txt", "--rounds", 1),
        *("--output", tmp_path / "a.webp"),
    )
    assert ran.code == 0, ran.text
    assert "2 texts, 9 characters" in ran.text
    assert (tmp_path / "a.webp").read_bytes()[8:12] == b"WEBP"


def test_every_pipeline_reads_all_texts_in_batches_of_every_size_in_every_round() -> None:
    read: list[tuple[int, int]] = []

    class Pipeline:
        def pipe(self, texts, batch_size):
            read.append((len(texts), batch_size))
            return iter(texts)

    speeds = measure_speeds({"a": Pipeline(), "b": Pipeline()}, ["好", "好的"], [1, 16], rounds=2)  # type: ignore[dict-item]
    assert read == [(2, 1), (2, 16)] * 2 * 3  # including a warm-up round
    assert {name: list(by_size) for name, by_size in speeds.items()} == {"a": [1, 16], "b": [1, 16]}


def test_bars_are_speeds_relative_to_the_measure(tmp_path: Path) -> None:
    figure = draw_relative_speeds({"flat": {1: 10.0, 16: 25.0}, "mect": {1: 5.0, 16: 20.0}}, tmp_path / "a.svg")
    (axis,) = figure.axes
    assert [[bar.get_width() for bar in bars] for bars in axis.containers] == [[1.0, 0.5], [2.5, 2.0]]
    assert [text.get_text() for text in axis.texts] == ["×1.00", "×0.50", "×2.50", "×2.00"]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["flat", "mect"]
    FigureCanvasAgg(figure).draw()
    bars = [bar.get_window_extent() for container in axis.containers for bar in container]
    assert not any(a.overlaps(b) for a in bars for b in bars if a is not b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model"], "model: not a name and a pipeline"),
        (["a=model", "--batch-sizes", "1,x"], "--batch-sizes 1,x: not whole numbers above 0"),
        (["a=model", "--batch-sizes", "0"], "not whole numbers above 0"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = run_research("speed", *arguments, "--texts", tmp_path / "t.txt", "--output", tmp_path / "a.png")
    assert (ran.code, message in ran.text) == (2, True), ran.text


def test_a_pipeline_without_radicals_has_no_plane(model: Path, tmp_path: Path) -> None:
    ran = run_research("radicals", model, "--output", tmp_path / "a.png")
    assert ran.code == 1
    assert "Nothing in this pipeline reads the radicals of characters" in ran.text


def test_languages_are_scored_each_by_itself(model: Path, tmp_path: Path) -> None:
    for name, text in (("zh", "去上海"), ("zh-pud", "去北京")):
        doc = spacy.blank("zh")(text)
        doc.set_ents([Span(doc, 1, 3, "GPE")])
        (tmp_path / "data").mkdir(exist_ok=True)
        DocBin(docs=[doc]).to_disk(tmp_path / "data" / f"{name}.spacy")
    ran = run_research("languages", model, tmp_path / "data")
    assert ran.code == 0, ran.text
    rows = [line.split(" | ") for line in ran.lines if line.startswith("| zh")]
    assert rows == [
        ["| zh", "1", "100.0", "100.0", "100.0", "100.0 |"],
        ["| zh-pud", "1", "0.0", "0.0", "0.0", "0.0 |"],
    ]
    assert run_research("languages", model, tmp_path / "data", "--output", tmp_path / "a.md").code == 0
    assert "| zh | 1 |" in (tmp_path / "a.md").read_text(encoding="utf8")
    (tmp_path / "empty").mkdir()
    assert "there are no .spacy files" in run_research("languages", model, tmp_path / "empty").text
