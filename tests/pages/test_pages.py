"""Common parts of HTML pages: content security policy, label colours, translations, escaping and marked spans."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import PHONE, Browser
from waiting import wait_until

from spacy_tener.evaluation.errors_page import errors_page
from spacy_tener.pages import Heading, displacy_options, label_hues, make_page

pytestmark = pytest.mark.integration

HOSTILE = "</script><img src=x onerror=document.title='taken'>{{data}}\u2028&amp;\U0001f600𠮷<!--"
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|</(script|style)|document\.write")
LABELS = ["PER", "ORG", "LOC", "GPE", "per", "", "人名", "<b>", "😀𠮷", "e\u0301", "שלום", "L" * 300]


@pytest.fixture
def page_url(tmp_path: Path) -> str:
    """The URL of a page with titles that contain markup."""
    path = tmp_path / "page.html"
    path.write_text(errors_page(Heading(HOSTILE, HOSTILE), None), encoding="utf8")
    return path.as_uri()


def test_label_colours_agree_in_python_javascript_and_displacy(browser: Browser, page_url: str) -> None:
    browser.open(page_url)
    assert browser.run("parts.setLabels(arguments[0]); return arguments[0].map(parts.hue)", LABELS) == [
        *label_hues(LABELS).values()
    ]
    assert displacy_options(["PER", "org"])["colors"] == {
        "PER": "hsl(135, 75%, 86%)",
        "ORG": "hsl(270, 75%, 86%)",
    }


@pytest.mark.parametrize(("n", "degrees"), [(8, 45), (16, 22.5), (32, 11.25)])
def test_label_hues_have_minimum_distance(n: int, degrees: float) -> None:
    labels = ["CUSTOMER", "OS", "PERSON", "ERROR", *(f"L{number}" for number in range(n))][:n]
    hues = sorted(label_hues(labels).values())
    assert min((after - hue) % 360 for hue, after in zip(hues, [*hues[1:], hues[0]], strict=True)) >= degrees


def test_label_keeps_colour_if_other_labels_change() -> None:
    before = ["价格", "小区", "户型"]
    for added in ("地铁", "PER", "L1", "😀"):
        assert label_hues(before).items() <= label_hues([*before, added]).items()
    alone = {label: label_hues([label])[label] for label in ("PER", "ORG", "LOC", "GPE")}
    assert label_hues(alone) == label_hues(reversed(alone)) == alone


@pytest.mark.parametrize("can_store", [True, False])
def test_page_uses_browser_or_selected_language(browser: Browser, tmp_path: Path, can_store: bool) -> None:
    page = make_page(
        "spacy_tener.evaluation",
        "errors",
        Heading("Errors on {data}", "Texts", {"data": "<b>Texts</b>"}),
        {"texts": [], "scores": None, "unknown": {}, "explained": {"texts": {}}, "review": ""},
        lang="en",
    )
    (tmp_path / "page.html").write_text(page, encoding="utf8")
    agent = browser.run("return navigator.userAgent")
    try:
        override = {"userAgent": agent, "acceptLanguage": "zh-CN"}
        browser.driver.execute_cdp_cmd("Network.setUserAgentOverride", override)
        browser.open((tmp_path / "page.html").as_uri())
        assert browser.run("return document.querySelector('h1').textContent") == "<b>Texts</b> 上的错误"
        assert (browser.driver.title, browser.run("return document.documentElement.lang")) == (
            "<b>Texts</b> 上的错误",
            "zh",
        )
        assert browser.run("return document.getElementById('scores-title').textContent") == "得分"
        assert browser.driver.find_element("id", "theme").get_attribute("aria-label") == "深色"
        if not can_store:
            browser.run("Storage.prototype.setItem = () => { throw new Error('full'); }")
        # A mouse event before the first frame would be dropped.
        browser.run("document.getElementById('language').click()")
        browser.wait(lambda: browser.run("return document.querySelector('h1').textContent") == "Errors on <b>Texts</b>")
        assert browser.driver.find_element("id", "language").text == "中文"
        assert browser.console_messages() == []
    finally:
        browser.run("localStorage.clear()")
        browser.driver.execute_cdp_cmd("Network.setUserAgentOverride", {"userAgent": agent, "acceptLanguage": "en-US"})


SAY_CALL = re.compile(r"""\bsay\((?:[^()"]*\? )?"([^"]+)"(?: : "([^"]+)")?""")


def test_all_page_strings_have_translations() -> None:
    package = Path(errors_page.__globals__["__file__"]).parents[1]
    table = (package / "pages" / "strings.js").read_text(encoding="utf8")
    translated = {json.loads(f'"{key}"') for key in re.findall(r'^ +"((?:[^"\\]|\\.)*)": "', table, re.M)}
    said = {
        text
        for path in package.rglob("*.js")
        for pair in SAY_CALL.findall(path.read_text(encoding="utf8"))
        for text in pair
    }
    shown = set()
    for path in package.rglob("*.html"):
        html = re.sub(
            r"<(style|script|title)[^>]*>.*?</\1>|\{\{\w+\}\}|&nbsp;", "", path.read_text(encoding="utf8"), flags=re.S
        )
        texts = [*re.split(r"<[^>]+>", html), *re.findall(r'(?:title|aria-label|placeholder)="([^"]+)"', html)]
        shown |= {" ".join(text.split()) for text in texts}
    words = {text for text in said | shown if re.search(r"[A-Za-z]{2}", text)}
    names = {"API", "JSON", "CSV", "openapi.json", "Enter", "Shift", "PageUp", "PageDown"}
    assert len(said) > 60
    assert words - names - translated == set()


def test_titles_and_data_are_escaped_and_scripts_blocked(browser: Browser, page_url: str) -> None:
    browser.open(page_url)
    assert browser.driver.title == HOSTILE
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert (browser.console_messages(), browser.requested_urls()) == ([], [])
    injected = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    assert browser.run(f"{injected}; return window.ran") is None
    assert "Content Security Policy" in browser.console_messages()[0]["message"]


def test_non_json_data_raises_error() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        make_page("spacy_tener.evaluation", "errors", Heading(""), {"p": float("nan")}, lang="en")


def test_missing_page_file_raises_error() -> None:
    with pytest.raises(FileNotFoundError):
        make_page("spacy_tener.pages", "nothing", Heading(""), {}, lang="en")


def test_scripts_do_not_parse_data_as_html() -> None:
    package = Path(errors_page.__globals__["__file__"]).parents[1]
    sources = [*package.rglob("*.js"), *package.rglob("*.css")]
    assert len(sources) >= 4
    for path in sources:
        assert not MARKUP.search(path.read_text(encoding="utf8"))


@pytest.mark.parametrize(
    ("spans", "shown"),
    [
        ([], "abcdef"),
        ([(1, 3), (4, 5)], "a[bc]d[e]f"),
        ([(1, 5), (2, 3)], "a[b[c]de]f"),
        ([(2, 3), (2, 5)], "ab[[c]de]f"),
        ([(0, 3), (2, 5)], "[ab[c>]]<de]f"),
        ([(0, 2), (1, 4), (3, 6)], "[a[b>]]<c[d>]]<ef]"),
        ([(0, 6), (0, 6)], "[[abcdef]]"),
        ([(3, 3)], "abcdef"),
    ],
)
def test_nested_and_crossing_spans_are_marked(browser: Browser, page_url: str, spans: list[object], shown: str) -> None:
    browser.open(page_url)
    script = """
        const mark = (span, children, kind) => `[${children.join("")}${kind.includes("cut") ? ">" : ""}]`
            .replace("[", kind.includes("begun") ? "<" : "[");
        return parts.marked("abcdef", arguments[0].map(([start, end]) => ({ start, end })), mark).join("");
    """
    assert browser.run(script, spans) == shown


def test_offsets_are_converted_between_code_points_and_utf16(browser: Browser, page_url: str) -> None:
    browser.open(page_url)
    text = "a😀b𠮷c"
    script = """
        const at = parts.offsetsOf(arguments[0]);
        return arguments[1].map((offset) => [at.unit(offset), at.character(at.unit(offset))]);
    """
    assert browser.run(script, text, list(range(6))) == [[0, 0], [1, 1], [3, 2], [4, 3], [6, 4], [7, 5]]
    assert browser.run("return parts.excerpts('😀'.repeat(500), [{ start: 501, end: 503 }], 80, 600)") == [[420, 582]]


def test_theme_choice_is_remembered(browser: Browser, page_url: str) -> None:
    browser.set_color_scheme("light")
    browser.open(page_url)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    try:
        browser.driver.find_element("id", "theme").click()
        dark = browser.run(ground)
        assert dark != light

        def opened_again() -> object:
            browser.open(f"{page_url}?again", PHONE)
            return browser.run(ground)

        # Another process of the browser may open the page, and may read the local storage with a delay.
        wait_until(lambda: opened_again() == dark)
        assert browser.driver.find_element("id", "theme").get_attribute("aria-pressed") == "true"
    finally:
        browser.run("localStorage.clear()")
