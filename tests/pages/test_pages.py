"""What all pages share: one file under a strict policy, colours of labels, and parts that show any text as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import PHONE, Browser
from waiting import wait_until

from spacy_tener.pages import displacy_options, label_hue, make_page
from spacy_tener.workbench.report.errors import errors_page

HOSTILE = "</script><img src=x onerror=document.title='taken'>{{data}}\u2028&amp;\U0001f600𠮷<!--"
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|</(script|style)|document\.write")
LABELS = ["PER", "ORG", "LOC", "GPE", "per", "", "人名", "<b>", "😀𠮷", "e\u0301", "שלום", "L" * 300]


@pytest.fixture
def blank(tmp_path: Path) -> str:
    """The address of a page with data of any kind."""
    path = tmp_path / "page.html"
    path.write_text(errors_page(HOSTILE, None, about=HOSTILE), encoding="utf8")
    return path.as_uri()


def test_a_label_has_one_colour_in_python_in_scripts_and_in_displacy(browser: Browser, blank: str) -> None:
    browser.open(blank)
    assert browser.run("return arguments[0].map(parts.hue)", LABELS) == [label_hue(label) for label in LABELS]
    assert displacy_options(["PER", "org"])["colors"] == {
        "PER": f"hsl({label_hue('PER')}, 75%, 86%)",
        "ORG": f"hsl({label_hue('org')}, 75%, 86%)",
    }


@pytest.mark.parametrize(
    ("labels", "degrees"),
    [
        ("PER ORG LOC GPE", 45),
        ("PER ORG LOC MISC", 40),
        ("PER ORG TITLE DATE", 45),
        ("PER LOC ORG TIME", 50),
        ("DATE LAW LOC MED ORG PER PRODUCT TITLE", 22),
        ("CONT EDU LOC NAME ORG PRO RACE TITLE", 22),
        ("PER.NAM PER.NOM LOC.NAM LOC.NOM GPE.NAM GPE.NOM ORG.NAM ORG.NOM", 20),
        ("corporation creative-work group location person product", 26),
    ],
)
def test_labels_of_usual_corpora_are_far_apart(labels: str, degrees: int) -> None:
    hues = sorted(map(label_hue, labels.split()))
    assert min((after - hue) % 360 for hue, after in zip(hues, [*hues[1:], hues[0]], strict=True)) > degrees


def test_titles_and_data_stay_text_and_nothing_else_is_run(browser: Browser, blank: str) -> None:
    browser.open(blank)
    assert browser.driver.title == HOSTILE
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert (browser.said(), browser.fetched()) == ([], [])
    injected = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    assert browser.run(f"{injected}; return window.ran") is None
    assert "Content Security Policy" in browser.said()[0]["message"]


def test_data_that_is_no_json_is_refused_in_python() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        make_page("spacy_tener.workbench.report", "errors", {"p": float("nan")}, title="", about="", lang="en")


def test_a_page_that_lacks_a_part_of_its_own_is_refused() -> None:
    with pytest.raises(FileNotFoundError):
        make_page("spacy_tener.pages", "nothing", {}, title="", about="", lang="en")


def test_no_script_reads_data_as_markup_and_none_ends_its_element() -> None:
    package = Path(errors_page.__globals__["__file__"]).parents[2]
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
def test_spans_are_marked_inside_of_each_other(browser: Browser, blank: str, spans: list[object], shown: str) -> None:
    browser.open(blank)
    script = """
        const mark = (span, children, kind) => `[${children.join("")}${kind.includes("cut") ? ">" : ""}]`
            .replace("[", kind.includes("begun") ? "<" : "[");
        return parts.marked("abcdef", arguments[0].map(([start, end]) => ({ start, end })), mark).join("");
    """
    assert browser.run(script, spans) == shown


def test_places_count_characters_where_scripts_count_units(browser: Browser, blank: str) -> None:
    browser.open(blank)
    text = "a😀b𠮷c"
    script = """
        const at = parts.places(arguments[0]);
        return arguments[1].map((place) => [at.unit(place), at.character(at.unit(place))]);
    """
    assert browser.run(script, text, list(range(6))) == [[0, 0], [1, 1], [3, 2], [4, 3], [6, 4], [7, 5]]
    assert browser.run("return parts.excerpts('😀'.repeat(500), [{ start: 501, end: 503 }], 80, 600)") == [[420, 582]]


def test_the_theme_button_remembers(browser: Browser, blank: str) -> None:
    browser.prefer("light")
    browser.open(blank)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    try:
        browser.driver.find_element("id", "theme").click()
        dark = browser.run(ground)
        assert dark != light

        def opened_again() -> object:
            browser.open(f"{blank}?again", PHONE)
            return browser.run(ground)

        # Another process of the browser may open a page, which reads what is stored a moment later.
        wait_until(lambda: opened_again() == dark)
        assert browser.driver.find_element("id", "theme").get_attribute("aria-pressed") == "true"
    finally:
        browser.run("localStorage.clear()")
