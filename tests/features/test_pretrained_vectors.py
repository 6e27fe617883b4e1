"""Pretrained vectors: formats, filters, warnings and errors of `read_vectors`, and scaling and whitening."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.vectors import Vectors as SpacyVectors  # type: ignore[import-not-found,unused-ignore]
from spacy.vocab import Vocab
from thinc.types import Floats1d

from spacy_tener.features.keys import Normalizer
from spacy_tener.features.pretrained_vectors import read_vectors, scale_vectors, whiten_table

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
ROWS = {"中": [0.5, -1.25, 3e-2], "国": [1.0, 0.0, -0.5], "2": [7.0, 8.0, 9.0]}


def write_text(path: Path, rows: dict[str, list[float]] = ROWS) -> Path:
    lines = [f"{name} {' '.join(map(str, values))}\n" for name, values in rows.items()]
    path.write_text(f"{len(rows)} 3\n" + "".join(lines), encoding="utf8")
    return path


def make_pipeline(rows: dict[str, list[float]] = ROWS) -> Language:
    nlp = spacy.blank("zh")
    for name, values in rows.items():
        nlp.vocab.set_vector(name, cast(Floats1d, np.asarray(values, dtype=np.float32)))
    return nlp


# Text


def test_text_file_is_read_in_order(tmp_path: Path) -> None:
    vectors = read_vectors(str(write_text(tmp_path / "chars.vec")), width=3)
    assert vectors.strings == list(ROWS)
    assert vectors.table.dtype == np.float32
    np.testing.assert_array_equal(vectors.table, np.asarray(list(ROWS.values()), dtype=np.float32))
    assert vectors.table.shape == (3, 3)


# Duplicates, normalisation and filters


def test_duplicate_strings_keep_first_row_with_warning(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("a 1 2\nb 3 4\na 5 6\nb 7 8\na 9 9\n", encoding="utf8")
    with pytest.warns(UserWarning, match=r"chars\.vec: 3 rows repeat .* 'a' in line 3\.") as caught:
        vectors = read_vectors(path)
    assert vectors.strings == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [3, 4]]
    assert caught[0].filename == __file__


def test_strings_equal_after_normalisation_merge_silently(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("3 1 2\n7 3 4\nA 5 6\na 7 8\n", encoding="utf8")
    vectors = read_vectors(path, normalise=Normalizer(digits=True, lower=True))
    assert vectors.strings == ["0", "a"]
    assert vectors.table.tolist() == [[1, 2], [5, 6]]


def test_keep_receives_normalised_strings(tmp_path: Path) -> None:
    vectors = read_vectors(write_text(tmp_path / "v"), normalise=Normalizer(), keep={"0", "国"}.__contains__)
    assert vectors.strings == ["国", "0"]
    assert vectors.table.tolist() == [[1.0, 0.0, -0.5], [7.0, 8.0, 9.0]]


def test_values_of_excluded_rows_are_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("a 1 2\nb x y\n", encoding="utf8")
    assert read_vectors(path, keep=lambda string: string == "a").table.tolist() == [[1, 2]]


def test_excluding_all_rows_gives_empty_table(tmp_path: Path) -> None:
    vectors = read_vectors(write_text(tmp_path / "v"), keep=lambda string: False)
    assert vectors.strings == []
    assert vectors.table.shape == (0, 3)


# Directories of spaCy


def test_pipeline_directory_vectors_equal_vocab_vectors(tmp_path: Path) -> None:
    nlp = make_pipeline()
    nlp.to_disk(tmp_path / "pipeline")
    vectors = read_vectors(tmp_path / "pipeline", width=3)
    assert set(vectors.strings) == set(ROWS)
    for string, row in zip(vectors.strings, vectors.table, strict=True):
        np.testing.assert_array_equal(row, nlp.vocab.get_vector(string))


def test_vocab_directory_is_accepted(tmp_path: Path) -> None:
    make_pipeline().to_disk(tmp_path)
    assert set(read_vectors(tmp_path / "vocab").strings) == set(ROWS)


def test_pruned_vectors_expand_shared_rows(tmp_path: Path) -> None:
    vocab = Vocab(strings=["a", "b"])
    vocab.vectors = SpacyVectors(data=np.asarray([[1, 2]], dtype=np.float32), keys=["a"], strings=vocab.strings)
    vocab.vectors.add("b", row=0)
    vocab.to_disk(tmp_path)
    vectors = read_vectors(tmp_path)
    assert sorted(vectors.strings) == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [1, 2]]


def test_normalise_and_keep_apply_to_directories(tmp_path: Path) -> None:
    make_pipeline().to_disk(tmp_path)
    vectors = read_vectors(tmp_path, normalise=Normalizer(), keep={"0"}.__contains__)
    assert vectors.strings == ["0"]
    assert vectors.table.tolist() == [[7, 8, 9]]


def test_key_without_string_is_skipped_with_warning(tmp_path: Path) -> None:
    nlp = make_pipeline()
    nlp.vocab.vectors.add(123456789, vector=np.ones(3, dtype=np.float32))
    nlp.to_disk(tmp_path)
    with pytest.warns(UserWarning, match="1 rows were left out"):
        vectors = read_vectors(tmp_path)
    assert set(vectors.strings) == set(ROWS)


def test_directory_without_vectors_raises_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"contains no spaCy vectors.*spacy init vectors"):
        read_vectors(tmp_path)


def test_empty_vector_table_raises_error(tmp_path: Path) -> None:
    spacy.blank("zh").to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"vocab contains no vectors.*spacy init vectors"):
        read_vectors(tmp_path)


def test_error_names_string_with_non_finite_value(tmp_path: Path) -> None:
    make_pipeline({"好": [1, 2, 3], "坏": [1, float("nan"), 3]}).to_disk(tmp_path)
    with pytest.raises(ValueError, match="'坏' is not finite"):
        read_vectors(tmp_path)


# Errors


def test_missing_path_raises_error(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"nowhere\.vec: .*No such file.* `python -m spacy tener vectors minilm --output "
    ):
        read_vectors(tmp_path / "nowhere.vec")


def test_floret_vectors_raise_error_with_fix(tmp_path: Path) -> None:
    vocab = Vocab()
    data = np.zeros((40, 3), dtype=np.float32)
    vocab.vectors = SpacyVectors(data=data, strings=vocab.strings, mode="floret", minn=1, maxn=2, hash_count=2)
    vocab.to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"no vocabulary.*default mode"):
        read_vectors(tmp_path)


# Widths


@pytest.mark.parametrize("source", ["word2vec", "glove", "directory"])
def test_width_mismatch_error_names_both_widths(tmp_path: Path, source: str) -> None:
    path = tmp_path / source
    if source == "directory":
        make_pipeline().to_disk(path)
    else:
        write_text(path)
    if source == "glove":
        path.write_text(path.read_text(encoding="utf8").partition("\n")[2], encoding="utf8")
    with pytest.raises(ValueError, match=r"the width 3, but the config requires 50\. Set the width in the config to 3"):
        read_vectors(path, width=50)


# Scaling and whitening


def correlated(n: int, width: int) -> np.ndarray:
    """Return vectors with a large mean and a dominant direction, which has 100 times the deviation of the others."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(n, width)) + rng.normal(size=(n, 1)) * 100 * rng.normal(size=width)
    return (table + 30 * rng.normal(size=width)).astype("float32")


def test_whitened_vectors_have_zero_mean_and_unit_covariance() -> None:
    table = whiten_table(correlated(4000, 12))
    assert table.dtype == np.float32
    np.testing.assert_allclose(table.mean(0), np.zeros(12), atol=1e-3)
    np.testing.assert_allclose(np.cov(table.T, bias=True), np.eye(12), atol=1e-2)


def test_whitening_does_not_rotate_independent_columns() -> None:
    """Uncorrelated columns are only centred and scaled, as by ZCA whitening."""
    rng = np.random.default_rng(1)
    columns, _ = np.linalg.qr(rng.normal(size=(500, 8)))
    columns, _ = np.linalg.qr(columns - columns.mean(0))
    scales = np.array([3.0, 1.0, 0.5, 2.0, 9.0, 0.1, 1.0, 1.0])
    centred = columns - columns.mean(0)
    np.testing.assert_allclose(whiten_table(columns * scales + 5.0), centred / centred.std(0), atol=0.05)


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("whiten", [False, True])
def test_scaling_few_vectors_gives_finite_values(n: int, whiten: bool) -> None:
    table = scale_vectors(correlated(n, 6), whiten=whiten)
    assert table.shape == (n, 6)
    assert np.isfinite(table).all()
    # Directions without variance are zero.
    assert np.linalg.matrix_rank(whiten_table(correlated(n, 6)), tol=1e-2) == max(n - 1, 0)


@pytest.mark.parametrize("whiten", [False, True])
def test_scaled_vectors_have_unit_norm(whiten: bool) -> None:
    norms = np.linalg.norm(scale_vectors(correlated(50, 6), whiten=whiten), axis=1)
    np.testing.assert_allclose(norms, np.ones(50), rtol=1e-5)


def test_zero_vectors_stay_zero() -> None:
    np.testing.assert_array_equal(scale_vectors(np.zeros((2, 3), "float32"), whiten=False), np.zeros((2, 3)))
