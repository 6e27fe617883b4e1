"""The package's two wings and its floors, as CONTRIBUTING.md draws them: a file imports from lower floors only, and no
two files import each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "spacy_tener"
WALL = "-----"
# Rooms that know nothing of each other, though the picture needs a line for each.
ONE_FLOOR = {"layers", "runtime", "features", "optim"}
FOREIGN = {
    "about": {"spacy", "thinc", "torch"},
    "errors": {"spacy", "thinc", "torch"},
    "files": {"spacy", "thinc", "torch"},
    "manifest": {"spacy", "thinc", "torch"},
    "tagging": {"spacy", "thinc", "torch"},
    "types": {"spacy", "thinc", "torch"},
    "settings": {"spacy", "thinc", "torch"},
    "batching": {"spacy", "thinc", "torch"},
    "crf": {"spacy", "thinc", "torch"},
    "pages": {"spacy", "thinc", "torch", "numpy"},
    "runtime": {"spacy", "thinc", "torch"},
    "layers": {"spacy", "thinc"},
    "features": {"torch", "thinc"},
}

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
ROOMS = [names for names in PICTURE if not names[0].startswith(WALL)]
FOLDERS = [names[0] for names in ROOMS[:-1]]
GROUND = set(ROOMS[-1])
# From the ground up.
ORDER = [*reversed(FOLDERS)]
LOWEST = min(map(ORDER.index, ONE_FLOOR))
FLOOR_OF = {room: 1 + (LOWEST if room in ONE_FLOOR else ORDER.index(room)) for room in ORDER}
FLOOR_OF |= dict.fromkeys(GROUND, 0)
WORKBENCH = {names[0] for names in PICTURE[: [names[0][:5] for names in PICTURE].index(WALL)]}


def room_of(module: str) -> str:
    """The part of the package that a module is in; the package's own `__init__` is none."""
    return module.split(".")[1] if "." in module else ""


def imported_names(module: str) -> set[str]:
    """The full names of everything that a module imports, wherever in the file; of `from a import b`, `a.b`."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names.update(f"{source}.{alias.name}" for alias in node.names)
    return names


def own_imports(module: str) -> set[str]:
    """The modules of this package that a module imports."""
    names = imported_names(module)
    found = {name if name in MODULES else name.rpartition(".")[0] for name in names}
    return (found & set(MODULES)) - {module}


def test_the_picture_shows_every_room() -> None:
    there = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert set(FOLDERS) == there
    assert files == GROUND


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_from_lower_floors_only(module: str) -> None:
    room = room_of(module)
    together = GROUND if room in GROUND else {room}
    others = {name for name in own_imports(module) if room_of(name) not in ("", *together)}
    upward = {name for name in others if room and FLOOR_OF[room_of(name)] >= FLOOR_OF[room]}
    assert not upward, f"{module} imports from its own floor or above: {sorted(upward)}"


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in FOREIGN])
def test_module_knows_only_the_libraries_of_its_room(module: str) -> None:
    libraries = {name.partition(".")[0] for name in imported_names(module)}
    assert not libraries & FOREIGN[room_of(module)]


def test_no_two_modules_import_each_other() -> None:
    # A package's __init__ gathers names from its modules; asking it for one of them is not a way round.
    graph = {module: own_imports(module) for module in MODULES}
    assert list(TopologicalSorter(graph).static_order())


def test_the_package_never_imports_what_reproduces_the_papers() -> None:
    assert {name for module in MODULES for name in imported_names(module) if name.split(".")[0] == "research"} == set()


def test_the_component_never_imports_the_workbench() -> None:
    below = [module for module in MODULES if module.count(".") and room_of(module) not in WORKBENCH]
    assert below
    imported = set(chain.from_iterable(map(own_imports, below)))
    assert {room_of(name) for name in imported} & WORKBENCH == set()


def test_spacy_finds_the_component_which_imports_nothing_above_itself(train, tmp_path) -> None:
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
    above = {room for room, floor in FLOOR_OF.items() if floor > FLOOR_OF["pipeline"]}
    assert above >= WORKBENCH | {"explain"}
    assert {room_of(name) for name in imported} & above == set()
    assert {room_of(name) for name in imported} >= {"pipeline", "models", "runtime", "crf", "features"}


def test_imports_are_found_in_all_their_forms() -> None:
    assert "spacy_tener.about.__version__" in imported_names("spacy_tener")
    assert own_imports("spacy_tener") == {"spacy_tener.about"}
    assert "spacy_tener.tagging" in own_imports("spacy_tener.pipeline.tags")
    assert {"cli", "workbench"} == WORKBENCH
