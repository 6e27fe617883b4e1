"""Test that the code blocks of the README and the documentation run, unless a comment says why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import check, commands, run, with_arguments
from pages import CHINESE, LANGUAGES, PAGES, ROOT, Block, blocks, prose

from spacy_tener.training.overlays import compose

pytestmark = pytest.mark.integration

EXECUTED = {"python", "bash", "ini", "javascript"}
ENGLISH = [page for page in PAGES if page not in CHINESE]  # test_chinese.py compares the code of Chinese pages
RUNNABLE = [page for page in ENGLISH if any(not block.kind and block.language in EXECUTED for block in blocks(page))]
SLOW = [page for page in ENGLISH if any(block.kind == "slow" for block in blocks(page))]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a temporary directory with the files of the repository, in which commands can write files."""
    for name in ("assets", "configs", "readers", "research", "scripts", "project.yml", "Makefile", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_blocks_have_supported_language_and_valid_syntax(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page}:{block.line}"
        if block.language == "python":
            compile(block.code, f"{page}:{block.line}", "exec")
        elif block.language == "bash":
            for words in commands(block.code):
                check(words)
        elif block.language == "ini":
            assert block.base, f"{page}:{block.line}: name the overlays into which the block is merged"
        elif block.language == "json":
            for line in block.code.splitlines():
                json.loads(line)
        elif block.language == "yaml":
            yaml.safe_load(block.code)


@pytest.mark.parametrize("page", PAGES)
def test_indented_blocks_contain_no_commands(page: str) -> None:
    assert re.findall(r"^    (?:python|pip|make|import|from) .*$", prose(page), flags=re.M) == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_prose_exist(page: str) -> None:
    for line in re.findall(r"`(python -m (?:spacy|research) [^`]+)`", prose(page)):
        for words in commands(line):
            check(words)


def test_pages_write_different_configs_to_different_files() -> None:
    """`tener config` does not overwrite files, which can happen if users follow two pages in one directory."""
    composed: dict[str, set[str]] = {}
    for page in ENGLISH:
        for block in blocks(page):
            for words in commands(block.code) if block.language == "bash" else ():
                if words[2:5] == ["spacy", "tener", "config"] and "--output" in words:
                    composed.setdefault(words[words.index("--output") + 1], set()).add(" ".join(words))
    assert len(composed) > 20
    assert [lines for lines in composed.values() if len(lines) > 1] == []


@pytest.mark.parametrize("page", RUNNABLE)
def test_blocks_run(page: str, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorten_sample(clone / "assets")
    run_blocks(page, capsys)


def shorten_sample(assets: Path) -> None:
    """Replace the link to the folder by a copy of the sample corpora that has their first quarter."""
    assets.unlink()
    shutil.copytree(ROOT / "assets" / "sample", assets / "sample")
    for path in (*assets.glob("sample/zh/*.bmes"), *assets.glob("sample/en/*.iob2")):
        sentences = path.read_text(encoding="utf8").split("\n\n")
        path.write_text("\n\n".join(sentences[: len(sentences) // 4]) + "\n\n", encoding="utf8")


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_slow_blocks_run(
    page: str, clone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run all blocks of a page in order, and slow blocks by a shell in separate processes."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    run_blocks(page, capsys, slow=True)


def run_blocks(page: str, capsys: pytest.CaptureFixture[str], slow: bool = False) -> None:
    """Run the blocks of a page in one namespace, and compare the output with the `text` block that follows."""
    names: dict[str, Any] = {}
    blocks_of_page = blocks(page)
    for block, after in zip(blocks_of_page, [*blocks_of_page[1:], None], strict=True):
        if block.kind == "slow" and block.language == "bash":
            if slow:
                lines = [shlex.join(with_arguments(words, block.added)) for words in commands(block.code)]
                code = "\n".join(lines) if block.added else block.code
                subprocess.run(["bash", "-euc", code], check=True)
        elif not block.kind or (slow and block.kind == "slow"):
            capsys.readouterr()
            execute(block, names)
            if block.language in ("python", "javascript") and after and after.language == "text" and not after.kind:
                assert capsys.readouterr().out == after.code


def execute(block: Block, names: dict[str, Any]) -> None:
    if block.file:
        path = Path(block.file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.code, encoding="utf8")
    elif block.language == "python":
        exec(compile(block.code, f"{block.page}:{block.line}", "exec"), names)
    elif block.language == "bash":
        for words in commands(block.code):
            run(words, block.added)
    elif block.language == "javascript":
        Path("block.mjs").write_text(block.code, encoding="utf8")
        print(subprocess.run(["node", "block.mjs"], stdout=subprocess.PIPE, text=True, check=True).stdout, end="")
    elif block.language == "ini":
        path = Path("block.cfg")
        path.write_text(block.code, encoding="utf8")
        base, *overlays = block.base
        compose(base, [*overlays, path])
