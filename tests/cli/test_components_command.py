"""`python -m spacy tener components`: a pipeline in, cosines and a figure out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import spacy
from spacy.cli._util import app
from spacy.training import Example
from typer.testing import CliRunner

import spacy_tener.cli  # noqa: F401 - registers the commands
from spacy_tener.workbench.report import canvas

PLAIN = {"WASABI_LOG_FRIENDLY": "1", "COLUMNS": "200"}
TABLE = "江\t氵 工\n河\t氵 可\n湖\t氵 胡\n钢\t钅 冈\n银\t钅 艮\n林\t木 木\n村\t木 寸\n"
TEXT = "江河钢银林村abc1"


class Result:
    """What a run printed, and how it ended."""

    def __init__(self, *arguments: str | Path) -> None:
        result = CliRunner(env=PLAIN).invoke(app, ["tener", "components", *map(str, arguments)])
        self.code = result.exit_code
        self.text = " ".join(result.output.split())


def trained(tok2vec: dict, path: Path) -> Path:
    nlp = spacy.blank("zh")
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}
    nlp.add_pipe("tener_ner", config={"model": model})
    example = Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 2, "GPE")]})
    optimizer = nlp.initialize(lambda: [example])
    nlp.update([example], sgd=optimizer)
    nlp.vocab.strings.add("湖")
    nlp.to_disk(path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """MECT, TENER with components beside characters, and TENER without."""
    folder = tmp_path_factory.mktemp("components")
    (folder / "parts.txt").write_text(TABLE, encoding="utf8")
    (folder / "words.txt").write_text("江河\n", encoding="utf8")
    source = {"@misc": "spacy_tener.ComponentsFile.v1", "path": str(folder / "parts.txt")}
    components = {"@architectures": "spacy_tener.ComponentEmbed.v1", "width": 8, "source": source}
    chars = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 8, "bigram_width": 0}
    words = {
        "@architectures": "spacy_tener.LexiconEmbed.v1",
        "width": 8,
        "lexicon": {"@misc": "spacy_tener.WordList.v1", "path": str(folder / "words.txt")},
    }
    sizes = {"width": 16, "heads": 2}
    mect = {"embed": chars, "words": words, "components": components, "random_attention": 8}
    join = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": chars, "second": components}
    tener = {"@architectures": "spacy_tener.TENER.v1", **sizes}
    return {
        "mect": trained({"@architectures": "spacy_tener.MECT.v1", **sizes, **mect}, folder / "mect"),
        "join": trained({**tener, "embed": join}, folder / "join"),
        "plain": trained({**tener, "embed": chars}, folder / "plain"),
    }


@pytest.mark.parametrize("name", ["mect", "join"])
def test_characters_of_the_pipeline_are_compared_before_and_after(made, name: str, tmp_path: Path) -> None:
    output = tmp_path / "new" / "components.json"
    result = Result(made[name], "--output", output)
    assert result.code == 0, result.text
    assert "6 characters of 8 components, as tener_ner reads them" in result.text
    assert "Left out, with components that training has not shown: 1 湖" in result.text
    assert "pairs that share a component 3 " in result.text
    assert "Nearest to 村 (* shares a component):" in result.text
    data = json.loads(output.read_text(encoding="utf8"))
    assert data["before"]["cosines"]["component"]["pairs"] == 3
    assert data["after"]["cosines"]["neither"]["pairs"] == 12
    assert data["before"] != data["after"]
    assert (data["pipe"], data["characters"], data["left_out"]) == ("tener_ner", 6, ["湖"])


def test_what_is_printed_is_the_same_every_time(made) -> None:
    assert Result(made["join"]).text == Result(made["join"]).text


def test_characters_and_the_middle_can_be_chosen(made) -> None:
    result = Result(made["join"], "--characters", "江河江林x湖", "--middle", "河", "--nearest", "1")
    assert result.code == 0, result.text
    assert "3 characters of 4 components" in result.text
    assert "training has not shown: 2 x湖" in result.text
    nearest = result.text.partition("Nearest to 河 (* shares a component): ")[2]
    assert nearest.split() in (["江*"], ["林"])


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("options", [[], ["--initial"]])
def test_figures_are_written(made, tmp_path: Path, ending: str, options: list[str]) -> None:
    path = tmp_path / "new" / f"figure.{ending}"
    result = Result(made["mect"], "--plot", path, *options)
    assert result.code == 0, result.text
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_before_training_is_drawn_where_it_is_asked_for(made, tmp_path: Path) -> None:
    sizes = []
    for options in ([], ["--initial"]):
        Result(made["mect"], "--plot", tmp_path / "a.svg", *options)
        sizes.append((tmp_path / "a.svg").read_text(encoding="utf8").count('id="axes_'))
    assert sizes == [1, 2]


def test_without_a_chinese_font_code_points_are_drawn_and_said(made, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(canvas, "_CHINESE", ())
    result = Result(made["join"], "--plot", tmp_path / "a.png")
    assert result.code == 0
    assert "No font here has 6 of the characters: they are drawn as code points" in result.text
    assert "Noto Sans CJK SC" in result.text


def test_a_pipeline_without_components_is_told_so_in_one_message(made) -> None:
    result = Result(made["plain"])
    assert result.code == 1
    assert "nothing in this pipeline reads the components of characters (tener_ner)" in result.text
    assert "spacy_tener.ComponentEmbed.v1" in result.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--characters", "江"], "There are no two characters to compare: training has shown all components of 1 of 1"),
        (["--middle", "华"], "--middle 华: not one of the characters that are compared"),
        (["--plot", "a.pdf"], "figures are .png or .svg"),
    ],
)
def test_what_cannot_be_done_is_said(made, arguments: list[str], message: str) -> None:
    result = Result(made["join"], *arguments)
    assert result.code == 1
    assert message in result.text


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = Result(tmp_path / "nothing")
    assert result.code == 1
    assert "nothing" in result.text


def test_without_matplotlib_the_extra_is_named_and_the_numbers_are_there(made, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = Result(made["join"], "--plot", tmp_path / "a.png")
    assert result.code == 1
    assert "pairs that share a component 3 " in result.text
    assert "pip install 'spacy_tener[plot]'" in result.text
