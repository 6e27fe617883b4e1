"""HTML pages with nested and crossing entities, in English and Chinese. The text is shown exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import spacy
from browser import Browser
from command_line import run_tener
from small_systems import learn, pipeline, small_tok2vecs
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import filter_spans

from spacy_tener.evaluation.errors_page import Pair, errors_page
from spacy_tener.explain import explain
from spacy_tener.pages import Heading
from spacy_tener.pipeline.entities import EntityOffsets, FoundEntity
from spacy_tener.review.active_learning import Suggestion, make_tasks
from spacy_tener.review.page import annotation_page, review_page
from spacy_tener.review.suspected_errors import ReviewedDoc, disagreements

pytestmark = pytest.mark.integration

WASM = Path(__file__).parents[2] / "readers" / "js" / "node_modules" / "onnxruntime-web"
TEXT = "李华去了北京大学😀王小明在上海银行"
NESTED: list[EntityOffsets] = [
    (0, 2, "PER"),
    (4, 8, "ORG"),
    (4, 6, "GPE"),
    (9, 12, "PER"),
    (13, 17, "ORG"),
    (13, 15, "GPE"),
]
CROSSING: list[EntityOffsets] = [*NESTED, (1, 5, "ROUTE"), (5, 7, "ROUTE")]
MARKED = """
    const shown = [...document.querySelectorAll(arguments[0])].map((node) => {
        const copy = node.cloneNode(true);
        for (const label of copy.querySelectorAll("small")) label.remove();
        return copy.textContent;
    });
    return [shown, document.querySelectorAll(`${arguments[0]} .ent`).length];
"""
LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])


def annotated(nlp: Language, entities: list[EntityOffsets]) -> Doc:
    doc = nlp.make_doc(TEXT)
    doc.spans["sc"] = [doc.char_span(*entity) for entity in entities]
    doc.set_ents(filter_spans(doc.spans["sc"]), default="outside")
    return doc


@pytest.fixture(scope="module")
def nlp(tmp_path_factory: pytest.TempPathFactory) -> Language:
    folder = tmp_path_factory.mktemp("nested")
    nlp = pipeline(small_tok2vecs(folder)["TENER"], depth=2, spans_key="sc")
    learn(nlp, [Example(nlp.make_doc(TEXT), annotated(nlp, NESTED))], steps=200, enough=0.05)
    doc = nlp(TEXT)
    assert {(span.start_char, span.end_char, span.label_) for span in doc.spans["sc"]} == set(NESTED)
    nlp.config["initialize"] = {}
    nlp.to_disk(folder / "model")
    return spacy.load(folder / "model")


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[[str, str, str], int]]:
    """Open a page, check that an element shows the text exactly once, and return the number of marked entities."""

    def check(language: str, html: str, selector: str) -> int:
        (tmp_path / "page.html").write_text(html, encoding="utf8")
        with browser.with_language(language):
            browser.open((tmp_path / "page.html").as_uri())
        assert browser.run("return document.documentElement.lang") == language
        shown, marks = browser.run(MARKED, selector)
        assert shown == [TEXT]
        assert browser.console_messages() == []
        return int(marks)

    yield check
    browser.run("localStorage.clear()")


@LANGUAGES
def test_explanation_page_marks_nested_entities(
    show: Callable[[str, str, str], int], browser: Browser, nlp: Language, language: str
) -> None:
    assert show(language, explain(nlp, TEXT).to_html(), "#text") == len(NESTED)
    titles = []
    for button in browser.driver.find_elements("css selector", "#text .ent > small"):
        browser.run("arguments[0].click()", button)
        titles.append(browser.run("return document.getElementById('entity-title').firstChild.data"))
    assert sorted(titles) == sorted(TEXT[start:end] for start, end, _ in NESTED)
    assert browser.violations() == []


@LANGUAGES
def test_explanation_page_marks_crossing_entity_list_matches(
    show: Callable[[str, str, str], int], browser: Browser, nlp: Language, language: str
) -> None:
    ner = nlp.get_pipe("tener_ner")
    ner.cfg["temperature"] = 8.0
    has_lists = "entity_lists" in nlp.pipe_names
    lists = nlp.get_pipe("entity_lists") if has_lists else nlp.add_pipe("entity_lists", before="tener_ner")
    lists.add({"北京大学": "SCHOOL", "明在上": "ROUTE"})
    try:
        explanation = explain(nlp, TEXT)
    finally:
        lists.clear()
        del ner.cfg["temperature"]
    entities = explanation.texts[0].entities
    assert {entity.label: entity.alternatives for entity in entities if entity.is_existing} == {
        "SCHOOL": [],
        "ROUTE": [],
    }
    assert any(entity.alternatives for entity in entities)
    assert show(language, explanation.to_html(), "#text") >= len(entities)
    assert browser.run("return document.querySelectorAll('#text .ent > small').length") == len(entities)


@LANGUAGES
def test_errors_page_marks_nested_and_crossing_entities(
    show: Callable[[str, str, str], int], nlp: Language, language: str
) -> None:
    pairs = [Pair(entity, None, probability=0.5) for entity in NESTED]
    pairs += [Pair(None, entity, probability=0.5) for entity in CROSSING]
    html = errors_page(Heading("Errors on {data}", values={"data": "dev"}), None, [(annotated(nlp, NESTED), pairs)])
    assert show(language, html, "#list .line") == len(pairs)


@LANGUAGES
@pytest.mark.parametrize("entities", [NESTED, CROSSING])
def test_review_page_marks_nested_and_crossing_entities(
    show: Callable[[str, str, str], int], nlp: Language, entities: list[EntityOffsets], language: str
) -> None:
    doc = annotated(nlp, entities)
    gold = [FoundEntity(*entity, 0.5) for entity in entities]
    found = [FoundEntity(*entity, 0.9) for entity in NESTED[1:]]
    errors = tuple(disagreements(0, gold, found, nested=True))
    html = review_page(errors, {0: ReviewedDoc(0, doc, 0.1, errors, 0, "sc")}, corpus="dev.spacy")
    assert show(language, html, "#list .line") >= len(entities)


@LANGUAGES
def test_annotation_page_marks_nested_entities(
    show: Callable[[str, str, str], int], nlp: Language, language: str
) -> None:
    tasks = make_tasks(nlp, [Suggestion({"text": TEXT}, 0.0)], ["PER", "ORG", "GPE"])
    html = annotation_page(tasks, ["PER", "ORG", "GPE"], model="", inputs="", overlapping=True)
    assert show(language, html, "#list .line") == len(NESTED)


FOUND = "return document.querySelectorAll('#text .ent').length"
ENTER = """
    document.getElementById("input").value = arguments[0];
    document.getElementById("input").dispatchEvent(new Event("input", { bubbles: true }));
"""


@pytest.mark.slow
@LANGUAGES
def test_browser_model_page_marks_nested_entities(
    browser: Browser, nlp: Language, tmp_path: Path, language: str
) -> None:
    out = ("--output", tmp_path / "ner.onnx", "--page", tmp_path / "page", "--wasm", WASM)
    assert run_tener("export", nlp.path, *out).code == 0
    with browser.with_language(language):
        browser.open((tmp_path / "page" / "index.html").as_uri())
    browser.run(ENTER, TEXT)
    browser.wait(lambda: browser.run(FOUND) == len(NESTED))
    assert browser.run(MARKED, "#text")[0] == [TEXT]
