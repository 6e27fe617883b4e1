"""The file of a stopped training: a tree of plain values and arrays, whole or not there, and read without running code.

It is NumPy's .npz: one member for each array, and one with the tree as JSON, in which {"$array": n} stands for an array
and {"$bytes": n} for bytes.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..files import FileError, write_file

FORMAT = 1
_TREE = "tree"
_ARRAY, _BYTES = "$array", "$bytes"


def write_checkpoint(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of dictionaries with strings as keys, lists, tuples (which come back as lists), plain values, bytes,
    and NumPy's arrays and numbers. Of anything else, as a scorer may return, the text is kept."""
    arrays: list[Any] = []
    text = json.dumps({"format": FORMAT, "content": _packed(tree, arrays)}, default=str).encode("utf8")
    members: dict[str, Any] = {str(number): array for number, array in enumerate(arrays)}
    members[_TREE] = np.frombuffer(text, dtype=np.uint8)
    write_file(path, lambda file: np.savez(file, **members))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What was written. A file that is cut off or damaged is found out: each member has a checksum."""
    try:
        with np.load(path, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        whole = json.loads(arrays[_TREE].tobytes())
        if whole["format"] != FORMAT:
            raise ValueError(f"its format is {whole['format']}, not {FORMAT}")
        tree: dict[str, Any] = _unpacked(whole["content"], arrays)
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise broken(path, error) from error
    return tree


def broken(path: Path, error: Exception) -> FileError:
    """What to say of a checkpoint that cannot be read, or does not fit the pipeline."""
    what = " ".join(str(error).split())[:200] or type(error).__name__
    return FileError(f"{path}: broken checkpoint: {what}", "To begin anew, remove this file or give --restart.")


def _packed(node: Any, arrays: list[Any]) -> Any:
    """The tree with arrays and bytes taken out, into the list."""
    if isinstance(node, Mapping):
        return {key: _packed(value, arrays) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_packed(value, arrays) for value in node]
    if isinstance(node, np.ndarray):
        arrays.append(node)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(node, bytes):
        arrays.append(np.frombuffer(node, dtype=np.uint8))
        return {_BYTES: len(arrays) - 1}
    # Scores and losses may be NumPy's numbers.
    return node.item() if isinstance(node, np.generic) else node


def _unpacked(node: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_unpacked(value, arrays) for value in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {_ARRAY}:
        return arrays[str(node[_ARRAY])]
    if set(node) == {_BYTES}:
        return arrays[str(node[_BYTES])].tobytes()
    return {key: _unpacked(value, arrays) for key, value in node.items()}
