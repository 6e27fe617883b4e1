"""Test that the documentation builds in strict mode, loads no external resources, and can be searched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser
from mkdocs.commands.build import build
from mkdocs.config import load_config
from pages import ROOT

pytestmark = pytest.mark.integration

EXTERNAL = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\bsrc=["']?https?:|<link[^>]*\bhref=["']?https?:|url\(["']?https?:"""
)


LANGUAGE = re.compile(r"<html[^>]*\blang=\"?(\w+)")
FIND_RESULTS = (
    "return [...document.querySelectorAll('.md-search-result__link')].map((link) => link.getAttribute('href'))"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(directory)))
    return directory


def test_site_loads_no_external_resources(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert pages
    assert [path.name for path in pages if EXTERNAL.search(path.read_text(encoding="utf8"))] == []


def test_html_pages_declare_their_language(site: Path) -> None:
    languages = {path: LANGUAGE.findall(path.read_text(encoding="utf8")) for path in site.rglob("*.html")}
    assert languages == {path: ["zh" if path.parent.name == "zh" else "en"] for path in languages}


def test_commands_page_lists_options(site: Path) -> None:
    assert "--overlap" in (site / "commands.html").read_text(encoding="utf8")


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("temperature", r"confidence\.html"),
        ("词", r"zh/gazetteers\.html"),
        ("词典", r"zh/gazetteers\.html"),
        ("主动学习", r"zh/annotating\.html"),
    ],
)
def test_search_works_without_server(query: str, page: str, site: Path, browser: Browser) -> None:
    browser.open((site / "confidence.html").as_uri())
    field = browser.driver.find_element("css selector", "input.md-search__input")
    browser.run("arguments[0].focus()", field)
    field.send_keys(query)
    links = browser.wait(lambda: browser.run(FIND_RESULTS))
    assert any(re.search(page, link) for link in links)
    # On a busy machine, the theme warns about queries that are not completely entered.
    assert [entry for entry in browser.console_messages() if "Invalid query" not in entry["message"]] == []
