"""Tests of benchmarks/radicals.py, which writes a page and MECT's Figure 5."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import spacy
from research_commands import run_research
from spacy.training import Example

ROOT = Path(__file__).resolve().parents[2]
PARTS = "江\t氵 工\n河\t氵 可\n湖\t氵 胡\n钢\t钅 冈\n银\t钅 艮\n林\t木 木\n村\t木 寸\n"
TEXT = "江河钢银林村工可冈艮寸abc1"


@pytest.fixture
def radicals(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "research" / "benchmarks")
    return importlib.import_module("radicals")


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline trained on two texts. Only one radical of 湖 occurs in them."""
    (tmp_path / "parts.txt").write_text(PARTS, encoding="utf8")
    source = {"@misc": "spacy_tener.RadicalsFile.v1", "path": str(tmp_path / "parts.txt")}
    embed = {"@architectures": "spacy_tener.RadicalEmbed.v1", "width": 8, "source": source}
    tok2vec = {"@architectures": "spacy_tener.TENER.v1", "width": 16, "heads": 2, "embed": embed}
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}})
    example = Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 2, "GPE")]})
    nlp.update([example], sgd=nlp.initialize(lambda: [example]))
    nlp.vocab.strings.add("湖")
    nlp.config["training"] = {"seed": 1}
    nlp.to_disk(tmp_path / "model")
    return tmp_path / "model"


# The machine may not have a font with Chinese characters.
@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_page_and_its_picture_are_written(radicals, pipeline, tmp_path, monkeypatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(
        "sys.argv", ["radicals.py", f"1={pipeline}", f"2={pipeline}", "--middle", "江", "--out", str(page)]
    )
    radicals.main()
    rows = [line for line in page.read_text(encoding="utf8").splitlines() if line.startswith("| pairs that")]
    # There are 55 pairs in each table: 江河, 钢银 and 林村 share a radical, and five characters are radicals of others.
    assert [row.split(" | ")[1] for row in rows] == ["8", "3", "47"] * 2
    assert page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore:Glyph")
def test_the_plane_alone_is_drawn_by_a_command(pipeline, tmp_path) -> None:
    ran = run_research("radicals", pipeline, "--middle", "江", "--output", tmp_path / "a.svg")
    assert ran.code == 0, ran.text
    assert "11 characters" in ran.text
    ran = run_research("radicals", pipeline, "--middle", "湖", "--output", tmp_path / "b.svg")
    assert (ran.code, "Training has not shown all radicals of 湖" in ran.text) == (1, True)


def test_cosines_are_those_of_a_loop_over_pairs(radicals, pipeline) -> None:
    characters = radicals.Characters(spacy.load(pipeline))
    assert "湖" not in characters.names
    parts = dict(line.split("\t") for line in PARTS.splitlines())
    of = {name: set(parts.get(name, name).split()) for name in characters.names}
    vectors = characters.vectors["after training"]
    means: dict[bool, list[float]] = {True: [], False: []}
    for i, first in enumerate(characters.names):
        for j, second in enumerate(characters.names[:i]):
            cosine = vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
            means[bool(of[first] & of[second])].append(cosine)
    share, _, none, difference, _ = radicals.measure(characters, vectors)
    assert (share, none) == (
        pytest.approx(np.mean(means[True]), abs=1e-5),
        pytest.approx(np.mean(means[False]), abs=1e-5),
    )
    assert difference == pytest.approx(share - none)
    before = characters.vectors["before training"]
    assert before.shape == vectors.shape
    assert np.abs(before - vectors).max() > 1e-3
