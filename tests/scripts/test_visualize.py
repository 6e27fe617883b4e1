"""The page that shows the entities found beside those of the corpus."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import spacy
import visualize
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example


class Marks(HTMLParser):
    """The marked entities of a page's articles: class of the mark and its text with its label."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.open = False
        self.feed(page.partition("<article")[1] + page.partition("<article")[2])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "mark":
            self.found.append((dict(attrs).get("class") or "", ""))
            self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag != "mark"

    def handle_data(self, data: str) -> None:
        if self.open:
            state, text = self.found[-1]
            self.found[-1] = (state, f"{text} {data}".strip())


@pytest.fixture
def ruler() -> Language:
    """A pipeline with known errors: it misses 李四 and takes 北京大学 for the place in its name."""
    nlp = spacy.blank("zh")
    patterns = [{"label": "PER", "pattern": "张三"}, {"label": "loc", "pattern": "北京"}]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    return nlp


GOLD = [
    ("张三见了李四。", [(0, 2, "PER"), (4, 6, "PER")]),
    ("他在北京大学。", [(2, 6, "ORG")]),
    ("张三来了 & <走>了。", [(0, 2, "PER")]),
]


@pytest.fixture
def model(ruler: Language, tmp_path: Path) -> Path:
    """The pipeline on disk, and the corpus beside it as gold.spacy."""
    docs = []
    for text, spans in GOLD:
        doc = ruler.make_doc(text)
        doc.ents = [doc.char_span(*span[:2], label=span[2]) for span in spans]
        docs.append(doc)
    DocBin(docs=docs).to_disk(tmp_path / "gold.spacy")
    ruler.to_disk(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def drawn(model: Path) -> str:
    output = model.parent / "pages" / "deep" / "page.html"
    draw("A & B", model, model.parent / "gold.spacy", output)
    return output.read_text(encoding="utf8")


def draw(corpus: str, model: Path, data: Path, output: Path) -> None:
    visualize.main([corpus, "--model", str(model), "--data", str(data), "--output", str(output)])


def test_page_shows_errors_beside_gold(drawn: str) -> None:
    assert Marks(drawn).found == [
        ("right", "张三 PER"),
        ("missed", "李四 PER"),
        ("right", "张三 PER"),
        ("missed", "北京大学 ORG"),
        ("wrong", "北京 loc"),
        ("right", "张三 PER"),
    ]
    assert drawn.count('<article class="error">') == 2
    assert drawn.count('<article class="right">') == 1


def test_page_states_scores_and_every_label(drawn: str) -> None:
    assert "<p>3 texts, 2 of them with errors.</p>" in drawn
    # Two of three found are right, two of four in the corpus are found.
    assert "<td>all</td><td>66.7</td><td>50.0</td><td>57.1</td>" in drawn
    assert "<td>ORG</td><td>0.0</td><td>0.0</td><td>0.0</td>" in drawn
    legend = drawn[drawn.index("Legend") : drawn.index("</p>", drawn.index("Legend"))]
    assert re.findall(r">(\w+)</mark>", legend) == ["ORG", "PER", "loc"]
    assert len(set(re.findall(r"background: (hsl[^\"]+)\"", legend))) == 3


def test_page_is_valid_alone_and_escapes_text(drawn: str) -> None:
    assert drawn.startswith("<!DOCTYPE html>")
    assert '<meta charset="utf-8">' in drawn
    assert "<title>A &amp; B, gold: gold and predicted entities</title>" in drawn
    assert "来了 &amp; &lt;走&gt;了" in drawn
    assert "http" not in drawn
    assert "<script" not in drawn


def test_page_draws_no_more_than_its_limit_and_scores_all(ruler: Language) -> None:
    docs = [ruler.make_doc(text) for text, _ in GOLD]
    examples = visualize.predict(ruler, [Example(doc, doc.copy()) for doc in docs])
    page = visualize.page(examples, lang="zh", title="t", limit=1)
    assert page.count("<article") == 1
    assert "3 texts" in page
    assert "The first 1 are drawn." in page


def test_a_corpus_of_the_project_is_known_by_its_name(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training" / "news" / "flat" / "2").mkdir(parents=True)
    model.rename(tmp_path / "training" / "news" / "flat" / "2" / "model-best")
    (tmp_path / "corpus" / "news").mkdir(parents=True)
    (tmp_path / "gold.spacy").rename(tmp_path / "corpus" / "news" / "test.spacy")
    visualize.main(["news", "--system", "flat", "--seed", "2"])
    assert str(tmp_path / "pages" / "news-flat.html") in capsys.readouterr().out.replace("\n", "")
    assert "news, test" in (tmp_path / "pages" / "news-flat.html").read_text(encoding="utf8")


def test_missing_data_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        draw("news", tmp_path / "blank", tmp_path / "none.spacy", tmp_path / "page.html")
    assert stop.value.code == 1
    assert "none.spacy" in capsys.readouterr().out.replace("\n", "")


def test_labels_are_escaped_in_marks_and_legend() -> None:
    doc = Doc(spacy.blank("zh").vocab, words=list("刀快"), spaces=[False, False], ents=["B-A<B", "O"])
    page = visualize.page([Example(doc, doc)], lang="zh", title="t", limit=9)
    assert "A<B" not in page
    assert page.count("A&lt;B") == 3


@pytest.mark.parametrize(("gold_preproc", "state"), [(False, "missed"), (True, "right")])
def test_the_datas_own_tokens_are_kept_where_the_pipeline_learned_them(
    tmp_path: Path, gold_preproc: bool, state: str
) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "ORG", "pattern": [{"ORTH": "Anglo-Dutch"}]}])
    nlp.config["corpora"]["dev"]["gold_preproc"] = gold_preproc
    nlp.to_disk(tmp_path / "model")
    doc = Doc(nlp.vocab, words=["The", "Anglo-Dutch", "talks"], spaces=[True, True, False])
    doc.ents = [doc.char_span(4, 15, label="ORG")]
    DocBin(docs=[doc]).to_disk(tmp_path / "gold.spacy")
    draw("news", tmp_path / "model", tmp_path / "gold.spacy", tmp_path / "page.html")
    assert Marks((tmp_path / "page.html").read_text(encoding="utf8")).found == [(state, "Anglo-Dutch ORG")]
