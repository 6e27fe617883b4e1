"""The documentation builds strictly, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from pages import ROOT
from test_links import NAMES

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\bsrc=["']?https?:|<link[^>]*\bhref=["']?https?:|url\(["']?https?:"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(directory)))
    return directory


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert pages
    assert [path.name for path in pages if FETCHED.search(path.read_text(encoding="utf8"))] == []


def test_registered_names_have_their_arguments(site: Path) -> None:
    html = "".join(path.read_text(encoding="utf8") for path in site.rglob("*.html"))
    assert [name for name in NAMES if f'"{name}"' not in html and f">{name}<" not in html.replace("\n", "")] == []
    assert "::: " not in re.sub(r"<[^>]+>", "", html)
    assert "key_projection" in html  # an argument of TENER's, by the signature


def test_commands_have_their_options(site: Path) -> None:
    html = (site / "commands" / "index.html").read_text(encoding="utf8")
    assert "--systems" in html
    assert "<!-- options" not in html
