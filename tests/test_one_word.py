"""Names are unambiguous: a public name or a constant that several files of the package define is the same in all."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "spacy_tener"
# The implementations of a layer in torch and NumPy define the same names.
IMPLEMENTATIONS = {"torch", "numpy"}


def read_definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of public functions and classes, and of all constants in a file, with their definitions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if not node.name.startswith("_"):
                yield node.name, ast.dump(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from constants(target, node.value)


def constants(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        for part in zip(target.elts, values, strict=True):
            yield from constants(*part)
    elif isinstance(target, ast.Name):
        definition = ast.unparse(value)
        # Type variables are local to their functions, and every module has its own `__all__`.
        if not definition.startswith("TypeVar(") and target.id != "__all__":
            yield target.id, definition


def find_conflicts(files: dict[str, str]) -> dict[str, list[str]]:
    """Return the names with different definitions, and the files that define them."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for file, source in files.items():
        for name, definition in read_definitions(ast.parse(source)):
            found[name][file] = definition
    return {
        name: sorted(definitions)
        for name, definitions in found.items()
        if len(set(definitions.values())) > 1 and not are_implementations_of_same_layer(list(definitions))
    }


def are_implementations_of_same_layer(files: list[str]) -> bool:
    folders = {file.rpartition("/")[0] for file in files}
    suffixes = {file.removesuffix(".py").rpartition("_")[2] for file in files}
    return len(files) == 2 and len(folders) == 1 and suffixes == IMPLEMENTATIONS


def test_names_have_same_definition_in_all_files() -> None:
    files = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf8") for path in PACKAGE.rglob("*.py")}
    assert len(files) > 100
    assert not find_conflicts(files)


def test_conflicting_definitions_are_found() -> None:
    alias, class_definition = "Text = str\n", "class Text:\n    pass\n"
    assert find_conflicts({"serve/a.py": alias, "explain/b.py": class_definition}) == {
        "Text": ["explain/b.py", "serve/a.py"]
    }
    assert find_conflicts({"cli/a.py": "_MB = 1 << 20\n", "models/b.py": "_MB: int = 10**6\n"})
    assert find_conflicts({"cli/a.py": "A, FOLDS = 1, 5\n", "models/b.py": "FOLDS = 'folds'\n"})
    assert not find_conflicts({"serve/a.py": alias, "explain/b.py": alias})
    assert not find_conflicts({"nn/a_torch.py": alias, "nn/a_numpy.py": class_definition})
    assert find_conflicts({"nn/a_torch.py": alias, "crf/a_numpy.py": class_definition})
