"""Test the explanation page in a browser: with mouse and keyboard, on a desktop and a phone."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from browser import DESKTOP, PHONE
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from spacy.training import Example

from spacy_tener.explain import explain

pytestmark = pytest.mark.integration

TEXT = "吴重阳在中国银行工作。"
HOSTILE = "</script><img src=x onerror=document.title='taken'>王小明{{data}}去了\u2028上海&amp;\U0001f600𠮷<!--"


@pytest.fixture(scope="module")
def pages(learned, tmp_path_factory):
    """Return the addresses of pages by name."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name, found, **options):
        path = folder / f"{name}.html"
        path.write_text(found.to_html(**options), encoding="utf8")
        return path.as_uri()

    nlp = learned("MECT")
    annotated = Example.from_dict(nlp.make_doc("王小明去了上海"), {"entities": [(0, 3, "PER"), (3, 4, "ORG")]})
    hostile = explain(nlp, HOSTILE)
    (text,) = hostile.texts
    text.entities[0] = replace(text.entities[0], label=HOSTILE * 5)
    return {
        "mect": write("mect", explain(nlp, [TEXT, annotated]), links=["errors.html#text-4", "errors.html#text-0"]),
        "atssa": write("atssa", explain(learned(), TEXT)),
        "grn": write("grn", explain(learned("GRN"), TEXT)),
        "hostile": write("hostile", hostile, title="<b>{{script}}</b>"),
    }


@pytest.fixture
def page(browser, pages):
    """Return a function that opens a page. Messages in the console and network requests fail the test."""

    def load(name, size=DESKTOP):
        browser.open(pages[name], size)
        assert browser.run("return document.documentElement.dataset.ready") == "true"
        return browser

    yield load
    browser.run("localStorage.clear()")
    assert browser.console_messages() == []
    assert browser.requested_urls() == []


def find(browser, selector):
    return browser.driver.find_elements(By.CSS_SELECTOR, selector)


def shown(browser, selector):
    return [node.text for node in find(browser, selector) if node.is_displayed()]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_click_on_entity_shows_explanation(page, size):
    browser = page("mect", size)
    bank = next(node for node in find(browser, "#text .ent") if node.text.startswith("中国银行"))
    bank.click()
    assert bank.find_element(By.TAG_NAME, "small").get_attribute("aria-pressed") == "true"
    assert shown(browser, "#entity-title") == ["中国银行 ORG"]
    assert shown(browser, "#sure strong")[0].endswith("%")
    assert "→" in shown(browser, "#strongest .value")[0]
    assert {"中国", "银行", "中国银行"} <= {text.split("\n")[0] for text in shown(browser, "#lattice .word")}
    assert browser.run("return window.innerWidth") == size[0]
    assert browser.run("return document.documentElement.scrollWidth") <= size[0]


def test_arrow_keys_move_between_entities(page):
    browser = page("mect")
    first, second = find(browser, "#text .ent > small")[:2]
    assert find(browser, "#text .ent")[0].get_attribute("title").startswith(("Alternatives: ", "No alternative"))
    browser.run("arguments[0].focus()", first)
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert browser.driver.switch_to.active_element == second
    assert second.get_attribute("aria-pressed") == "true"
    assert shown(browser, "#entity-title") == ["中国银行 ORG"]
    assert browser.run("return document.querySelectorAll('.ent > [tabindex=\"0\"]').length") == 1
    ActionChains(browser.driver).send_keys(Keys.ARROW_LEFT, Keys.ENTER).perform()
    assert first.get_attribute("aria-pressed") == "true"


def test_long_text_in_list_ends_with_ellipsis(learned, browser, tmp_path):
    texts = ["𠮷" * 80, "𠮷" * 81, "Wort " * 30]
    (tmp_path / "page.html").write_text(explain(learned("GRN"), texts).to_html(), encoding="utf8")
    browser.open((tmp_path / "page.html").as_uri())
    snippets = [node.get_attribute("textContent") for node in find(browser, "#list .snippet")]
    assert snippets == ["𠮷" * 80, "𠮷" * 80 + "…", "Wort " * 16 + "…"]


def test_page_without_lexicon_shows_note(page):
    browser = page("grn")
    assert not find(browser, "#lexicon")[0].is_displayed()
    assert any("No words: this pipeline has no lexicon" in text for text in shown(browser, "#notes li"))


def test_texts_can_be_selected_sorted_and_searched(page):
    browser = page("mect")
    find(browser, "#order option[value=wrong]")[0].click()
    first, second = find(browser, "#list li")
    assert first.text.startswith("王小明去了上海")
    assert "2 differences from the annotation" in first.text
    assert first.get_attribute("aria-current") == "true"
    assert shown(browser, "#gold") == ["≠ found, not annotated"]
    assert [text[:4] for text in shown(browser, "#missed .ent")] == ["去ORG"]
    assert len(find(browser, "#text .wrong")) == 1
    assert find(browser, "#back")[0].get_attribute("href").endswith("errors.html#text-0")
    second.click()
    assert find(browser, "#back")[0].get_attribute("href").endswith("errors.html#text-4")
    assert find(browser, "#text")[0].text.startswith("吴重阳")
    ActionChains(browser.driver).send_keys(Keys.ARROW_UP).perform()
    assert find(browser, "#text")[0].text.startswith("王小明")
    snippets = "return [...document.querySelectorAll('#list .snippet')].map((node) => node.textContent)"
    for sought, found in (("org", ["吴重阳"]), ("上海", ["王小明"]), ("nothing", [])):
        find(browser, "#search")[0].send_keys(Keys.ESCAPE, sought)
        browser.wait(lambda found=found: [text[:3] for text in browser.run(snippets)] == found)
    assert shown(browser, "#shown") == ["0 texts"]
    assert not any(section.is_displayed() for section in find(browser, "#read, #entity, #lexicon"))


def test_label_sequences_show_differences(page):
    browser = page("grn")
    sequences = browser.run("return [...document.querySelectorAll('#sequences li')].map((item) => item.textContent)")
    assert re.fullmatch(r"[<>\d. ]+ %: as marked above", sequences[0])
    changes = [len(re.findall("with", sequence)) for sequence in sequences]
    assert max(changes) > 1
    assert [sequence.count(", ") for sequence in sequences] == [max(0, count - 1) for count in changes]
    written = {
        0: "< 0.1 %",
        0.00049: "< 0.1 %",
        0.0005: "0.1 %",
        0.0625: "6.3 %",
        0.1: "10.0 %",
        0.101: "10 %",
        0.625: "63 %",
        0.899: "90 %",
        0.9: "90.0 %",
        0.999: "99.9 %",
        0.9995: "> 99.9 %",
        1: "> 99.9 %",
    }
    assert browser.run("return arguments[0].map(parts.percent)", list(written)) == [*written.values()]


def test_markup_in_text_is_escaped(page):
    browser = page("hostile", PHONE)
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    assert browser.driver.title == "<b>{{script}}</b>"
    assert find(browser, "img, b:not(.chip b)") == []
    text = browser.run(
        "const text = document.getElementById('text').cloneNode(true);"
        "for (const label of text.querySelectorAll('small')) label.remove();"
        "return text.textContent"
    )
    assert text == HOSTILE


@pytest.mark.parametrize(("name", "size"), [("mect", DESKTOP), ("atssa", PHONE)])
def test_page_has_no_accessibility_violations(page, name, size):
    browser = page(name, size)
    browser.run("document.getElementById('sequences').open = true")
    assert browser.violations() == []


def test_link_selects_text(page, pages):
    browser = page("atssa")
    for link, begins in (("#text-1", "王小明"), ("#text-0", "吴重阳"), ("#text-9", "吴重阳")):
        browser.open(f"{pages['mect']}{link}")
        browser.wait(lambda begins=begins: find(browser, "#text")[0].text.startswith(begins))
    assert find(browser, "#list li")[0].get_attribute("aria-current") == "true"


def test_link_to_missed_entity_shows_alternatives(page, pages):
    browser = page("atssa")
    browser.open(f"{pages['mect']}#text-1-3-4-ORG")
    browser.wait(lambda: shown(browser, "#entity-title") == ["去 ORG missed"])
    assert shown(browser, "#alternatives-title") == ["Alternatives in its place"]
    assert shown(browser, "#alternatives .name")[0] == "no entity"
    assert shown(browser, "#against") == ["supports that there is no entity"]
    assert shown(browser, "#strongest .value")
    browser.open(f"{pages['mect']}#text-1-0-3-PER")
    browser.wait(lambda: shown(browser, "#entity-title") == ["王小明 PER"])
    assert browser.violations() == []
