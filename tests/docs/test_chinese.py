"""Test that Chinese pages have the code, names, numbers and links of the English pages, whose code is run by tests."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pages import CHINESE, PAGES, blocks, prose, translated
from test_links import LINK

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LATIN = re.compile(r"[a-z]{3,}(?:[ ,.]+[a-z]{2,}){5,}", re.I)
TRANSLATED = {PAGES[english].resolve(): PAGES[chinese].resolve() for chinese, english in CHINESE.items()}


@pytest.mark.parametrize("page", CHINESE)
def test_code_equals_english_page(page: str) -> None:
    def code(page: str) -> list[tuple[str, str, str, str]]:
        return [(block.language, block.code, block.kind, block.added) for block in blocks(page)]

    assert code(page) == code(CHINESE[page])


@pytest.mark.parametrize("page", CHINESE)
def test_headings_names_and_numbers_equal_english_page(page: str) -> None:
    assert summarize(page) == summarize(CHINESE[page]), f"change {page} as {CHINESE[page]} was changed"


@pytest.mark.parametrize("page", CHINESE)
def test_links_equal_english_page_with_chinese_targets(page: str) -> None:
    """Both pages link to each other before the first second-level heading."""
    chinese, english = PAGES[page].resolve(), PAGES[CHINESE[page]].resolve()
    linked = targets(CHINESE[page])
    assert chinese in linked
    assert targets(page) == {TRANSLATED.get(target, target) for target in linked - {chinese}} | {english}
    for path, twin in ((chinese, english), (english, chinese)):
        start = path.read_text(encoding="utf8").split("\n## ")[0]
        assert f"]({Path(os.path.relpath(twin, path.parent)).as_posix()})" in start


@pytest.mark.parametrize("page", CHINESE)
def test_page_contains_no_english_sentences(page: str) -> None:
    assert LATIN.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", prose(page))) == []


def summarize(page: str) -> dict[str, object]:
    """Return the language-independent content of a page. Single-digit numbers are omitted, since they may be words."""
    text = translated(page)
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", "", text)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", text, flags=re.M)],
        "rows": [line.count(" | ") for line in re.findall(r"^\|.*", text, flags=re.M)],
        "names": set(re.findall(r"`([^`]+)`", " ".join(text.split()))),
        "numbers": {number for number in NUMBER.findall(plain) if len(number) > 1},
    }


def targets(page: str) -> set[Path | str]:
    """Return the targets of the links on a page, without anchors."""
    links = [link for link in LINK.findall(translated(page)) if not link.startswith("#")]
    folder = PAGES[page].parent
    return {link if "://" in link else (folder / link.partition("#")[0]).resolve() for link in links}
