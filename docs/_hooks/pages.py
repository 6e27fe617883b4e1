"""Pages of the site that lie elsewhere in the repository, and links to them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
from make_reference import fill_options  # noqa: E402

# File of the repository -> the page or picture that it becomes.
BORROWED = {
    "README.md": "index.md",
    "README.zh.md": "zh/index.md",
    "assets/README.md": "corpora.md",
    "assets/sample/README.md": "sample.md",
    "research/README.md": "benchmarks.md",
    "research/papers.md": "papers.md",
    "research/pretraining.md": "pretraining.md",
    "research/project.md": "project.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    **{path.relative_to(ROOT).as_posix(): f"results/{path.name}" for path in sorted(ROOT.glob("research/results/*.*"))},
}
SOURCES = {page: source for source, page in BORROWED.items()}
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that lie elsewhere in the repository."""
    for source, page in BORROWED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the options of commands, and point links into the repository to the pages made of its files."""
    if page.file.src_uri == "index.md":  # `is_homepage` is False for a page in a section of the navigation
        page.meta["hide"] = ["navigation"]
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    linked = LINK.sub(lambda match: match[1] + _link(match[2], source, page.file.src_uri) + match[3], markdown)
    return fill_options(linked)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Say of a page in Chinese that it is: browsers choose the forms of characters, and voices, by that."""
    return output.replace('<html lang="en"', '<html lang="zh"', 1) if page.file.src_uri.startswith("zh/") else output


def _link(target: str, source: str, page: str) -> str:
    """A link as written in a file of the repository, as it must be in the page made of that file."""
    path = os.path.normpath((PurePosixPath(source).parent / target).as_posix())
    if path == "research/results":
        path = "research/results/README.md"
    if path in BORROWED:
        found = BORROWED[path]
    elif path.startswith("docs/"):
        found = path.removeprefix("docs/")
    else:
        return target
    return os.path.relpath(found, PurePosixPath(page).parent.as_posix())
