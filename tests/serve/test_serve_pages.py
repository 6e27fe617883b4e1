"""The pages in a browser, as wide as a desk's and as a phone's."""

from __future__ import annotations

import pytest
import spacy
from browser import DESKTOP, PHONE

TEXT = "吴小明在上海银行工作。王重阳去了中国"
ENTITIES = "return [...document.querySelectorAll('#text .ent')].map((node) => node.firstChild.textContent)"


@pytest.fixture
def page(browser, served):
    """The page with what a person does there."""
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

    def shows(self, *entities: str) -> None:
        self.browser.wait(lambda: self.entities() == list(entities))

    def shows_all(self, text: str) -> None:
        """Wait until all entities of a text are shown, of which there are some."""
        found = self.served.client.post("/v1/entities", json={"text": text}).json()["entities"]
        assert found
        self.shows(*(each["text"] for each in found))

    def shows_the_sample(self) -> None:
        self.shows_all(self.browser.wait(lambda: self.browser.run("return document.getElementById('input').value")))

    def is_well(self) -> None:
        """Nothing in the console, nothing from elsewhere, nothing wider than the window."""
        assert self.browser.said() == []
        assert all(name.startswith(self.served.url) for name in self.browser.fetched())
        width = self.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_entities_appear_as_one_types(page, size):
    page.open(size=size)
    page.shows_the_sample()
    page.find("input").clear()
    page.find("input").send_keys("王小明")
    page.shows("王小明")
    page.find("input").send_keys("去了上海")
    page.shows("王小明", "上海")
    assert page.find("count").text == "7"
    assert page.find("status").text == "2 entities"
    # JavaScript counts this one character as two.
    page.enter("😀𠮷王小明去了上海")
    page.browser.wait(lambda: page.find("text").text.startswith("😀𠮷"))
    page.shows_all("😀𠮷王小明去了上海")
    assert page.find("count").text == "9"
    page.enter("")
    page.shows()
    assert not page.find("explain").is_enabled()
    page.is_well()


def test_the_slider_hides_the_unsure(page):
    page.open()
    page.enter(TEXT)
    found = page.served.client.post("/v1/entities", json={"text": TEXT}).json()["entities"]
    page.shows(*(each["text"] for each in found))
    least = sorted(each["probability"] for each in found)[0]
    percent = int(100 * least) + 1
    page.browser.run(
        "const it = document.getElementById('minimum'); it.value = arguments[0]; it.dispatchEvent(new Event('input'))",
        percent,
    )
    sure = [each["text"] for each in found if each["probability"] >= percent / 100]
    assert page.entities() == sure
    assert 0 < len(sure) < len(found)
    assert page.find("least").text == f"{percent} %"
    assert f"{len(found) - len(sure)} less probable" in page.find("status").text
    assert len(page.browser.driver.find_elements("css selector", "#rows li")) == len(sure)


def test_models_are_chosen_and_errors_told(page):
    page.open()
    page.shows_the_sample()
    page.find("model").send_keys("characters")
    page.browser.wait(lambda: "characters" in page.find("about").text)
    page.enter("京" * 501)
    page.browser.wait(lambda: "the limit is 500" in page.find("problem").text)
    page.enter("京")
    page.shows("京")
    assert page.find("problem").text == ""
    # The answer that was refused is all that the console tells.
    assert ["413" in said["message"] for said in page.browser.said()] == [True]


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_an_explanation_is_shown_in_the_page(page, size):
    page.open(size=size)
    page.enter("王小明去了上海")
    page.shows("王小明", "上海")
    page.browser.run("document.getElementById('explain').click()")
    page.browser.wait(lambda: page.find("frame").is_displayed())
    page.browser.driver.switch_to.frame("frame")
    try:
        marks = page.browser.wait(lambda: page.browser.driver.find_elements("css selector", "#text .ent"))
        assert len(marks) == 2
    finally:
        page.browser.driver.switch_to.default_content()
    page.is_well()
    page.find("close").click()
    assert not page.find("explanation").is_displayed()


def test_a_service_that_has_gone(browser, start):
    with start({"blank": spacy.blank("en")}) as service:
        page = Page(browser, service)
        page.open()
        page.browser.wait(lambda: page.find("most").text == "20,000")
    page.enter("Berlin")
    page.browser.wait(lambda: "does not answer" in page.find("problem").text)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_schema_is_shown(page, size):
    page.open("/docs", size)
    page.browser.wait(lambda: page.find("routes").text)
    titles = [node.text for node in page.browser.driver.find_elements("css selector", "#routes h2 code")]
    assert titles == list(page.served.client.get("/openapi.json").json()["paths"])
    assert "Leave out entities less probable than this." in page.find("routes").text
    page.is_well()
