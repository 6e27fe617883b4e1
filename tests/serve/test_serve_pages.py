"""The service's HTML pages in a browser, in windows with the size of a desktop and a phone."""

from __future__ import annotations

import csv
import io
import json
import shlex

import pytest
import spacy
from browser import DESKTOP, PHONE
from selenium.webdriver import Keys
from small_corpora import rule_pipeline

pytestmark = pytest.mark.integration

MARKUP = "</script><img src=x onerror=document.title='taken'>&amp;<!--"
LONG = "L" * 300
TEXT = "吴小明在上海银行工作。王重阳去了中国"
API_ANSWERS = {
    "/v1/models": "characters",
    "/v1/entities": "王小明",
    "/v1/entities/batch": "王小明",
    "/metrics": "tener_requests_total",
}
BOTH_SIZES = pytest.mark.parametrize("size", [pytest.param(DESKTOP, marks=pytest.mark.slow), PHONE])
ENTITIES = "return [...document.querySelectorAll('#text .ent')].map((node) => node.firstChild.textContent)"


@pytest.fixture
def page(browser, served):
    """The page, with methods for the actions of a user."""
    return Page(browser, served)


class Page:
    def __init__(self, browser, served) -> None:
        self.browser = browser
        self.served = served

    def open(self, path: str = "/", size: tuple[int, int] = DESKTOP) -> None:
        self.browser.open(f"{self.served.url}{path}", size)

    def find(self, name: str):
        return self.browser.driver.find_element("id", name)

    def enter(self, text: str) -> None:
        """Paste a text."""
        self.browser.run(
            "const input = document.getElementById('input'); input.value = arguments[0];"
            "input.dispatchEvent(new Event('input', { bubbles: true }))",
            text,
        )

    def entities(self) -> list[str]:
        return self.browser.run(ENTITIES)

    def wait_for_entities(self, *entities: str) -> None:
        self.browser.wait(lambda: self.entities() == list(entities))

    def wait_for_all_entities(self, text: str) -> None:
        """Wait until the page displays all entities of a text, which has at least one."""
        found = self.served.client.post("/v1/entities", json={"text": text}).json()["entities"]
        assert found
        self.wait_for_entities(*(entity["text"] for entity in found))

    def wait_for_sample(self) -> None:
        self.wait_for_all_entities(
            self.browser.wait(lambda: self.browser.run("return document.getElementById('input').value"))
        )

    def list_rows(self) -> list[str]:
        """Return the label and text of each entity in the list."""
        return self.browser.run("return [...document.querySelectorAll('#list .chip')].map((node) => node.textContent)")

    def set_value(self, name: str, value: object) -> None:
        """Set the value of a slider or a selection."""
        self.browser.run(
            "const it = document.getElementById(arguments[0]); it.value = arguments[1];"
            "for (const kind of ['input', 'change']) it.dispatchEvent(new Event(kind, { bubbles: true }))",
            name,
            value,
        )

    def intercept_downloads(self) -> None:
        """Store files in `window.saved` instead of downloading them."""
        self.browser.run(
            "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text));"
            "return 'data:,' }; HTMLAnchorElement.prototype.click = () => {}"
        )

    def assert_no_problems(self) -> None:
        """Check that the console is empty, all resources come from the service, and the page fits in the window."""
        assert self.browser.console_messages() == []
        assert all(name.startswith(self.served.url) for name in self.browser.requested_urls())
        width = self.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]


def test_arabic_text_is_displayed_right_to_left(page):
    page.open()
    page.enter("王小明\nقال")
    sides = """
        const range = document.createRange(), line = document.querySelector("#text");
        const box = line.getBoundingClientRect();
        const last = [...line.childNodes].at(-1), text = last.nodeType === 3 ? last : last.lastChild;
        range.setStart(text, text.length - 3), range.setEnd(text, text.length);
        const letters = range.getBoundingClientRect();
        const written = getComputedStyle(document.querySelector("#input")).unicodeBidi;
        return [letters.left - box.left > box.right - letters.right, written];
    """
    page.wait_for_entities("王小明")
    assert page.browser.run(sides) == [True, "plaintext"]


@BOTH_SIZES
def test_entities_update_while_typing(page, size):
    page.open(size=size)
    page.wait_for_sample()
    assert page.find("sample").is_displayed()
    page.find("input").clear()
    page.find("input").send_keys("王小明")
    page.wait_for_entities("王小明")
    page.find("input").send_keys("去了上海")
    page.wait_for_entities("王小明", "上海")
    assert page.find("count").text == "7"
    assert page.find("shown").text == "2 entities"
    assert not page.find("sample").is_displayed()
    assert not page.find("nothing").is_displayed()
    # In JavaScript, these characters have a length of two.
    page.enter("😀𠮷王小明去了上海")
    page.browser.wait(lambda: page.find("text").text.startswith("😀𠮷"))
    page.wait_for_all_entities("😀𠮷王小明去了上海")
    assert page.find("count").text == "9"
    page.enter("今天天气很好")
    page.browser.wait(lambda: page.find("nothing").text == "No entities were found in this text.")
    page.enter("")
    page.browser.wait(lambda: not page.find("nothing").is_displayed())
    page.wait_for_entities()
    assert not page.find("explain").is_enabled()
    page.assert_no_problems()


@pytest.mark.slow
def test_slider_hides_improbable_entities(page):
    page.open()
    page.enter(TEXT)
    found = page.served.client.post("/v1/entities", json={"text": TEXT}).json()["entities"]
    page.wait_for_entities(*(entity["text"] for entity in found))
    percent = int(100 * min(entity["probability"] for entity in found)) + 1
    page.set_value("minimum", percent)
    probable = [entity["text"] for entity in found if entity["probability"] >= percent / 100]
    assert page.entities() == probable
    assert 0 < len(probable) < len(found)
    assert page.find("least").text == f"{percent} %"
    assert page.find("hidden").text == f", {len(found) - len(probable)} hidden"
    assert len(page.list_rows()) == len(probable)


@pytest.mark.slow
def test_entity_list_is_sorted_and_filtered_by_label(page):
    page.open()
    page.enter(TEXT)
    page.wait_for_all_entities(TEXT)
    found = page.served.client.post("/v1/entities", json={"text": TEXT}).json()["entities"]
    for order, key in (("sure", lambda entity: -entity["probability"]), ("label", lambda entity: entity["label"])):
        page.set_value("order", order)
        assert page.list_rows() == [f"{entity['label']} {entity['text']}" for entity in sorted(found, key=key)]
    label = found[0]["label"]
    button = page.browser.run(
        "return [...document.querySelectorAll('#labels button')].find((node) => node.textContent === arguments[0])",
        label,
    )
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    of_other_labels = [entity["text"] for entity in found if entity["label"] != label]
    assert page.entities() == of_other_labels
    assert page.find("hidden").text == f", {len(found) - len(of_other_labels)} hidden"
    button.click()
    assert len(page.entities()) == len(found)
    page.browser.run("document.querySelectorAll('#labels button').forEach((node) => node.click())")
    assert page.find("nothing").text == "All entities are hidden. Show more labels, or lower the minimum probability."


@pytest.mark.slow
def test_entities_are_downloaded_as_json_and_csv(page):
    page.open()
    text = '😀王小明去了上海"，'
    page.enter(text)
    page.wait_for_all_entities(text)
    found = page.served.client.post("/v1/entities", json={"text": text}).json()["entities"]
    page.intercept_downloads()
    page.find("json").click()
    page.find("csv").click()
    as_json, as_csv = page.browser.wait(lambda: (saved := page.browser.run("return window.saved"))[1:] and saved)
    assert json.loads(as_json) == {"text": text, "model": "tener", "entities": found}
    rows = list(csv.DictReader(io.StringIO(as_csv.removeprefix("\ufeff"))))
    assert rows == [{name: str(value) for name, value in entity.items()} for entity in found]


@pytest.mark.slow
def test_curl_command_is_copied_with_or_without_clipboard(page):
    page.open()
    page.enter("王小明's")
    page.browser.wait(lambda: page.find("copy").is_enabled())
    page.browser.run(
        "window.copied = []; Object.defineProperty(navigator, 'clipboard', { configurable: true,"
        "value: { writeText: async (text) => { window.copied.push(text); } } })"
    )
    page.find("copy").click()
    page.browser.wait(lambda: page.find("copy").text == "Copied")
    (command,) = page.browser.run("return window.copied")
    assert not page.find("command").is_displayed()
    words = shlex.split(command)
    assert words[:2] == ["curl", f"{page.served.url}/v1/entities"]
    assert json.loads(words[-1]) == {"text": "王小明's", "model": "tener", "minimum": 0}
    # Browsers provide no clipboard to pages without TLS, except for pages of this machine.
    page.browser.run("Object.defineProperty(navigator, 'clipboard', { configurable: true, value: undefined })")
    page.find("copy").click()
    page.browser.wait(lambda: page.find("command").is_displayed())
    assert page.find("command").text == page.browser.run("return getSelection().toString()") == command


def test_page_switches_models_and_displays_errors(page):
    page.open()
    page.wait_for_sample()
    page.find("model").send_keys("characters")
    page.browser.wait(lambda: "characters" in page.find("about").text)
    page.enter("京" * 501)
    page.browser.wait(lambda: "the limit is 500" in page.find("problem").text)
    # The previous text and its entities are removed, so that they cannot be explained or downloaded.
    assert page.find("text").text == ""
    assert page.list_rows() == []
    assert not any(page.find(name).is_enabled() for name in ("explain", "json", "csv", "copy"))
    page.enter("京")
    page.wait_for_entities("京")
    assert page.find("problem").text == ""
    # The console contains only the rejected request.
    assert ["413" in said["message"] for said in page.browser.console_messages()] == [True]


@BOTH_SIZES
def test_page_displays_explanation(page, size):
    page.open(size=size)
    page.enter("王小明去了上海")
    page.wait_for_entities("王小明", "上海")
    page.find("theme").click()
    page.browser.run("document.getElementById('explain').click()")
    page.browser.wait(lambda: page.find("frame").is_displayed())
    height = page.browser.wait(lambda: page.find("frame").get_attribute("style") and page.find("frame").size["height"])
    page.browser.driver.switch_to.frame("frame")
    try:
        marks = page.browser.wait(lambda: page.browser.driver.find_elements("css selector", "#text .ent"))
        assert len(marks) == 2
        assert not page.find("theme").is_displayed()
        assert page.browser.run("return document.documentElement.dataset.theme") == "dark"
        visible, height_of_page = page.browser.run("return [innerHeight, document.documentElement.scrollHeight]")
        assert height_of_page <= visible
    finally:
        page.browser.driver.switch_to.default_content()
    assert height > 200
    page.enter("王小明去了")
    page.browser.wait(lambda: page.find("working").text == "This explains the previous text.")
    page.assert_no_problems()
    page.find("theme").click()
    page.find("close").click()
    assert not page.find("explanation").is_displayed()


@pytest.mark.parametrize(("path", "size"), [("/", PHONE), ("/docs", DESKTOP)])
def test_pages_have_no_accessibility_violations(page, path, size):
    page.open(path, size)
    page.browser.wait(lambda: page.browser.driver.find_elements("css selector", "#list li, summary"))
    page.browser.run("const own = document.querySelectorAll('details')[1]; if (own) own.open = true")
    assert page.browser.violations() == []


def test_markup_in_texts_and_labels_is_escaped(browser, start):
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns(
        [{"label": label, "pattern": [{"TEXT": {"REGEX": text}}]} for label, text in (("<b>L</b>", "img"), (LONG, "x"))]
    )
    with start({"<i>m</i>": nlp}) as service:
        page = Page(browser, service)
        page.open(size=PHONE)
        page.enter(MARKUP)
        page.browser.wait(lambda: page.list_rows())
        assert page.list_rows()[0].startswith("<b>L</b> ")
        assert any(row.startswith(LONG) for row in page.list_rows())
        assert page.browser.run("return document.querySelectorAll('main img, main i:not(.meter i)').length") == 0
        assert browser.driver.title == "Find entities"
        page.assert_no_problems()
        assert "unsafe" not in service.client.get("/").headers["content-security-policy"]


@pytest.mark.slow
def test_page_reports_unreachable_service(browser, start):
    with start({"blank": spacy.blank("en")}) as service:
        page = Page(browser, service)
        page.open()
        page.browser.wait(lambda: page.find("most").text == "20,000")
    page.enter("Berlin")
    page.browser.wait(lambda: "does not respond" in page.find("problem").text)


def test_pages_prompt_for_api_key(browser, start):
    with start({"blank": spacy.blank("en")}, api_key="sesame") as service:
        page = Page(browser, service)
        page.open()
        dialog = "return document.querySelector('dialog')?.textContent || ''"
        browser.wait(lambda: "The service requires" in browser.run(dialog))
        page.find("key").send_keys("guess", Keys.ENTER)
        browser.wait(lambda: "This is not the API key" in browser.run(dialog))
        page.find("key").send_keys("sesame", Keys.ENTER)
        browser.wait(lambda: page.find("most").text == "20,000")
        page.open("/docs")
        commands = "return [...document.querySelectorAll('pre')].map((node) => node.textContent).join()"
        assert '"Authorization: Bearer $TENER_API_KEY"' in browser.wait(lambda: browser.run(commands))


def test_entities_without_probability_hide_related_controls(browser, start):
    with start({"rules": rule_pipeline(GPE="上海")}) as service:
        browser.open(f"{service.url}/")
        browser.wait(lambda: browser.run("return document.querySelectorAll('#list li').length") == 1)
        assert browser.driver.find_element("css selector", "#list .value").text == "no probability"
        assert browser.run("return document.querySelectorAll('#list .meter').length") == 0
        for name in ("minimum", "explain"):
            assert not browser.driver.find_element("id", name).is_displayed()
        options = [node.text for node in browser.driver.find_elements("css selector", "#order option:not([hidden])")]
        assert options == ["as in the text", "by label"]


@BOTH_SIZES
def test_api_page_displays_schema(page, size):
    page.open("/docs", size)
    page.browser.wait(lambda: page.find("main").text)
    titles = [node.text for node in page.browser.driver.find_elements("css selector", ".route h3 code")]
    assert sorted(titles) == sorted(page.served.client.get("/openapi.json").json()["paths"])
    assert titles[0] == "/v1/entities"
    script = "return [...document.querySelectorAll('h2.tag, .route h3 code')].map((node) => node.textContent)"
    headings = page.browser.run(script)
    label_studio = headings.index("Label Studio")
    assert headings[label_studio + 1 : label_studio + 5] == ["/setup", "/predict", "/webhook", "Operation"]
    linked = page.browser.driver.find_elements("css selector", "#contents a")
    assert [node.text for node in linked] == titles
    linked[1].click()
    section = "return document.querySelector(location.hash).ariaLabel"
    assert page.browser.run(section) == titles[1]
    shown = page.browser.run("return document.querySelector('[aria-label=\"Example of a response\"]').textContent")
    entity = {"start": 0, "end": 3, "label": "PER", "text": "王小明", "probability": 0.98}
    assert shown == json.dumps({"model": "zh", "entities": [entity]}, ensure_ascii=False, indent=2)
    assert "Minimum probability." in page.find("main").text
    page.assert_no_problems()


def test_api_page_sends_requests(page):
    page.open("/docs", PHONE)
    find = "return [...document.querySelectorAll('.route')].find((node) => node.ariaLabel === arguments[0])"
    send = "arguments[0].querySelector('summary').click(); arguments[0].querySelector('form').requestSubmit()"
    read = "return ['[role=status]', '[aria-label=Response]'].map((tag) => arguments[0].querySelector(tag).textContent)"
    for path, expected in API_ANSWERS.items():
        route = page.browser.wait(lambda path=path: page.browser.run(find, path))
        page.browser.run(send, route)
        page.browser.wait(lambda route=route: page.browser.run(read, route)[0])
        status, answer = page.browser.run(read, route)
        assert status.startswith("200 ")
        assert expected in answer
    page.assert_no_problems()


def test_page_processes_lines_as_separate_texts(page):
    lines = ["王小明", "😀去了上海", "", "吴重阳在中国银行工作。", *["京"] * 8]  # a batch has at most 8 texts
    text, texts = "\n".join(lines), [line for line in lines if line]
    try:
        page.open()
        page.enter(text)
        page.wait_for_all_entities(text)
        page.set_value("lines", "lines")
        answers = [page.served.client.post("/v1/entities", json={"text": line}).json()["entities"] for line in texts]
        page.wait_for_entities(*(entity["text"] for answer in answers for entity in answer))
        expected_rows = [f"{entity['label']} {entity['text']}" for answer in answers for entity in answer]
        assert page.list_rows() == expected_rows
        # The line with the selected entity is explained.
        page.browser.run(
            "document.querySelectorAll('#list li')[1].dispatchEvent(new Event('focusin', {bubbles: true}))"
        )
        page.find("explain").click()
        page.browser.wait(lambda: page.find("frame").is_displayed())
        page.browser.driver.switch_to.frame("frame")
        page.browser.wait(lambda: page.find("text").text.startswith("😀去了"))
        page.browser.driver.switch_to.default_content()
        page.open("/?again")
        assert page.find("lines").get_attribute("value") == "lines"
        page.assert_no_problems()
    finally:
        page.browser.driver.switch_to.default_content()
        page.browser.run("localStorage.clear()")


def test_api_page_is_translated_to_chinese(page):
    with page.browser.with_language("zh"):
        page.open("/docs")
        page.browser.wait(lambda: page.browser.run("return document.querySelectorAll('.route').length") > 5)
    told = "'.route > p:not(.quiet), .route td:nth-child(3), #contents li'"
    texts = page.browser.run(f"return [...document.querySelectorAll({told})].map((node) => node.textContent)")
    assert len(texts) > 50
    assert [text for text in texts if text and not any("一" <= char <= "龥" for char in text)] == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_very_long_word_of_entity_fits_in_text(browser, start, size):
    word = "Donaudampfschifffahrts" * 12
    with start({"de": rule_pipeline("de", PERSON_OR_ORGANISATION=word)}) as service:
        page = Page(browser, service)
        page.open(size=size)
        page.enter(f"Die {word} kommt.")
        page.wait_for_entities(word)
        edges = browser.run(
            "const right = (box) => box.right;"
            "return [right(text.getBoundingClientRect()),"
            " ...[...document.querySelector('#text .ent').getClientRects()].map(right)]"
        )
    assert max(edges) == edges[0]
    assert browser.run("return getComputedStyle(document.getElementById('text')).overflowX") == "hidden"
