"""The pages for review and annotation in a real browser: decisions by mouse and keyboard are exported exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import DESKTOP, PHONE, Browser
from conversion import convert
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.select import Select
from small_corpora import blank
from spacy.tokens import Doc
from spacy.util import filter_spans

from spacy_tener.corpora.docs import read_docs
from spacy_tener.corpora.reader import CorpusOptions
from spacy_tener.pipeline.entities import FoundEntity, offsets_of
from spacy_tener.review.annotation_tools import Task
from spacy_tener.review.page import annotation_page, apply_decisions, review_page
from spacy_tener.review.suspected_errors import ReviewedDoc, disagreements, rank_suspected_errors

pytestmark = pytest.mark.integration

Entities = Sequence[tuple[int, int, str]]
CAPTURE_DOWNLOAD = "URL.createObjectURL = (blob) => { window.written = blob; return 'data:,'; };"
HOSTILE = "</script><img src=x onerror=document.title='taken'>😀王小明\u202e去了e\u0301上海"
NAME_START = HOSTILE.index("王小明")


def annotated(text: str, entities: Entities, words: Sequence[str] | None = None, *, nested: bool = False) -> Doc:
    nlp = blank("en")
    spaces = None if words is None else [text[text.index(word) + len(word) :][:1] == " " for word in words]
    doc = Doc(nlp.vocab, words=words or list(text), spaces=spaces or [False] * len(text))
    spans = [doc.char_span(*entity) for entity in entities]
    doc.set_ents(filter_spans(spans), default="outside")
    if nested:
        doc.spans["sc"] = spans
    return doc


def entities_of(doc: Doc) -> list[tuple[int, int, str]]:
    return sorted(map(offsets_of, doc.spans.get("sc", doc.ents)))


def found(entities: Entities, probability: float) -> list[FoundEntity]:
    return [FoundEntity(*entity, probability) for entity in entities]


class Review:
    """A page in the browser, with methods for the actions of an annotator.

    keys: Press keys one after another.
    """

    def __init__(self, browser: Browser, address: str, size: tuple[int, int]) -> None:
        self.browser = browser
        browser.open(address, size)
        browser.run(CAPTURE_DOWNLOAD)

    def keys(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.browser.driver).send_keys(key).perform()

    def shift(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.browser.driver).key_down(Keys.SHIFT).send_keys(key).key_up(Keys.SHIFT).perform()

    def lines(self) -> list[str]:
        return self.browser.run("return [...document.querySelectorAll('#list .line')].map((line) => line.textContent)")

    def decisions(self) -> list[dict[str, Any]]:
        self.browser.run("document.getElementById('export').click()")
        records: list[dict[str, Any]] = json.loads(self.browser.run("return window.written.text()"))
        return records

    def text(self, name: str) -> str:
        return str(self.browser.driver.find_element("id", name).text)

    def mark(self, start: int, end: int) -> None:
        """Select a part of the first text, by UTF-16 code units in its first text node."""
        self.browser.run(
            "const node = document.querySelector('#list [data-from]').firstChild;"
            "getSelection().setBaseAndExtent(node, arguments[0], node, arguments[1])",
            start,
            end,
        )
        self.browser.wait(lambda: "choose a label" in self.text("position"))


def converted(records: list[Any], folder: Path, lang: str = "zh", nested: bool = False) -> list[Doc]:
    """Convert the records that a page exports."""
    (folder / "decisions.json").write_text(json.dumps(records), encoding="utf8")
    options = CorpusOptions(overlap="spans" if nested else "error")
    convert([folder / "decisions.json"], folder / "out.spacy", options=options, lang=lang)
    return list(read_docs(folder / "out.spacy"))


def review_of(docs: Sequence[Doc], found_in_docs: Sequence[Entities]) -> str:
    """Return the review page of Docs, given the predicted entities of each Doc."""
    reviewed = []
    for number, (doc, entities) in enumerate(zip(docs, found_in_docs, strict=True)):
        sides, nested = (found(entities_of(doc), 0.1), found(entities, 0.9)), "sc" in doc.spans
        errors = tuple(disagreements(number, *sides, nested=nested))
        reviewed.append(ReviewedDoc(number, doc, 0.1, errors, 0, "sc" if nested else None))
    return review_page(rank_suspected_errors(reviewed), dict(enumerate(reviewed)), corpus="dev.spacy")


def shown(browser: Browser, folder: Path, page: str, size: tuple[int, int]) -> Review:
    (folder / "page.html").write_text(page, encoding="utf8")
    return Review(browser, (folder / "page.html").as_uri(), size)


OpenPage = Callable[..., Review]


@pytest.fixture
def reviewing(browser: Browser, tmp_path: Path) -> OpenPage:
    def start(docs: Sequence[Doc], found_in_docs: Sequence[Entities], size: tuple[int, int] = DESKTOP) -> Review:
        return shown(browser, tmp_path, review_of(docs, found_in_docs), size)

    return start


@pytest.fixture
def annotating(browser: Browser, tmp_path: Path) -> OpenPage:
    """Open the annotation page, with the entities of the Docs as suggestions."""

    def start(docs: Sequence[Doc], size: tuple[int, int] = DESKTOP, labels: Sequence[str] = ("PER", "ORG")) -> Review:
        tasks = [Task(doc, found(entities_of(doc), 0.6), 0.5, 0.5) for doc in docs]
        nested = any("sc" in doc.spans for doc in docs)
        page = annotation_page(tasks, labels, model="", inputs="", lang="zh", overlapping=nested)
        return shown(browser, tmp_path, page, size)

    return start


DOCS = [
    ("北京大学好", [(0, 4, "ORG")], [(0, 2, "LOC")]),
    ("王小明在上海", [(0, 2, "PER"), (4, 6, "PER")], [(0, 3, "PER"), (4, 6, "GPE")]),
    ("好的", [(0, 2, "PER")], []),
    ("长沙", [], [(0, 2, "GPE")]),
    ("王在", [(0, 1, "PER")], [(0, 1, "PER")]),
]


def test_keyboard_decisions_are_applied_to_corpus(reviewing: OpenPage) -> None:
    docs = [annotated(text, gold) for text, gold, _ in DOCS]
    review = reviewing(docs, [entities for *_, entities in DOCS], PHONE)
    assert sorted(review.lines()) == [
        "北京+ LOC 90.0 %大学ORG好",
        "好的PER",
        "王小PER明+ PER 90.0 %在上海+ GPE 90.0 %PER",
        "长沙+ GPE 90.0 %",
    ]
    assert "0 of 4 texts done · 0 of 5 suspected errors decided" in review.text("progress")
    assert review.browser.fits_width()
    assert review.browser.violations() == []
    order = [line[:2] for line in review.lines()]
    keys = {"北京": ["a"], "王小": ["a", "r"], "长沙": ["a"], "好的": ["a"]}
    for name in order:
        review.keys(*keys[name])
    assert "4 of 4 texts done · 5 of 5 suspected errors decided" in review.text("progress")
    records = review.decisions()
    assert all(record["answer"] == "accept" and not record["_is_binary"] for record in records)
    before = [doc.to_json() for doc in docs]
    applied = apply_decisions(docs, records)
    assert (applied.changed, applied.unchanged, applied.rejected) == (4, 1, [])
    assert [entities_of(doc) for doc in docs] == [
        [(0, 2, "LOC")],
        [(0, 3, "PER"), (4, 6, "PER")],
        [],
        [(0, 2, "GPE")],
        [(0, 1, "PER")],
    ]
    assert docs[4].to_json() == before[4]
    assert (review.browser.console_messages(), review.browser.requested_urls()) == ([], [])


def test_nested_decisions_are_applied_to_corpus(reviewing: OpenPage) -> None:
    """The first key accepts a nested entity, and does not change the outer entity."""
    docs = [
        annotated("在北京大学医学院", [(1, 8, "ORG")], nested=True),
        annotated("上海大学", [(0, 4, "ORG"), (0, 2, "PER"), (2, 4, "ORG")], nested=True),
        annotated("在上海大学", [(1, 5, "ORG")]),
    ]
    found = [[(1, 8, "ORG"), (1, 5, "ORG"), (1, 3, "GPE")], [(0, 4, "ORG"), (0, 2, "GPE")], [(1, 5, "GPE")]]
    review = reviewing(docs, found, PHONE)
    first, *rest = review.lines()
    assert first == "在北京+ GPE 90.0 %大学+ ORG 90.0 %医学院ORG"
    assert rest == ["上海+ GPE 90.0 %PER大学ORGORG", "在上海大学+ GPE 90.0 %ORG"]
    assert review.browser.fits_width()
    assert review.browser.violations() == []
    assert "annotated: nothing · model: 北京大学 ORG 90.0 %" in review.text("position")
    review.keys("a", "a")
    review.shift(Keys.ARROW_RIGHT)  # changes a boundary; `r` restores the annotation
    review.keys("r", "a", "a")
    assert "3 of 3 texts done · 5 of 5 suspected errors decided" in review.text("progress")
    # A new nested entity in the first text can be extended over existing entities.
    review.keys(Keys.ARROW_UP, Keys.ARROW_UP, "i")
    assert review.lines() == ["在北GPE京GPE大学ORG医学院ORG", "上海PER大学ORGORG", "在上海大学GPE"]
    review.shift(Keys.ARROW_RIGHT)
    assert review.lines()[0] == "在北京GPE大GPE学ORG医学院ORG"
    review.keys("3")
    applied = apply_decisions(docs, review.decisions())
    assert (applied.changed, applied.unchanged, applied.rejected) == (3, 1, [])
    assert [entities_of(doc) for doc in docs] == [
        [(1, 3, "GPE"), (1, 4, "PER"), (1, 5, "ORG"), (1, 8, "ORG")],
        [(0, 2, "PER"), (0, 4, "ORG")],
        [(1, 5, "GPE")],
    ]
    assert [list(map(str, doc.ents)) for doc in docs] == [["北京大学医学院"], ["上海大学"], ["上海大学"]]
    assert (review.browser.console_messages(), "sc" in docs[2].spans) == ([], False)


def test_text_opens_at_most_suspicious_error(browser: Browser, tmp_path: Path) -> None:
    """Otherwise, the first key would decide on an entity that the model may have predicted wrongly."""
    doc = annotated("王小明去了上海", [(0, 3, "PER"), (5, 7, "ORG")])
    gold = [FoundEntity(0, 3, "PER", 0.6), FoundEntity(5, 7, "ORG", 0.01)]
    errors = tuple(disagreements(0, gold, [FoundEntity(0, 2, "PER", 0.4), FoundEntity(5, 7, "GPE", 0.99)]))
    reviewed = ReviewedDoc(0, doc, 0.1, errors, 0)
    page = review_page(rank_suspected_errors([reviewed]), {0: reviewed}, corpus="dev.spacy")
    review = shown(browser, tmp_path, page, DESKTOP)
    assert review.text("position").startswith("annotated: 上海 ORG")
    review.keys("a")
    assert review.lines() == ["王小+ PER 40 %明PER去了上海GPE"]
    assert review.text("position").startswith("annotated: 王小明 PER")
    assert "1 of 1 texts with suspected errors" in review.text("about")
    review.browser.driver.find_element("css selector", "#help summary").click()
    for kind in ("open", "spurious", "right", "gone"):
        assert review.browser.driver.find_element("css selector", f"#tools #legend .{kind}").is_displayed()


@pytest.mark.parametrize("key", ["a", "r"])
def test_last_decision_of_text_selects_next_text(annotating: OpenPage, key: str) -> None:
    review = annotating([annotated("王在", [(0, 1, "PER")]), annotated("李在", [(0, 1, "PER")])])
    review.keys(key)
    assert review.text("position").startswith("李")
    assert "0 of 2 texts done" in review.text("progress")  # the model may have missed other entities


def test_removed_suggestions_select_next_suggestion(annotating: OpenPage) -> None:
    docs = [annotated("王在李和张", [(0, 1, "PER"), (2, 3, "PER"), (4, 5, "PER")]) for _ in range(4)]
    review = annotating(docs)
    review.keys(*"xxxxxxxxxxxx")
    assert "12 of 12 suggestions decided" in review.text("progress")
    review.keys("x", "u")
    assert "11 of 12 suggestions decided" in review.text("progress")


def test_removed_annotation_selects_next_suspected_error(reviewing: OpenPage) -> None:
    docs = [annotated("王在李", [(0, 1, "PER"), (2, 3, "PER")]), annotated("张三", [(0, 1, "PER")])]
    review = reviewing(docs, [[(0, 1, "ORG")], [(0, 2, "PER")]])
    review.keys("x", "x", "x")
    assert "2 of 2 texts done · 3 of 3 suspected errors decided" in review.text("progress")


JAPANESE = "東京大学大学院情報理工学系で講演"


def test_text_with_many_entities_and_controls_fit_on_phone(reviewing: OpenPage) -> None:
    labels = ["PER", "ORG", "LOC", "TITLE", "EVENT"]
    found_parts = [(2 * number, 2 * number + 2, label) for number, label in enumerate(labels)]
    review = reviewing([annotated(JAPANESE, [(0, 13, "ORG")])], [found_parts], PHONE)
    assert review.browser.fits_width()
    assert review.browser.run("return tools.getBoundingClientRect().height / innerHeight") < 0.3


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_explanation_of_keys_is_folded(annotating: OpenPage, size: tuple[int, int]) -> None:
    review = annotating([annotated("王小明", [(0, 3, "PER")])], size)
    assert not review.browser.driver.find_element("id", "legend").is_displayed()


def test_undo_removes_new_entity_of_previous_text(annotating: OpenPage) -> None:
    review = annotating([annotated("王小明", [(0, 1, "PER"), (1, 2, "ORG")]), annotated("好", [])])
    review.keys("n")
    assert review.lines()[0] == "王PER 60 %小ORG 60 %明PER"
    review.keys(Keys.ARROW_DOWN, "u")
    assert review.lines()[0] == "王PER 60 %小ORG 60 %明"
    assert not review.browser.driver.find_element("id", "export").is_enabled()


def test_keyboard_changes_labels_and_boundaries_with_undo(annotating: OpenPage) -> None:
    review = annotating([annotated("王小明在上海", [(0, 2, "PER")]), annotated("好", [])])
    assert review.lines() == ["王小PER 60 %明在上海", "好"]
    review.shift(Keys.ARROW_RIGHT)
    assert review.lines()[0] == "王小明PER在上海"
    review.keys("2")
    assert review.lines()[0] == "王小明ORG在上海"
    review.shift(Keys.ARROW_DOWN)
    assert review.lines()[0] == "王小明ORG在上海"
    assert review.decisions()[0]["spans"] == [
        {"start": 1, "end": 3, "label": "ORG", "answer": "accept"},
        {"start": 0, "end": 2, "label": "PER", "answer": "reject"},
    ]
    review.keys("u", "u")
    assert review.lines()[0] == "王小明PER在上海"
    review.keys("n", "x", Keys.ARROW_LEFT, "r")
    assert review.decisions()[0]["spans"] == [{"start": 0, "end": 2, "label": "PER", "answer": "reject"}]


def test_selected_text_becomes_entity_and_is_converted(annotating: OpenPage, tmp_path: Path) -> None:
    """Browsers count UTF-16 code units, but offsets in the file are characters."""
    review = annotating([annotated(HOSTILE, []), annotated("好", []), annotated("王好", [(0, 1, "PER")])])
    review.mark(NAME_START + 1, NAME_START + 4)
    review.browser.driver.find_element("xpath", "//*[@id='labels']/button[contains(., 'PER')]").click()
    assert "王小明PER" in review.lines()[0]
    field = review.browser.driver.find_element("id", "label")
    review.mark(0, 9)
    field.send_keys("<b>", Keys.ENTER)
    assert review.lines()[0].startswith("</script><b><img")
    review.keys(Keys.ARROW_DOWN)
    review.browser.run("document.querySelector('#list [tabindex]').focus()")
    review.keys(Keys.ENTER)
    review.browser.run("document.querySelectorAll('#list .ent')[2].click()")
    review.keys("a")
    docs = converted(review.decisions(), tmp_path)
    # The first text is done, the third has a single decision, and the second has no decisions.
    assert [doc.text for doc in docs] == [HOSTILE, "王好"]
    assert [(ent.text, ent.label_) for ent in docs[0].ents] == [("</script>", "<b>"), ("王小明", "PER")]
    assert all(token.ent_iob_ for token in docs[0])
    assert [token.ent_iob_ for token in docs[1]] == ["B", ""]
    assert review.browser.run("return document.querySelectorAll('img').length") == 0
    assert (review.browser.driver.title, review.browser.console_messages()) == ("Texts to annotate", [])


def test_selections_and_boundaries_snap_to_tokens(annotating: OpenPage) -> None:
    review = annotating([annotated("Tim Cook left", [], ["Tim", "Cook", "left"])])
    review.mark(1, 6)
    review.keys("1")
    assert review.lines() == ["Tim CookPER left"]
    review.shift(Keys.ARROW_LEFT)
    assert review.lines() == ["TimPER Cook left"]


def test_moved_boundary_skips_white_space(annotating: OpenPage, tmp_path: Path) -> None:
    """Otherwise, `convert` would trim the accepted entity, so that it would equal the rejected one."""
    review = annotating([annotated("在 王小明 在", [(2, 5, "PER")]), annotated("王小明 在", [(0, 3, "PER")])])
    review.shift(Keys.ARROW_RIGHT)
    review.keys(Keys.ARROW_DOWN)
    review.shift(Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert review.lines() == ["在 王小明 在PER", "王小明PER 在"]
    assert [[ent.text for ent in doc.ents] for doc in converted(review.decisions(), tmp_path)] == [
        ["王小明 在"],
        ["王小明"],
    ]


def test_selecting_text_makes_it_current(annotating: OpenPage) -> None:
    review = annotating([annotated("王小明", []), annotated("好", [])])
    review.keys(Keys.ARROW_DOWN)
    review.mark(0, 3)
    review.keys("1")
    assert review.lines() == ["王小明PER", "好"]
    review.keys("x")
    assert review.lines() == ["王小明", "好"]


def test_progress_is_stored_per_corpus(annotating: OpenPage) -> None:
    docs = [annotated("王小明", [(0, 3, "PER")]), annotated("好", [])]
    review = annotating(docs)
    review.browser.driver.find_element("id", "label").send_keys("新", Keys.ENTER)
    review.browser.run("document.activeElement.blur()")
    review.keys(Keys.ENTER)
    assert "1 of 2 texts done · 1 of 1 suggestion decided" in review.text("progress")
    review.browser.open(f"{review.browser.run('return location.href')}?again")
    review.browser.wait(lambda: "1 of 2 texts done" in review.text("progress"))
    assert "新" in review.text("labels")
    Select(review.browser.driver.find_element("id", "open")).select_by_value("open")
    assert review.lines() == ["好"]
    assert "0 of 1 text done" in annotating(docs[:1]).text("progress")


@pytest.mark.parametrize("kind", ["review", "page"])
def test_page_without_decisions_shows_message(reviewing: OpenPage, annotating: OpenPage, kind: str) -> None:
    if kind == "page":
        review = annotating([])
        assert "There are no texts to annotate." in review.text("state")
    else:
        review = reviewing([annotated("王", [(0, 1, "PER")])], [[(0, 1, "PER")]])
        assert "the model agrees with the annotation everywhere" in review.text("state")
    assert not review.browser.driver.find_element("id", "tools").is_displayed()
    assert (review.browser.violations(), review.browser.console_messages()) == ([], [])


def test_empty_and_very_long_texts_are_displayed(annotating: OpenPage) -> None:
    long = annotated("好" * 99_999 + "王", [(99_999, 100_000, "PER")])
    review = annotating([long, annotated("", [])])
    assert review.lines() == ["… " + "好" * 80 + "王PER 60 %"]
    assert "This text is empty." in review.text("list")
    review.keys("2")
    assert review.decisions()[0]["spans"][0] == {"start": 99_999, "end": 100_000, "label": "ORG", "answer": "accept"}
