"""The structure of the package: the component never imports the tools that are built on it, a module imports only from
lower layers, as CONTRIBUTING.md draws them, and no two modules import each other."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "spacy_tener"
BOUNDARY = "-----"
# What spaCy needs to train, load and run a pipeline: folders, and the modules that all of them share.
COMPONENT_FOLDERS = {"pipeline", "architectures", "embedders", "onnx", "crf", "nn", "features", "optim"}
BASE_FILES = {
    "about",
    "errors",
    "files",
    "inputs",
    "processes",
    "renamed",
    "requirements",
    "sequences",
    "tagging",
    "types",
    "validation",
}
COMPONENT = COMPONENT_FOLDERS | BASE_FILES
# What is built on the component, which never imports it.
TOOLS = {
    "cli",
    "review",
    "training",
    "export",
    "evaluation",
    "corpora",
    "serve",
    "annotate",
    "explain",
    "manifest",
    "pages",
}
# Folders of one layer, which do not import each other, though the picture needs a line for each.
SAME_LAYER = {"features", "optim"}
LIBRARIES = {"spacy", "thinc", "torch"}
# Packages that whole folders must not import. Names of files tell which ones.
FORBIDDEN_LIBRARIES = {
    **dict.fromkeys(
        ["about", "errors", "files", "manifest", "processes", "renamed", "sequences", "tagging", "types"], LIBRARIES
    ),
    "validation": LIBRARIES,
    "pages": {*LIBRARIES, "numpy"},
    "features": {"torch", "thinc"},
    "onnx": {"torch", "thinc"},
}
# A module and its predictor are told from Thinc's layers: `grn_torch.py`, `grn_numpy.py`, `grn.py`.
FORMS = {"_torch": {"spacy", "thinc"}, "_numpy": LIBRARIES}
# These two know Docs and Thinc as well: a back end, and the transformers' library.
THINC_AND_TORCH = {"spacy_tener.nn.backend_torch", "spacy_tener.embedders.transformer_embed_torch"}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def picture() -> list[list[str]]:
    """The names in each line of the picture, from the top. What follows two blanks is a comment."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8").partition("holds the package to it:\n\n")[2]
    lines = text.partition("\n\n")[0].splitlines()
    assert all(line.startswith("    ") and "  " in line.strip() for line in lines)
    return [line.strip().partition("  ")[0].split() for line in lines]


PICTURE = picture()
LINE = [names[0][:5] for names in PICTURE].index(BOUNDARY)
# From the bottom. The last line has the modules that all others may import.
ORDER = [names[0] for names in reversed(PICTURE[:-1]) if names != PICTURE[LINE]]
SHARED_LAYER = min(map(ORDER.index, SAME_LAYER))
LAYER_OF = {part: 1 + (SHARED_LAYER if part in SAME_LAYER else ORDER.index(part)) for part in ORDER}
LAYER_OF |= dict.fromkeys(BASE_FILES, 0)


def is_below(module: str) -> bool:
    """Return True for a module of the component that Thinc's layers and spaCy's components stand on."""
    return part_of(module) in {"nn", "crf", "embedders", "architectures"}


def part_of(module: str) -> str:
    """The part of the package that a module is in; the package's own `__init__` is none."""
    return module.split(".")[1] if "." in module else ""


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf8"))


@cache
def imported_names(module: str, tree: ast.AST | None = None) -> set[str]:
    """The full names of everything that a module imports, or a part of it, wherever in the file; of `from a import b`,
    `a.b`."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names: set[str] = set()
    for node in ast.walk(tree or parsed(module)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names.update(f"{source}.{alias.name}" for alias in node.names)
    return names


def package_imports(module: str) -> set[str]:
    """The modules of this package that a module imports."""
    names = imported_names(module)
    found = {name if name in MODULES else name.rpartition(".")[0] for name in names}
    return (found & set(MODULES)) - {module}


def test_the_picture_shows_every_part_on_its_side_of_the_line() -> None:
    assert set(chain.from_iterable(PICTURE[:LINE])) == TOOLS
    assert set(chain.from_iterable(PICTURE[LINE + 1 : -1])) == COMPONENT_FOLDERS
    assert set(PICTURE[-1]) == BASE_FILES
    assert {part_of(module) for module in MODULES} - {""} == TOOLS | COMPONENT


def test_how_it_works_draws_the_same_line() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf8")
    drawing = page.partition("```text\n")[2].partition("```")[0]
    tools, _, component = (set(part.split()) for part in re.split("(-{5,})", drawing))
    assert tools == {"tools", *TOOLS}
    assert component == {"component", *COMPONENT_FOLDERS}


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_from_lower_layers_only(module: str) -> None:
    part = part_of(module)
    siblings = BASE_FILES if part in BASE_FILES else {part}
    imported = {name for name in package_imports(module) if part_of(name) not in ("", *siblings)}
    upward = {name for name in imported if part and LAYER_OF[part_of(name)] >= LAYER_OF[part]}
    assert not upward, f"{module} imports from its own layer or above: {sorted(upward)}"


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) in FORBIDDEN_LIBRARIES])
def test_module_knows_only_the_libraries_of_its_part(module: str) -> None:
    libraries = {name.partition(".")[0] for name in imported_names(module)}
    assert not libraries & FORBIDDEN_LIBRARIES[part_of(module)]


def loaded_names(module: str) -> set[str]:
    """What a module imports when it is loaded: not inside functions, and not for types alone."""
    return {
        name
        for node in parsed(module).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported_names(module, ast.Module([node], []))
    }


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("_torch")])
def test_only_files_named_for_torch_import_it_when_they_are_loaded(module: str) -> None:
    loaded = loaded_names(module)
    assert "torch" not in {name.partition(".")[0] for name in loaded}
    assert not {name for name in loaded if name.startswith("spacy_tener.") and "_torch." in name}


@pytest.mark.parametrize("module", [name for name in MODULES if name.endswith(tuple(FORMS)) and is_below(name)])
def test_a_module_and_its_predictor_know_no_docs(module: str) -> None:
    libraries = {name.partition(".")[0] for name in imported_names(module)}
    forbidden = FORMS["_" + module.rpartition("_")[2]]
    assert not libraries & forbidden or module in THINC_AND_TORCH


def test_no_two_modules_import_each_other() -> None:
    # A package's __init__ gathers names from its modules; asking it for one of them is not a way round.
    graph = {module: package_imports(module) for module in MODULES}
    assert list(TopologicalSorter(graph).static_order())


def test_the_package_never_imports_what_reproduces_the_papers() -> None:
    assert {name for module in MODULES for name in imported_names(module) if name.split(".")[0] == "research"} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) not in TOOLS])
def test_the_component_imports_no_tool(module: str) -> None:
    assert {part_of(name) for name in package_imports(module)} & TOOLS == set()


def test_all_registered_functions_but_the_commands_are_in_the_component() -> None:
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]["entry-points"]
    parts = {
        group: {part_of(function.partition(":")[0]) for function in functions.values()}
        for group, functions in entry_points.items()
    }
    assert parts.pop("spacy_cli") == {"cli"}
    assert set(chain.from_iterable(parts.values())) <= COMPONENT


def test_spacy_finds_the_component_which_imports_nothing_above_itself(train, tmp_path, without_torch) -> None:
    train(steps=1).to_disk(tmp_path / "pipeline")
    code = """
import sys, spacy
print(spacy.blank("zh").add_pipe("tener_ner").__class__.__module__)
list(spacy.load("pipeline").pipe(["上海"]))
print(*sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    module, modules = result.stdout.splitlines()
    assert module == "spacy_tener.pipeline.tener_ner"
    imported = {name for name in modules.split() if name.startswith("spacy_tener.")}
    assert {part_of(name) for name in imported} & TOOLS == set()
    assert {part_of(name) for name in imported} >= {"pipeline", "architectures", "embedders", "nn", "crf", "features"}


def test_imports_are_found_in_all_their_forms() -> None:
    assert "spacy_tener.about.__version__" in imported_names("spacy_tener")
    assert package_imports("spacy_tener") == {"spacy_tener.about"}
    assert "spacy_tener.tagging" in package_imports("spacy_tener.pipeline.tags")
