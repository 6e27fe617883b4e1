"""The page of an explanation in a real browser: with a mouse, with a keyboard, on a phone."""

from __future__ import annotations

import pytest
from browser import DESKTOP, PHONE
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from spacy.training import Example

from spacy_tener.explain import Evidence, explain

TEXT = "吴重阳在中国银行工作。"
HOSTILE = "</script><img src=x onerror=document.title='taken'>王小明{{data}}去了\u2028上海&amp;\U0001f600𠮷<!--"


@pytest.fixture(scope="module")
def pages(learned, tmp_path_factory):
    """The addresses of some pages."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name, found, **options):
        path = folder / f"{name}.html"
        path.write_text(found.to_html(**options), encoding="utf8")
        return path.as_uri()

    nlp = learned("MECT")
    annotated = Example.from_dict(nlp.make_doc("王小明去了上海"), {"entities": [(0, 3, "PER"), (3, 4, "ORG")]})
    return {
        "some": write("some", explain(nlp, [TEXT, annotated])),
        "atssa": write("atssa", explain(learned(), TEXT)),
        "grn": write("grn", explain(learned("GRN"), TEXT)),
        "hostile": write("hostile", explain(nlp, HOSTILE), title="<b>{{script}}</b>"),
        "long": write("long", long_explanation(learned("FLAT"))),
    }


def long_explanation(nlp):
    """Of 5,005 characters, with evidence made up, since reading the text once for each character takes its time."""
    cfg = nlp.get_pipe("tener_ner").cfg
    cfg.update(window=200, overlap=40)
    found = explain(nlp, TEXT * 455, evidence=False)
    cfg.update(window=40, overlap=10)
    (text,) = found.texts
    for entity in text.entities:
        near = range(max(entity.start - 20, 0), min(entity.end + 20, len(text.text)))
        entity.evidence.extend(Evidence(place, place + 1, 0.1 * (place % 7) - 0.2) for place in near)
    return found


@pytest.fixture
def page(browser, pages):
    """Opens a page; what went wrong in it by the end of the test fails the test."""

    def load(name, size=DESKTOP):
        load.seconds = browser.open(pages[name], size)
        assert browser.run("return document.documentElement.dataset.ready") == "true"
        return browser

    yield load
    assert browser.said() == []
    assert browser.fetched() == []


def find(browser, selector):
    return browser.driver.find_elements(By.CSS_SELECTOR, selector)


def shown(browser, selector):
    return [node.text for node in find(browser, selector) if node.is_displayed()]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_click_on_an_entity_shows_why_it_was_found(page, size):
    browser = page("some", size)
    bank = next(node for node in find(browser, "#text .ent") if node.text.startswith("中国银行"))
    bank.click()
    assert bank.get_attribute("aria-pressed") == "true"
    assert shown(browser, "#entity-title") == ["中国银行 ORG"]
    assert shown(browser, "#sure strong")[0].endswith("%")
    assert "→" in shown(browser, "#strongest .value")[0]
    assert shown(browser, "#radicals li") == ["银钅 ＋ 艮"]
    assert {"中国", "银行", "中国银行"} <= {text.split("\n")[0] for text in shown(browser, "#lattice .word")}
    # As many heads as the papers have.
    browser.run("const [legend, head] = heads.children; for (let i = 0; i < 6; i++) heads.append(head.cloneNode(true))")
    assert browser.run("return window.innerWidth") == size[0]
    assert browser.run("return document.documentElement.scrollWidth") <= size[0]


def test_rivals_are_shown_where_the_pointer_or_the_focus_is_and_leave_by_escape(page):
    browser = page("some")
    first, second = find(browser, "#text .ent")[:2]
    tip = find(browser, "#tip")[0]
    assert not tip.is_displayed()
    ActionChains(browser.driver).move_to_element(first).perform()
    assert tip.is_displayed()
    assert first.get_attribute("aria-describedby") == "tip"
    ActionChains(browser.driver).send_keys(Keys.ESCAPE).perform()
    assert not tip.is_displayed()
    browser.run("arguments[0].focus()", first)
    assert tip.is_displayed()
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert browser.driver.switch_to.active_element == second
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    assert second.get_attribute("aria-pressed") == "true"
    assert tip.is_displayed()


def test_all_can_be_reached_by_the_tab_key_in_the_order_of_the_page(page):
    browser = page("some")
    reached = []
    for _ in range(40):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        reached.append(
            browser.run(
                "const node = document.activeElement; return node.id || node.name || node.className || node.tagName"
            )
        )
        if reached[-1] == "heat":
            break
    places = [
        reached.index(name) for name in ("theme", "order", "ent short", "SUMMARY", "map", "rows-only", "head", "heat")
    ]
    assert places == sorted(places)


def test_a_map_says_what_each_cell_means_to_pointer_and_keyboard(page):
    browser = page("atssa")
    heat, cell = find(browser, "#heat")[0], find(browser, "#cell")[0]
    assert "head" in heat.get_attribute("aria-label")
    browser.run("arguments[0].focus()", heat)
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert cell.text.startswith("吴 looks at 吴: ")
    ActionChains(browser.driver).send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT).perform()
    assert cell.text.startswith("重 looks at 重: ")
    assert "it keeps" in cell.text
    ActionChains(browser.driver).move_to_element(heat).perform()
    assert not cell.text.startswith("重 looks at 重: ")


def test_heads_and_maps_are_chosen(page):
    browser = page("some")
    assert len(find(browser, "#heads input")) == 2
    labels = [node.text for node in find(browser, "#map option")]
    assert labels == ["Attention, characters and words, layer 1", "Attention, radicals, layer 1"]
    before = find(browser, "#heat")[0].screenshot_as_png
    other = next(node for node in find(browser, "#heads input") if not node.is_selected())
    browser.run("arguments[0].focus()", other)
    ActionChains(browser.driver).send_keys(Keys.SPACE).perform()
    assert other.is_selected()
    assert find(browser, "#heat")[0].screenshot_as_png != before
    find(browser, "#map option")[1].click()
    assert "radicals" in find(browser, "#heat")[0].get_attribute("aria-label")


def test_relations_have_rows_for_entities_unless_all_are_wanted(page):
    browser = page("grn")
    heat = find(browser, "#heat")[0]
    assert "7 rows, 11 columns" in heat.get_attribute("aria-label")
    find(browser, "#rows-only")[0].click()
    assert "11 rows, 11 columns" in heat.get_attribute("aria-label")
    assert not find(browser, "#heads")[0].is_displayed()
    assert not find(browser, "#lexicon")[0].is_displayed()
    assert any("No words: this pipeline reads no lexicon" in text for text in shown(browser, "#notes li"))


def test_texts_are_chosen_and_ordered_by_differences_from_the_annotation(page):
    browser = page("some")
    find(browser, "#order option[value=wrong]")[0].click()
    first = find(browser, "#list button")[0]
    assert first.text.startswith("王小明去了上海")
    assert "2 differ from the annotation" in first.text
    first.click()
    assert first.get_attribute("aria-current") == "true"
    assert shown(browser, "#gold") == ["Annotated, not found: 去ORG"]
    assert len(find(browser, "#text .wrong")) == 1


def test_colours_are_dark_where_the_reader_wants_them(page):
    browser = page("some")
    light = browser.run("return getComputedStyle(document.body).backgroundColor")
    find(browser, "#theme")[0].click()
    dark = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert light != dark
    assert find(browser, "#theme")[0].get_attribute("aria-pressed") == "true"


def test_hostile_text_stays_text(page):
    browser = page("hostile")
    assert browser.driver.title == "<b>{{script}}</b>"
    assert find(browser, "img, b:not(#radicals b)") == []
    whole = browser.run(
        "const text = document.getElementById('text').cloneNode(true);"
        "for (const label of text.querySelectorAll('small')) label.remove();"
        "return text.textContent"
    )
    assert whole == HOSTILE


def test_a_text_of_5000_characters_is_there_within_two_seconds(page):
    browser = page("long")
    assert page.seconds < 2.0
    assert len(find(browser, "#text .ent")) > 400
    last = find(browser, "#text .ent")[-1]
    started = browser.run("return performance.now()")
    browser.run("arguments[0].click()", last)
    assert browser.run("return performance.now()") - started < 500
    assert last.get_attribute("aria-pressed") == "true"
    assert shown(browser, "#entity-title")
