"""The structure of the package: the component never imports the tools that are built on it, modules import only from
lower layers, as described in CONTRIBUTING.md, and there are no circular imports."""

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
# The code that spaCy needs to train, load and run a pipeline: folders, and the modules that they share.
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
# The code that is built on the component. The component never imports it.
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
# Folders of the same layer, which do not import each other, although each has a line in CONTRIBUTING.md.
SAME_LAYER = {"features", "optim"}
LIBRARIES = {"spacy", "thinc", "torch"}
# Libraries that modules and folders must not import.
FORBIDDEN_LIBRARIES = {
    **dict.fromkeys(
        ["about", "errors", "files", "manifest", "processes", "renamed", "sequences", "tagging", "types"], LIBRARIES
    ),
    "validation": LIBRARIES,
    "pages": {*LIBRARIES, "numpy"},
    "features": {"torch", "thinc"},
    "onnx": {"torch", "thinc"},
}
# Libraries that implementations in torch and NumPy, such as `grn_torch.py` and `grn_numpy.py`, must not import.
LIBRARIES_OF_SUFFIX = {"_torch": {"spacy", "thinc"}, "_numpy": LIBRARIES}
# Exceptions, which need Docs or Thinc: the backend, and the embedder that uses the library transformers.
THINC_AND_TORCH = {"spacy_tener.nn.backend_torch", "spacy_tener.embedders.transformer_embed_torch"}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def layers_in_contributing() -> list[list[str]]:
    """Return the names in each line of the layers in CONTRIBUTING.md, from the top, without the descriptions."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8").partition("holds the package to it:\n\n")[2]
    lines = text.partition("\n\n")[0].splitlines()
    assert all(line.startswith("    ") and "  " in line.strip() for line in lines)
    return [line.strip().partition("  ")[0].split() for line in lines]


LAYERS = layers_in_contributing()
BOUNDARY_INDEX = [names[0][:5] for names in LAYERS].index(BOUNDARY)
# From the bottom, without the last line, which contains the modules that all layers may import.
ORDER = [names[0] for names in reversed(LAYERS[:-1]) if names != LAYERS[BOUNDARY_INDEX]]
SHARED_LAYER = min(map(ORDER.index, SAME_LAYER))
LAYER_OF = {part: 1 + (SHARED_LAYER if part in SAME_LAYER else ORDER.index(part)) for part in ORDER}
LAYER_OF |= dict.fromkeys(BASE_FILES, 0)


def is_model_module(module: str) -> bool:
    """Return True for a module in the folders that implement models."""
    return part_of(module) in {"nn", "crf", "embedders", "architectures"}


def part_of(module: str) -> str:
    """Return the folder or the top-level module that contains a module. It is empty for the package's `__init__`."""
    return module.split(".")[1] if "." in module else ""


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf8"))


@cache
def imported_names(module: str, tree: ast.AST | None = None) -> set[str]:
    """Return the full names of all imports in a module, or in a part of it. `from a import b` imports `a.b`."""
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
    """Return the modules of this package that a module imports."""
    names = imported_names(module)
    found = {name if name in MODULES else name.rpartition(".")[0] for name in names}
    return (found & set(MODULES)) - {module}


def test_contributing_page_lists_tools_and_component_parts() -> None:
    assert set(chain.from_iterable(LAYERS[:BOUNDARY_INDEX])) == TOOLS
    assert set(chain.from_iterable(LAYERS[BOUNDARY_INDEX + 1 : -1])) == COMPONENT_FOLDERS
    assert set(LAYERS[-1]) == BASE_FILES
    assert {part_of(module) for module in MODULES} - {""} == TOOLS | COMPONENT


def test_how_it_works_page_lists_tools_and_component_parts() -> None:
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
def test_module_does_not_import_forbidden_libraries(module: str) -> None:
    libraries = {name.partition(".")[0] for name in imported_names(module)}
    assert not libraries & FORBIDDEN_LIBRARIES[part_of(module)]


def loaded_names(module: str) -> set[str]:
    """Return the names that a module imports when it is loaded: not in functions, and not only for type checking."""
    return {
        name
        for node in parsed(module).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported_names(module, ast.Module([node], []))
    }


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("_torch")])
def test_only_torch_modules_import_torch_when_loaded(module: str) -> None:
    loaded = loaded_names(module)
    assert "torch" not in {name.partition(".")[0] for name in loaded}
    assert not {name for name in loaded if name.startswith("spacy_tener.") and "_torch." in name}


@pytest.mark.parametrize(
    "module", [name for name in MODULES if name.endswith(tuple(LIBRARIES_OF_SUFFIX)) and is_model_module(name)]
)
def test_layer_implementations_do_not_import_spacy_or_thinc(module: str) -> None:
    libraries = {name.partition(".")[0] for name in imported_names(module)}
    forbidden = LIBRARIES_OF_SUFFIX["_" + module.rpartition("_")[2]]
    assert not libraries & forbidden or module in THINC_AND_TORCH


def test_package_has_no_circular_imports() -> None:
    # Importing a name that an `__init__.py` re-exports counts as an import of this file.
    graph = {module: package_imports(module) for module in MODULES}
    assert list(TopologicalSorter(graph).static_order())


def test_package_does_not_import_research() -> None:
    assert {name for module in MODULES for name in imported_names(module) if name.split(".")[0] == "research"} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) not in TOOLS])
def test_component_does_not_import_tools(module: str) -> None:
    assert {part_of(name) for name in package_imports(module)} & TOOLS == set()


def test_registered_functions_are_in_component() -> None:
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]["entry-points"]
    parts = {
        group: {part_of(function.partition(":")[0]) for function in functions.values()}
        for group, functions in entry_points.items()
    }
    assert parts.pop("spacy_cli") == {"cli"}
    assert set(chain.from_iterable(parts.values())) <= COMPONENT


def test_loading_and_prediction_do_not_import_tools(train, tmp_path, without_torch) -> None:
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


def test_absolute_and_relative_imports_are_found() -> None:
    assert "spacy_tener.about.__version__" in imported_names("spacy_tener")
    assert package_imports("spacy_tener") == {"spacy_tener.about"}
    assert "spacy_tener.tagging" in package_imports("spacy_tener.pipeline.tags")
