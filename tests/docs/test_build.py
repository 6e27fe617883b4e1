"""The documentation builds strictly, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser
from mkdocs.commands.build import build
from mkdocs.config import load_config
from pages import ROOT

pytestmark = pytest.mark.integration

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\bsrc=["']?https?:|<link[^>]*\bhref=["']?https?:|url\(["']?https?:"""
)


LANGUAGE = re.compile(r"<html[^>]*\blang=\"?(\w+)")
FOUND = "return [...document.querySelectorAll('.md-search-result__link')].map((link) => link.getAttribute('href'))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(directory)))
    return directory


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert pages
    assert [path.name for path in pages if FETCHED.search(path.read_text(encoding="utf8"))] == []


def test_every_page_says_its_language(site: Path) -> None:
    said = {path: LANGUAGE.findall(path.read_text(encoding="utf8")) for path in site.rglob("*.html")}
    assert said == {path: ["zh" if path.parent.name == "zh" else "en"] for path in said}


def test_commands_have_their_options(site: Path) -> None:
    assert "--overlap" in (site / "commands.html").read_text(encoding="utf8")


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("temperature", r"confidence\.html"),
        ("词", r"zh/choosing\.html"),
        ("词典", r"zh/choosing\.html"),
        ("主动学习", r"zh/annotating\.html"),
    ],
)
def test_the_site_is_searched_as_files_without_a_server(query: str, page: str, site: Path, browser: Browser) -> None:
    browser.open((site / "confidence.html").as_uri())
    field = browser.driver.find_element("css selector", "input.md-search__input")
    browser.run("arguments[0].focus()", field)
    field.send_keys(query)
    links = browser.wait(lambda: browser.run(FOUND))
    assert any(re.search(page, link) for link in links)
    # A query of which only some letters have come, as on a busy machine, is a warning of the theme's.
    assert [entry for entry in browser.console_messages() if "Invalid query" not in entry["message"]] == []
