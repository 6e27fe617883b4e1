"""The page of a review in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from browser import DESKTOP, PHONE, Browser
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from spacy_tener.pipeline.entities import FoundEntity
from spacy_tener.workbench.suggestions.review import Doubt, JudgedDoc
from spacy_tener.workbench.suggestions.review_page import review_page

TEXT = "</script><img src=x onerror=document.title='taken'>王小明去了上海" + "a" * 300


@pytest.fixture
def address(tmp_path: Path) -> str:
    per, org = FoundEntity(51, 54, "PER", 0.9), FoundEntity(51, 54, "<b>", 0.01)
    doubts = [Doubt(0, (org,), (per,), 0.9), Doubt(0, (), (per,), 0.8), Doubt(0, (org,), (), 0.7)]
    judged = JudgedDoc(0, spacy.blank("zh").make_doc(TEXT), 0.1, tuple(doubts), 0)
    path = tmp_path / "review.html"
    path.write_text(review_page("Review", "3 places", doubts, {0: judged}), encoding="utf8")
    return path.as_uri()


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_kinds_are_chosen_and_nothing_of_the_text_is_run(browser: Browser, address: str, size: tuple[int, int]) -> None:
    browser.open(address, size)
    shown = browser.driver.find_element(By.ID, "shown")
    assert (shown.text, browser.driver.title) == ("Places: 3", "Review")
    Select(browser.driver.find_element(By.ID, "kind")).select_by_value("missing")
    visible = [each for each in browser.driver.find_elements(By.TAG_NAME, "article") if each.is_displayed()]
    assert (shown.text, len(visible)) == ("Places: 1", 1)
    assert "王小明" in visible[0].find_element(By.TAG_NAME, "mark").text
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert (browser.said(), browser.fetched()) == ([], [])
