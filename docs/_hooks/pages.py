"""What `mkdocs build` adds to the pages: registered names, the commands' options, and files from outside docs/."""

from __future__ import annotations

import os
import re
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from spacy_tener.cli import tener_cli

ROOT = Path(__file__).parents[2]
# File of the repository -> the page or picture that it becomes.
BORROWED = {
    "README.md": "index.md",
    "assets/README.md": "corpora.md",
    "assets/sample/README.md": "sample.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{
        path.relative_to(ROOT).as_posix(): f"results/{path.name}"
        for path in sorted(ROOT.glob("benchmarks/results/*.*"))
    },
}
SOURCES = {page: source for source, page in BORROWED.items()}
REGISTERED = re.compile(r"^::: (tener_ner|spacy_tener\.\w+\.v\d+)$", re.MULTILINE)
OPTIONS = re.compile(r"^<!-- options: ([\w-]+) -->$", re.MULTILINE)
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that lie elsewhere in the repository."""
    for source, page in BORROWED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is written as a name, and point links into the repository to the pages made of its files."""
    markdown = REGISTERED.sub(lambda match: _reference(match[1]), markdown)
    markdown = OPTIONS.sub(lambda match: options_table(match[1]), markdown)
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return LINK.sub(lambda match: match[1] + _link(match[2], source, page.file.src_uri) + match[3], markdown)


def _link(target: str, source: str, page: str) -> str:
    """A link as written in a file of the repository, as it must be in the page made of that file."""
    path = os.path.normpath((PurePosixPath(source).parent / target).as_posix())
    if path == "benchmarks/results":
        path = "docs/measured.md"
    if path in BORROWED:
        found = BORROWED[path]
    elif path.startswith("docs/"):
        found = path.removeprefix("docs/")
    else:
        return target
    return os.path.relpath(found, PurePosixPath(page).parent.as_posix())


def _reference(name: str) -> str:
    """What mkdocstrings needs to document the function behind a registered name."""
    entries = {entry.name: entry.value for entry in distribution("spacy_tener").entry_points}
    path = entries[name].replace(":", ".")
    return f'::: {path}\n    options:\n      heading: "{name}"\n      toc_label: "{name}"'


def options_table(command: str) -> str:
    """The arguments and options of a command, as a table."""
    group: Any = typer.main.get_group(tener_cli)
    rows = ["| argument or option | meaning | default |", "| --- | --- | --- |"]
    for parameter in group.commands[command].params:
        options = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            options = [parameter.name.upper()]
        text = " ".join((parameter.help or "").split()).replace("|", "\\|")
        rows.append(f"| {', '.join(f'`{option}`' for option in options)} | {text} | {_default(parameter)} |")
    return "\n".join(rows)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, "", [], ()) or callable(value) else f"`{value}`"
