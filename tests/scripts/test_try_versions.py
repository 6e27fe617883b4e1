"""The table of test runs, with one row for each version of Python and set of dependencies."""

from __future__ import annotations

import pytest
from try_versions import HEADING, PAGE, TABLE, add_row

OLD = "| 3.11.7 | tested | spacy 1 | 2026-01-01 | `1 passed` |"
NEW = "| 3.11.7 | tested | spacy 2 | 2026-02-02 | `2 passed` |"
OTHER = "| 3.12.3 | tested | spacy 2 | 2026-02-02 | `3 passed` |"


def test_new_row_replaces_row_of_same_environment() -> None:
    page = f"Before.\n\n{HEADING}{OTHER}\n\nAfter.\n"
    page = add_row(add_row(page, OLD), NEW)
    assert page == f"Before.\n\n{HEADING}{NEW}\n{OTHER}\n\nAfter.\n"


def test_page_without_table_raises_error() -> None:
    with pytest.raises(ValueError, match=r"no table of runs"):
        add_row("Before.\n", NEW)


def test_documentation_page_contains_table() -> None:
    match = TABLE.search(PAGE.read_text(encoding="utf8"))
    assert match
    assert match[1].count("\n") >= 2
