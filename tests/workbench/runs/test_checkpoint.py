"""The file of a stopped training: what goes in comes out, what is damaged is found out, and nothing in it is run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_tener.workbench.files import FileError
from spacy_tener.workbench.runs.checkpoint import read_checkpoint, write_checkpoint

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
TREES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def through(path: Path, tree: dict[str, Any]) -> dict[str, Any]:
    write_checkpoint(path / "file.npz", tree)
    return read_checkpoint(path / "file.npz")


@settings(max_examples=30)
@given(content=TREES)
def test_a_tree_of_plain_values_comes_back(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    assert through(tmp_path_factory.mktemp("tree"), {"content": content}) == {"content": content}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.uint32, bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_come_back_with_their_shape_and_type(tmp_path: Path, dtype: type, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = through(tmp_path, {"deep": [{"array": array}]})["deep"][0]["array"]
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert np.array_equal(found, array)


def test_floats_come_back_to_the_last_bit(tmp_path: Path) -> None:
    floats = [0.1, 1 / 3, 5e-324, float("inf"), -0.0]
    found = through(tmp_path, {"floats": floats})["floats"]
    assert [value.hex() for value in found] == [value.hex() for value in floats]


def test_numbers_of_numpy_become_plain_ones_and_tuples_lists(tmp_path: Path) -> None:
    found = through(tmp_path, {"score": np.float64(0.25), "count": np.int64(3), "pair": (1, "a")})
    assert found == {"score": 0.25, "count": 3, "pair": [1, "a"]}
    assert type(found["score"]) is float


class Armed:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_what_is_pickled_in_a_file_is_not_run(tmp_path: Path) -> None:
    armed = np.array([Armed(tmp_path / "run")], dtype=object)
    tree = np.frombuffer(json.dumps({"format": 1, "content": {"a": {"$array": 0}}}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "file.npz", **{"0": armed, "tree": tree})
    with pytest.raises(FileError, match="broken checkpoint"):
        read_checkpoint(tmp_path / "file.npz")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Armed(tmp_path / "run")))
    with pytest.raises(FileError, match="broken checkpoint"):
        read_checkpoint(tmp_path / "plain.npz")
    assert not (tmp_path / "run").exists()


def test_every_cut_is_found_out(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "file.npz", {"a": np.arange(20), "b": [1, 2]})
    data = (tmp_path / "file.npz").read_bytes()
    for kept in range(0, len(data), 7):
        (tmp_path / "cut.npz").write_bytes(data[:kept])
        with pytest.raises(FileError, match="broken checkpoint") as caught:
            read_checkpoint(tmp_path / "cut.npz")
        assert "--restart" in caught.value.remedy


def test_a_format_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    tree = np.frombuffer(json.dumps({"format": 99, "content": {}}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "file.npz", tree=tree)
    with pytest.raises(FileError, match="its format is 99, not 1"):
        read_checkpoint(tmp_path / "file.npz")


def test_a_failure_in_writing_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "file.npz", {"step": 1})

    def no_room(file: Any, **members: Any) -> None:
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", no_room)
        with pytest.raises(FileError, match="cannot be written: No space left on device"):
            write_checkpoint(tmp_path / "file.npz", {"step": 2})
    assert read_checkpoint(tmp_path / "file.npz") == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file.npz"]
