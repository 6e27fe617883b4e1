"""One word means one thing: a name of the package that is defined in two files has the same definition in both.

A test cannot know what a word means, but it finds names that two files define differently.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "spacy_tener"
# A module in torch and its predictor in NumPy have the same names, and compute the same.
FORMS_OF_MODULES = {"torch", "numpy"}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names that a file defines, with what they stand for: public ones, and constants that are private."""
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
        meaning = ast.unparse(value)
        # A type variable says nothing beyond its function; `__all__` is Python's word.
        if not meaning.startswith("TypeVar(") and target.id != "__all__":
            yield target.id, meaning


def ambiguous(files: dict[str, str]) -> dict[str, list[str]]:
    """Return the names with several definitions, and the files that have them."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for file, source in files.items():
        for name, meaning in definitions(ast.parse(source)):
            found[name][file] = meaning
    return {
        name: sorted(meanings)
        for name, meanings in found.items()
        if len(set(meanings.values())) > 1 and not are_forms_of_a_module(list(meanings))
    }


def are_forms_of_a_module(files: list[str]) -> bool:
    folders = {file.rpartition("/")[0] for file in files}
    forms = {file.removesuffix(".py").rpartition("_")[2] for file in files}
    return len(files) == 2 and len(folders) == 1 and forms == FORMS_OF_MODULES


def test_a_name_has_one_definition() -> None:
    files = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf8") for path in PACKAGE.rglob("*.py")}
    assert len(files) > 100
    assert not ambiguous(files)


def test_two_definitions_of_a_name_are_found() -> None:
    text, doc = "Text = str\n", "class Text:\n    pass\n"
    assert ambiguous({"serve/a.py": text, "explain/b.py": doc}) == {"Text": ["explain/b.py", "serve/a.py"]}
    assert ambiguous({"cli/a.py": "_MB = 1 << 20\n", "models/b.py": "_MB: int = 10**6\n"})
    assert ambiguous({"cli/a.py": "A, FOLDS = 1, 5\n", "models/b.py": "FOLDS = 'folds'\n"})
    assert not ambiguous({"serve/a.py": text, "explain/b.py": text})
    assert not ambiguous({"nn/a_torch.py": text, "nn/a_numpy.py": doc})
    assert ambiguous({"nn/a_torch.py": text, "crf/a_numpy.py": doc})
