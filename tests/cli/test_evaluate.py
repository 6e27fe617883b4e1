"""Test the command `evaluate`: scores, counts, speed, and pages of errors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import spacy
from command_line import run_tener
from small_corpora import annotated, save_corpus, save_docs
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from research.scores import Confusion, read_scores, total
from spacy_tener.cli.evaluate import write_displacy
from spacy_tener.errors import MissingPackageError
from spacy_tener.pages import displacy_options

LOADED: list[str] = []
TEXTS = [("王李张", [(0, 1, "PER.NAM"), (1, 2, "PER.NOM")]), ("王钱", [(0, 1, "PER.NOM"), (1, 2, "PER.NAM")])]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Save a pipeline that labels 王 as a name, and 张 and 李 as nominal mentions."""
    nlp = spacy.blank("zh")
    patterns = [{"label": "PER.NAM", "pattern": "王"}]
    patterns += [{"label": "PER.NOM", "pattern": char} for char in "李张"]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    path = tmp_path / "weibo/rules/1/model-best"
    path.parent.mkdir(parents=True)
    nlp.to_disk(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return save_corpus(tmp_path / "test.spacy", TEXTS)


def evaluate(*arguments: object) -> tuple[int, str]:
    ran = run_tener("evaluate", *arguments)
    return ran.code, ran.text


@Language.component("slow_at_first")
def slow_at_first(doc: Doc) -> Doc:
    if not LOADED:
        LOADED.append("a dictionary")
        time.sleep(1.0)
    return doc


def test_speed_excludes_lazy_loading_by_first_text(model: Path, data: Path) -> None:
    nlp = spacy.load(model)
    nlp.add_pipe("slow_at_first")
    nlp.to_disk(model)
    LOADED.clear()
    code, text = evaluate(model, data, "--output", model.parent / "metrics.json")
    assert code == 0, text
    assert LOADED
    # The corpus has 5 tokens. The sleep of one second would reduce the speed to 5 tokens per second.
    assert json.loads((model.parent / "metrics.json").read_text(encoding="utf8"))["speed"] > 5 * 5


def test_scores_and_counts_are_written_to_metrics_file(model: Path, data: Path) -> None:
    code, text = evaluate(model, data, "--output", model.parent / "metrics.json")
    assert code == 0, text
    # True positives: 王 and 李. False positives: 张, and the second 王 as a name. False negatives: 钱, and the second
    # 王 as a nominal mention.
    assert "All 50.00 50.00 50.00 4" in text
    assert "PER.NAM 50.00 50.00 50.00 2" in text
    assert "tokens per second" in text
    scores = read_scores(model.parent / "metrics.json")
    assert scores.counts == {"PER.NAM": Confusion(1, 1, 1), "PER.NOM": Confusion(1, 1, 1)}
    assert total(scores.counts.values()).score == scores.overall
    assert scores.speed


def test_text_longer_than_max_length_is_scored(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nlp := spacy.load(model)).max_length = 1
    monkeypatch.setattr("spacy_tener.cli.evaluate.load_pipeline", lambda _: nlp)
    code, text = evaluate(model, data, "--page", tmp_path / "errors.html")
    assert code == 0, text


def test_counts_per_document_are_written_on_single_line(model: Path, data: Path, tmp_path: Path) -> None:
    evaluate(model, data, "--output", tmp_path / "m.json")
    lines = (tmp_path / "m.json").read_text(encoding="utf8").splitlines()
    assert '"ents_counts_per_doc": [[2, 1, 0], [0, 1, 2]]' in [line.strip().rstrip(",") for line in lines]


def test_missing_package_is_reported_without_traceback(
    model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = MissingPackageError("Texts need rjieba, which is not installed", "Install it with `pip install x`.")
    monkeypatch.setattr(spacy, "load", Mock(side_effect=missing))
    code, text = evaluate(model, data)
    assert code == 1
    assert text.strip().endswith("Texts need rjieba, which is not installed Install it with `pip install x`.")
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("name", "content"), [("meta.json", "{"), ("config.cfg", "[nlp]\nlang"), ("config.cfg", "[nlp]\nlang = ${a.b}\n")]
)
def test_damaged_pipeline_error_names_the_file(model: Path, data: Path, name: str, content: str) -> None:
    (model / name).write_text(content, encoding="utf8")
    code, text = evaluate(model, data)
    assert code == 1
    assert str(model / name) in text


def test_error_page_is_written_with_explanations(saved: dict[str, Path], tmp_path: Path) -> None:
    docs = [spacy.blank("zh").make_doc("京"), annotated("王小明去了上海", [(0, 2, "ORG")])]
    data = save_docs(tmp_path / "weibo" / "test.spacy", *docs)
    code, text = evaluate(saved["tener"], data, "--page", tmp_path / "e.html", "--explain", 5)
    assert code == 0, text
    page, why = ((tmp_path / name).read_text(encoding="utf8") for name in ("e.html", "e-why.html"))
    assert "<title>Errors on weibo/test</title>" in page
    assert '"explained":{"page":"e-why.html","texts":{"1":0}}' in page
    assert '"gold":[[0,2,"ORG"]]' in why
    assert f'"review":"python -m spacy tener review {saved["tener"]} {data} --output' in page
    assert "e.html: 1 text with errors, of 2 texts" in text
    code, text = evaluate(saved["tener"], data.parent, "--page", tmp_path / "all.html")
    assert (code, '"review":""' in (tmp_path / "all.html").read_text(encoding="utf8")) == (0, True), text


def test_confidence_interval_of_f1_is_printed_and_saved(model: Path, tmp_path: Path) -> None:
    docs = [annotated("王李", [(0, 1, "PER.NAM")]), annotated("王李", [(0, 1, "PER.NAM"), (1, 2, "PER.NOM")])] * 10
    code, text = evaluate(model, save_docs(tmp_path / "test.spacy", *docs), "-o", tmp_path / "scores.json")
    assert code == 0, text
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf8"))
    low, high = scores["ents_f_interval"]
    assert low < scores["ents_f"] < high
    assert f"95 % confidence interval of F1: {100 * low:.1f} to {100 * high:.1f} (bootstrap over 20 texts)" in text


def test_page_of_unannotated_corpus_shows_predictions(model: Path, tmp_path: Path) -> None:
    data = save_docs(tmp_path / "test.spacy", spacy.blank("zh").make_doc("王李"))
    code, text = evaluate(model, data, "--page", tmp_path / "e.html")
    assert (
        code,
        "no entities to score Check that the data contains gold annotation. The page shows only the predicted entities."
        in text,
    ) == (0, True)
    assert '"scores":null,"texts":[["王李",[[0,[0,1,"PER.NAM"],null],[0,[1,2,"PER.NOM"],null]]]]' in (
        tmp_path / "e.html"
    ).read_text(encoding="utf8")


def test_explain_without_tener_ner_raises_error_before_evaluation(model: Path, data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = run_tener("evaluate", model, data, "--page", page, "--explain", 1)
    assert ran.code == 1
    assert "no tener_ner" in ran.text
    assert "tokens per second" not in ran.text


def test_displacy_page_shows_predictions_with_label_colors(saved: dict[str, Path], tmp_path: Path) -> None:
    """`spacy evaluate --displacy-path` requires the factory `ner`, and writes no page for `tener_ner`."""
    corpus = save_corpus(tmp_path / "texts.spacy", [("王小明去了上海", []), ("今天天气很好", []), ("他在南京大学", [])])
    code, text = evaluate(saved["tener"], corpus, "--displacy-path", tmp_path / "pages", "--displacy-limit", 2)
    assert code == 0, text
    assert f"{tmp_path / 'pages' / 'entities.html'}: 2 texts" in text
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["entities.html"]
    html = (tmp_path / "pages" / "entities.html").read_text(encoding="utf8")
    assert [word in html for word in ("王小明", "PER", "南京大学")] == [True, True, False]
    assert displacy_options(["GPE", "ORG", "PER"])["colors"]["PER"] in html
    assert str(saved["tener"]) in html
    code, text = evaluate(saved["tener"], corpus, "-dp", tmp_path / "pages", "--displacy-limit", 1)
    assert (code, "entities.html: exists already" in text) == (1, True), text
    assert (tmp_path / "pages" / "entities.html").read_text(encoding="utf8") == html
    code, text = evaluate(saved["tener"], corpus, "-dp", tmp_path / "pages", "--displacy-limit", 1, "--force")
    assert (code, "entities.html: 1 text" in text) == (0, True), text
    code, text = evaluate(saved["tener"], corpus, "-dp", corpus)
    assert (code, "texts.spacy: is a file Use a directory." in text) == (2, True), text


def test_displacy_writes_separate_pages_for_spans_and_parses(tmp_path: Path) -> None:
    nlp = spacy.blank("zh")
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "depth": 2}
    pipe = nlp.add_pipe("tener_ner", config={"model": model, "spans_key": "sc"})
    nlp.add_pipe("parser").add_label("dep")  # type: ignore[attr-defined]
    nested = [Example(nlp.make_doc("北京大学"), annotated("北京大学", [(0, 4, "ORG")]))]
    nested[0].reference.spans["sc"] = [nested[0].reference.char_span(0, 2, "GPE"), *nested[0].reference.ents]
    pipe.initialize(lambda: nested, nlp=nlp)  # type: ignore[attr-defined]
    nlp.get_pipe("parser").initialize(lambda: nested, nlp=nlp)  # type: ignore[attr-defined]
    pages = write_displacy(nlp, ["北京大学"], tmp_path, title="model", limit=3)
    assert [page.name for page in pages] == ["entities.html", "spans.html", "parses.html"]
    assert all(page.is_file() for page in pages)
    assert write_displacy(nlp, [], tmp_path / "none", title="model", limit=3) == []


@pytest.mark.parametrize(("temperature", "uncalibrated"), [(1.0, True), (1.7, False)])
def test_pages_name_uncalibrated_probabilities(
    saved: dict[str, Path], tmp_path: Path, temperature: float, uncalibrated: bool
) -> None:
    nlp = spacy.load(saved["tener"])
    nlp.get_pipe("tener_ner").cfg["temperature"] = temperature
    nlp.to_disk(tmp_path / "model")
    data = save_docs(tmp_path / "test.spacy", annotated("王小明去了上海", [(0, 2, "ORG")]))
    (tmp_path / "texts.txt").write_text("王小明去了上海", encoding="utf8")
    for command in (
        ("evaluate", tmp_path / "model", data, "--page", tmp_path / "errors.html", "--explain", 1),
        ("suggest", tmp_path / "model", tmp_path / "texts.txt", "--output", tmp_path / "annotate.html"),
        ("review", tmp_path / "model", data, "--output", tmp_path),
    ):
        ran = run_tener(*command)
        assert ran.code == 0, ran.text
    for name in ("errors.html", "errors-why.html", "annotate.html", "review.html"):
        page = (tmp_path / name).read_text(encoding="utf8")
        assert (" · uncalibrated probabilities</p>" in page) == uncalibrated, name
