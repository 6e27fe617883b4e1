"""The documentation builds strictly, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from pages import ROOT
from test_links import ENTRIES

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


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_registered_names_have_their_arguments(site: Path, entry: str) -> None:
    name, _, target = entry.partition(" = ")
    module, _, attribute = target.partition(":")
    html = next(
        text for path in site.rglob("*.html") if f'id="{module}.{attribute}"' in (text := path.read_text("utf8"))
    )
    reference = html.split(f'id="{module}.{attribute}"')[1].split("doc-object")[0]
    function = getattr(importlib.import_module(module), attribute)
    assert name in reference
    for argument in inspect.signature(function).parameters:
        assert argument in re.sub(r"<[^>]+>", "", reference), argument


def test_no_name_is_left_for_a_reader_to_look_up(site: Path) -> None:
    assert [path for path in site.rglob("*.html") if "\n::: " in re.sub(r"<[^>]+>", "", path.read_text("utf8"))] == []


def test_commands_have_their_options(site: Path) -> None:
    html = (site / "commands" / "index.html").read_text(encoding="utf8")
    assert "--systems" in html
    assert "<!-- options" not in html
