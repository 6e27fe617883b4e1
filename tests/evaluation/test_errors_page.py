"""Test the error page: pairs of gold and predicted entities, and the page in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import spacy
from browser import DESKTOP, PHONE, Browser
from selenium.webdriver import Keys
from selenium.webdriver.support.select import Select
from small_corpora import rule_pipeline
from small_systems import UNSEEN
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_tener.evaluation.errors_page import Pair, errors_page, most_confident_errors, pair_entities, score_texts
from spacy_tener.evaluation.scores import CountingScorer
from spacy_tener.pages import Heading

pytestmark = pytest.mark.integration

PER, ORG = (0, 2, "PER"), (4, 8, "ORG")


@pytest.mark.parametrize(
    ("gold", "found", "pairs"),
    [
        ([PER], [PER], {0: 0}),
        ([PER], [(0, 2, "ORG")], {0: 0}),
        ([ORG], [(4, 6, "ORG"), (6, 7, "LOC")], {0: 0}),
        ([PER], [ORG], {}),
        ([(0, 3, "A"), (3, 9, "A")], [(2, 9, "A")], {0: 1}),
        ([PER, ORG], [PER, PER, ORG], {0: 0, 2: 1}),
        ([(0, 5, "A"), (5, 6, "B")], [(0, 6, "A"), (5, 6, "B")], {0: 0, 1: 1}),
        ([], [], {}),
    ],
)
def test_pairs_have_largest_character_overlap(gold: Any, found: Any, pairs: Any) -> None:
    assert pair_entities(gold, found) == pairs


@pytest.fixture(scope="module")
def nlp() -> Language:
    """Return a pipeline that predicts 张三 as PER and 北京 as LOC."""
    return rule_pipeline(PER="张三", LOC="北京")


def examples_of(nlp: Language, texts: Any) -> list[Example]:
    examples = []
    for text, spans in texts:
        doc = nlp.make_doc(text)
        if spans is not None:
            doc.set_ents([doc.char_span(start, end, label) for start, end, label in spans], default="outside")
        examples.append(Example(nlp.make_doc(text), doc))
    return examples


TEXTS = [
    ("张三见了李四。", [(0, 2, "PER"), (4, 6, "PER")]),
    ("他在北京大学。", [(2, 6, "ORG")]),
    ("北京张三", [(0, 2, "GPE"), (2, 4, "PER")]),
    ("张三来了", []),
    ("张三走了", None),
    ("好", []),
]


def write(nlp: Language, path: Path, examples: list[Example], **options: Any) -> str:
    scores, of_examples = score_texts(nlp, examples)
    compared = [(example.reference, pairs) for example, pairs in of_examples]
    scored = None if scores.get("ents_f") is None else scores
    path.write_text(errors_page(Heading("Errors"), scored, compared, **options), encoding="utf8")
    return path.as_uri()


def test_pairs_agree_with_scores(nlp: Language) -> None:
    examples = examples_of(nlp, TEXTS)
    scores, of_examples = score_texts(nlp, examples)
    assert {**scores, "speed": 0} == {**nlp.evaluate(examples, scorer=CountingScorer(nlp)), "speed": 0}
    compared = [pairs for _, pairs in of_examples]
    assert compared[1] == [Pair((2, 6, "ORG"), (2, 4, "LOC"))]
    assert compared[4] == [Pair(None, (0, 2, "PER"), is_annotated=False)]
    for label, counts in scores["ents_counts"].items():
        pairs = [pair for pairs in compared for pair in pairs if pair.is_annotated]
        right = sum(pair.gold == pair.found and pair.gold[2] == label for pair in pairs if pair.gold)
        assert counts["tp"] == right
        assert counts["fn"] == sum(pair.gold is not None and pair.gold[2] == label for pair in pairs) - right
        assert counts["fp"] == sum(pair.found is not None and pair.found[2] == label for pair in pairs) - right


def test_texts_are_predicted_once(saved: dict[str, Path], encoded_batches: list[list[str]]) -> None:
    nlp = spacy.load(saved["tener"])
    ner: Any = nlp.get_pipe("tener_ner")
    ner.cfg["max_units"] = 200
    texts = [*((UNSEEN[n % 7 :], [(0, 1, "PER"), (3, 5, "HERO")]) for n in range(300)), ("", [])]
    examples = examples_of(nlp, texts)
    docs = [example.predicted for example in examples]
    scores, of_examples = score_texts(nlp, examples)
    compared = [pairs for _, pairs in of_examples]
    assert len(encoded_batches) > 10
    assert [text for group in encoded_batches for text in group] == [doc.text for doc in docs]
    assert {**scores, "speed": 0} == {**nlp.evaluate(examples, scorer=CountingScorer(nlp)), "speed": 0}
    assert scores["speed"] > 0
    for decoding, pairs in zip(ner.decode(docs), compared, strict=True):
        sure = {(entity.start, entity.end, entity.label): entity.probability for entity in decoding.entities}
        for pair in pairs:
            wanted = sure[pair.found] if pair.found else 1.0 - decoding.probabilities([pair.gold])[0]
            assert pair.probability == pytest.approx(wanted, abs=1e-6)
    assert {pair.found is None for pairs in compared for pair in pairs} == {False, True}


def test_probabilities_are_computed_before_merging_tokens(
    saved: dict[str, Path],
) -> None:
    nlp, sourced = (spacy.load(saved["tener"]) for _ in range(2))
    text, gold = "吴重阳在中国银行工作。王小明", [(0, 3, "PER"), (4, 8, "ORG"), (8, 10, "TITLE"), (11, 14, "PER")]
    (doc,) = examples_of(nlp, [(text, gold)])
    entities = next(nlp.get_pipe("tener_ner").decode([doc.predicted])).entities
    alone = {(entity.start, entity.end): entity.probability for entity in entities}
    sourced.get_pipe("tener_ner").cfg["labels"] = ["TITLE", "HERO", "VILLAIN"]
    nlp.add_pipe("tener_ner", name="other", source=sourced)
    nlp.add_pipe("merge_entities")
    _, ((_, pairs),) = score_texts(nlp, [doc])
    found_probabilities = {pair.found[:2]: pair.probability for pair in pairs if pair.found}
    assert {place: found_probabilities[place] for place in alone} == pytest.approx(alone)
    (missed,) = (pair.probability for pair in pairs if pair.gold == gold[2])
    found = nlp.get_pipe("tener_ner")(nlp.make_doc(text))  # existing entities for the next component
    right = next(nlp.get_pipe("other").decode([found])).probabilities([gold[2]])[0]
    assert missed == pytest.approx(1.0 - right)


def test_most_confident_errors_are_first() -> None:
    doc = Doc(spacy.blank("zh").vocab)
    pairs = [[Pair(PER, None, True, sure)] for sure in (0.2, None, 0.9)]
    texts = [(doc, [Pair(PER, PER, True, 1.0)]), *((doc, errors) for errors in pairs)]
    assert most_confident_errors(texts, 2) == [3, 1]


def show(browser: Browser, folder: Path, scores: dict[str, Any] | None, texts: Any = (), size: Any = DESKTOP) -> str:
    """Open the page with pairs of entities, and return its address."""
    path = folder / "errors.html"
    path.write_text(errors_page(Heading("Errors"), scores, texts), encoding="utf8")
    browser.open(path.as_uri(), size)
    return path.as_uri()


def lines(browser: Browser) -> list[str]:
    return browser.run("return [...document.querySelectorAll('#list .line')].map((line) => line.textContent)")


def choose(browser: Browser, name: str, value: str) -> None:
    Select(browser.driver.find_element("id", name)).select_by_value(value)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_filters_select_texts(browser: Browser, nlp: Language, tmp_path: Path, size: tuple[int, int]) -> None:
    browser.open(write(nlp, tmp_path / "errors.html", examples_of(nlp, TEXTS)), size)
    assert lines(browser) == [
        "张三PER见了李四− PER。",
        "他在− ORG北京大学+ LOC。",
        "北京GPE → LOC张三PER",
        "张三+ PER来了",
    ]
    choose(browser, "kind", "label")
    assert lines(browser) == ["北京GPE → LOC张三PER"]
    choose(browser, "kind", "errors")
    choose(browser, "label", "ORG")
    assert lines(browser) == ["他在− ORG北京大学+ LOC。"]
    choose(browser, "label", "")
    for label, marked in (("annotated PER, found not at all", "李四− PER"), ("missed: PER", "李四− PER")):
        button = browser.driver.find_element("css selector", f"main button[aria-label='1: {label}']")
        browser.run("arguments[0].click()", button)
        assert lines(browser) == ["张三PER见了李四− PER。"]
        now = browser.run("return [...document.querySelectorAll('#list .now')].map((mark) => mark.textContent)")
        assert now == [marked]
        assert browser.run("return document.activeElement.closest('#list li') !== null")
        assert browser.run("const top = texts.getBoundingClientRect().top; return top >= 0 && top < innerHeight")
        browser.driver.find_element("id", "cell").click()
    assert len(lines(browser)) == 4
    browser.driver.find_element("tag name", "body").send_keys("/")
    browser.driver.switch_to.active_element.send_keys("大学")
    browser.wait(lambda: lines(browser) == ["他在− ORG北京大学+ LOC。"])
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.driver.find_element("id", "shown").text == "4 texts"
    assert browser.fits_width()
    assert browser.run("return [scores, matrix].every((table) => table.scrollWidth <= table.clientWidth)")
    assert (browser.violations(), browser.console_messages(), browser.requested_urls()) == ([], [], [])


def test_errors_link_to_explanations(browser: Browser, nlp: Language, tmp_path: Path) -> None:
    examples = examples_of(nlp, [*TEXTS[:2], ("😀张三和李四", [(4, 6, "A-/#")])])
    browser.open(write(nlp, tmp_path / "errors.html", examples, explained=("why.html", [2, 0, 1])))
    links = "return [...document.querySelectorAll('#list a')].map((a) => [a.textContent, a.getAttribute('href')])"
    assert browser.run(links) == [
        ["李四", "why.html#text-1-4-6-PER"],
        ["北京大学", "why.html#text-2-2-6-ORG"],
        ["张三", "why.html#text-0-1-3-PER"],
        ["李四", "why.html#text-0-4-6-A-%2F%23"],
    ]


def test_overlapping_entities_are_stacked(browser: Browser, nlp: Language, tmp_path: Path) -> None:
    text = "一二三四五六七八九十" * 4
    crossing = [Pair((2, 6, "PER"), (4, 8, "PER")), Pair((6, 36, "ORG"), (10, 33, "LOC"))]
    show(browser, tmp_path, None, [(nlp.make_doc(text), crossing)], PHONE)
    stacks = browser.run("return [...document.querySelectorAll('#list .stack')].map((stack) => stack.textContent)")
    assert [re.sub("[^一-龥]", "", stack) for stack in stacks] == [text[2:10], text[10:25], text[25:36]]
    assert [re.sub("[一-龥]", "", stack) for stack in stacks] == ["− PER− ORG+ PER", "+ LOC", ""]
    above, below = (f"[...document.querySelectorAll('#list .stack .ent.{kind}')]" for kind in ("missed", "spurious"))
    edges = "map((mark) => [mark.getBoundingClientRect().top, mark.parentElement.getBoundingClientRect().top])"
    heights = browser.run(f"return [{above}.{edges}, {below}.{edges}]")
    assert max(top - stack for top, stack in heights[0]) < min(top - stack for top, stack in heights[1])
    assert browser.fits_width()
    assert (browser.violations(), browser.console_messages()) == ([], [])


GERMAN = "Gesucht: Lead UX Designer (m/w/d) in München"
JAPANESE = "昨日、東京大学大学院情報理工学系研究科電子情報学専攻で講演した。"
ARABIC = "التقى عبد الفتاح السيسي مع وزير الخارجية الأمريكي أنتوني بلينكن في القاهرة"
OVERLAPPING = [
    (GERMAN, "Lead UX Designer", ["UX Designer"]),
    (JAPANESE, "東京大学大学院情報理工学系研究科電子情報学専攻", ["東京", "情報", "理工", "電子"]),
    (ARABIC, "وزير الخارجية الأمريكي أنتوني بلينكن", ["الأمريكي", "بلينكن"]),
]
# The left and right edges of all pieces of text in the stacks, from the first to the last piece.
PIECES = """
    const edges = (node) => { const { left, right } = node.getBoundingClientRect(); return [left, right]; };
    return [...document.querySelectorAll("#list .stack > span")].map(edges);
"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(("text", "gold", "found"), OVERLAPPING, ids=["German", "Japanese", "Arabic"])
def test_overlapping_entities_have_one_frame_and_fit_on_page(
    browser: Browser, tmp_path: Path, size: tuple[int, int], text: str, gold: str, found: list[str]
) -> None:
    def offsets(words: str, label: str) -> tuple[int, int, str]:
        return text.index(words), text.index(words) + len(words), label

    doc = Doc(spacy.blank("xx").vocab, words=list(text), spaces=[False] * len(text))
    pairs = [Pair(offsets(gold, "ORG"), offsets(found[0], "LOC"), probability=0.9)]
    pairs += [Pair(None, offsets(words, "PERSON"), probability=0.9) for words in found[1:]]
    show(browser, tmp_path, None, [(doc, pairs)], size)
    assert browser.fits_width()
    stack_count, *heights = browser.run(
        "const stacks = [...document.querySelectorAll('#list .stack')];"
        "return [stacks.length, ...stacks.map((stack) => stack.getBoundingClientRect().height)]"
    )
    assert stack_count == 1 or (size == PHONE and text != GERMAN)
    assert max(heights) - min(heights) < 1
    if stack_count == 1:
        pieces = browser.run(PIECES)
        assert pieces == sorted(pieces, reverse=text == ARABIC)
    assert (browser.violations(), browser.console_messages()) == ([], [])


def test_links_to_explanations_are_unique_and_folded(browser: Browser, nlp: Language, tmp_path: Path) -> None:
    text = "".join(f"张{number % 20}来了。" for number in range(60))
    starts = [match.span() for match in re.finditer("张[0-9]+", text)]
    doc = Doc(nlp.vocab, words=list(text), spaces=[False] * len(text))
    html = errors_page(
        Heading("Errors"), None, [(doc, [Pair((*span, "PER"), None) for span in starts])], explained=("why.html", [0])
    )
    (tmp_path / "errors.html").write_text(html, encoding="utf8")
    browser.open((tmp_path / "errors.html").as_uri())
    links = browser.driver.find_elements("css selector", "#list li a")
    assert len({link.get_attribute("textContent") for link in links}) == len(links) == 20
    assert [link.is_displayed() for link in links] == [True] * 8 + [False] * 12
    browser.driver.find_element("css selector", "#list summary").click()
    assert all(link.is_displayed() for link in links)
    assert (browser.violations(), browser.console_messages()) == ([], [])


@pytest.mark.parametrize("labels", [3, 24])
def test_tables_fill_width_of_page(browser: Browser, nlp: Language, tmp_path: Path, labels: int) -> None:
    names = [f"LABEL{number}" for number in range(labels)]
    texts = [(nlp.make_doc("张三"), [Pair((0, 2, name), (0, 2, names[-1]))]) for name in names]
    score = {"p": 0.5, "r": 0.5, "f": 0.5}
    scores = {"ents_p": 0.5, "ents_r": 0.5, "ents_f": 0.5, "ents_per_type": dict.fromkeys(names, score)}
    show(browser, tmp_path, scores, texts)
    sections = browser.run(
        "return [...document.querySelectorAll('main > section')].map((section) => {"
        "const { left, right, top } = section.getBoundingClientRect(); return [left, right, top]; })"
    )
    (first, middle, top), (start, last, matrix_top), (*edges, _) = sections
    assert ([first, last], top == matrix_top, middle < start) == (edges, labels == 3, labels == 3)
    assert browser.run(
        "return [scores, matrix].every((box) => box.firstChild.getBoundingClientRect().width >= box.clientWidth - 1)"
    )


def test_link_selects_text(browser: Browser, nlp: Language, tmp_path: Path) -> None:
    address = write(nlp, tmp_path / "errors.html", examples_of(nlp, TEXTS))
    for number, shown in ((2, "北京GPE → LOC张三PER"), (5, "好")):
        browser.open(f"{address}#text-{number}")
        current = "return document.querySelector('#list [aria-current] .line').textContent"
        browser.wait(lambda current=current, shown=shown: browser.run(current) == shown)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([("张三来了", None)], "These texts are not annotated."),
        ([("张三来了", [])], "These texts have no annotated entities"),
        ([("张三好", [(2, 3, "ORG")])], "does not have the labels ORG (1)"),
        (None, "This page has only scores."),
    ],
)
def test_page_explains_missing_data(browser: Browser, nlp: Language, tmp_path: Path, texts: Any, message: str) -> None:
    if texts is None:
        scores = {"ents_p": 0.5, "ents_r": 0.5, "ents_f": 0.5, "ents_per_type": {"PER": {"p": 1, "r": 1, "f": 1}}}
        show(browser, tmp_path, scores)
    else:
        examples = examples_of(nlp, texts)
        browser.open(write(nlp, tmp_path / "errors.html", examples, labels=["PER", "LOC"]))
    assert message in browser.driver.find_element("id", "state").text
    assert len(lines(browser)) == (texts is not None)
    assert (browser.violations(), browser.console_messages()) == ([], [])


def test_markup_is_escaped_and_long_text_shortened(browser: Browser, nlp: Language, tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=document.title='taken'>\u202e😀𠮷e\u0301 שלום 张三"
    place = hostile.index("张三")
    found, long = Pair((place, place + 2, "<b>'\""), (place, place + 2, "PER")), Pair((99_998, 100_000, "PER"), None)
    texts = [(nlp.make_doc(hostile), [found]), (Doc(nlp.vocab, ["好" * 99_998 + "李四"], [False]), [long])]
    show(browser, tmp_path, None, texts)
    shown = lines(browser)
    assert shown[0] == hostile[:place] + "张三<b>'\" → PER"
    assert shown[1] == " … ".lstrip() + "好" * 80 + "李四− PER"
    assert browser.run("return document.querySelectorAll('img, main b b').length") == 0
    button = browser.driver.find_element("xpath", "//button[contains(., 'Show all 100,000 characters')]")
    browser.run("arguments[0].click()", button)
    assert len(lines(browser)[1]) == 100_000 + len("− PER")


def test_keyboard_selects_texts(browser: Browser, nlp: Language, tmp_path: Path) -> None:
    texts = [(f"张三{number}", []) for number in range(120)]
    browser.open(write(nlp, tmp_path / "errors.html", examples_of(nlp, texts)))
    assert len(lines(browser)) == 50
    first = browser.driver.find_element("css selector", "#list li")
    browser.run("arguments[0].focus()", first)
    focused = "return document.activeElement.querySelector('.line').textContent"

    def press(key: str) -> str:
        browser.driver.switch_to.active_element.send_keys(key)
        return str(browser.run(focused))

    assert press(Keys.ARROW_DOWN) == "张三+ PER1"
    assert press(Keys.PAGE_DOWN) == "张三+ PER50"
    assert press(Keys.ARROW_UP) == "张三+ PER49"
    assert press(Keys.END) == "张三+ PER119"
    assert len(lines(browser)) == 20
