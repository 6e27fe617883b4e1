"""The package's floors: a file imports from lower floors only, and no two files import each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "spacy_tener"
# From the ground up. Rooms on one floor know nothing of each other.
FLOORS = [
    {"about", "errors", "tagging", "types"},
    {"layers", "features", "optim"},
    {"models"},
    {"pipeline"},
    {"workbench"},
    {"cli"},
]
FLOOR_OF = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
FOREIGN = {
    "errors": {"spacy", "thinc", "torch"},
    "tagging": {"spacy", "thinc", "torch"},
    "types": {"spacy", "thinc", "torch"},
    "layers": {"spacy", "thinc"},
    "features": {"torch", "thinc"},
}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


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


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_from_lower_floors_only(module: str) -> None:
    room = room_of(module)
    others = {name for name in own_imports(module) if room_of(name) not in ("", room)}
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


def test_every_room_has_a_floor() -> None:
    assert {room_of(module) for module in MODULES} - {""} <= set(FLOOR_OF)


def test_imports_are_found_in_all_their_forms() -> None:
    assert "spacy_tener.about.__version__" in imported_names("spacy_tener")
    assert own_imports("spacy_tener") == {"spacy_tener.about"}
    assert "spacy_tener.tagging" in own_imports("spacy_tener.pipeline.tags")
