"""Reading pretrained vectors: what `read_vectors` gives, reports and refuses, whatever the source."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.training.initialize import convert_vectors
from spacy.vectors import Vectors as SpacyVectors  # type: ignore[import-not-found,unused-ignore]
from spacy.vocab import Vocab
from thinc.types import Floats1d

from spacy_tener.features.normalise import Normaliser
from spacy_tener.features.vectors.vectors import read_vectors

ROWS = {"中": [0.5, -1.25, 3e-2], "国": [1.0, 0.0, -0.5], "2": [7.0, 8.0, 9.0]}


@pytest.fixture(autouse=True)
def _no_warning_goes_unseen() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


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


def test_strings_and_rows_of_a_text_file_are_read_in_order(tmp_path: Path) -> None:
    vectors = read_vectors(write_text(tmp_path / "chars.vec"))
    assert vectors.strings == list(ROWS)
    assert vectors.table.dtype == np.float32
    np.testing.assert_array_equal(vectors.table, np.asarray(list(ROWS.values()), dtype=np.float32))
    assert vectors.width == 3


def test_path_may_be_a_string(tmp_path: Path) -> None:
    assert read_vectors(str(write_text(tmp_path / "chars.vec"))).strings == list(ROWS)


def test_wanted_width_is_accepted_where_the_file_has_it(tmp_path: Path) -> None:
    assert read_vectors(write_text(tmp_path / "chars.vec"), width=3).width == 3


def test_report_counts_every_row_by_what_became_of_it(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_bytes(b"a 1\nb 2\n\xff 3\n7 4\n8 5\na 6\n")
    with pytest.warns(UserWarning, match=r"1 rows (repeat|were left out)") as caught:
        vectors = read_vectors(path, normalise=Normaliser(digits=True), keep=lambda string: string != "b")
    report = vectors.report
    assert vectors.strings == ["a", "0"]
    assert vectors.table.tolist() == [[1], [4]]
    assert (report.rows_read, report.duplicates, report.merged, report.left_out, report.nameless) == (6, 1, 1, 1, 1)
    assert report.path == path
    assert len(caught) == 2


# Duplicates, normalisation, choice


def test_first_of_several_rows_for_a_string_wins_and_the_warning_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("a 1 2\nb 3 4\na 5 6\nb 7 8\na 9 9\n", encoding="utf8")
    with pytest.warns(UserWarning, match=r"chars\.vec: 3 rows repeat .* 'a' in line 3\.") as caught:
        vectors = read_vectors(path)
    assert vectors.strings == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [3, 4]]
    assert vectors.report.duplicates == 3
    assert caught[0].filename == __file__


def test_strings_that_become_equal_by_normalisation_are_merged_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("3 1 2\n7 3 4\nA 5 6\na 7 8\n", encoding="utf8")
    vectors = read_vectors(path, normalise=Normaliser(digits=True, lower=True))
    assert vectors.strings == ["0", "a"]
    assert vectors.table.tolist() == [[1, 2], [5, 6]]
    assert vectors.report.merged == 2
    assert vectors.report.duplicates == 0


def test_keep_sees_normalised_strings(tmp_path: Path) -> None:
    vectors = read_vectors(write_text(tmp_path / "v"), normalise=Normaliser(), keep={"0", "国"}.__contains__)
    assert vectors.strings == ["国", "0"]
    assert vectors.table.tolist() == [[1.0, 0.0, -0.5], [7.0, 8.0, 9.0]]
    assert vectors.report.left_out == 1


def test_values_of_rows_that_nobody_wants_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("a 1 2\nb x y\n", encoding="utf8")
    assert read_vectors(path, keep=lambda string: string == "a").table.tolist() == [[1, 2]]


def test_keeping_nothing_gives_an_empty_table_of_the_right_width(tmp_path: Path) -> None:
    vectors = read_vectors(write_text(tmp_path / "v"), keep=lambda string: False)
    assert vectors.strings == []
    assert vectors.table.shape == (0, 3)


# spaCy's directories


def test_pipeline_directory_gives_the_vectors_that_its_vocab_gives(tmp_path: Path) -> None:
    nlp = make_pipeline()
    nlp.to_disk(tmp_path / "pipeline")
    vectors = read_vectors(tmp_path / "pipeline", width=3)
    assert set(vectors.strings) == set(ROWS)
    for string, row in zip(vectors.strings, vectors.table, strict=True):
        np.testing.assert_array_equal(row, nlp.vocab.get_vector(string))


def test_vocab_directory_serves_as_well_as_the_pipeline(tmp_path: Path) -> None:
    make_pipeline().to_disk(tmp_path)
    assert set(read_vectors(tmp_path / "vocab").strings) == set(ROWS)


def test_output_of_init_vectors_is_read(tmp_path: Path) -> None:
    write_text(tmp_path / "chars.vec")
    nlp = spacy.blank("zh")
    convert_vectors(nlp, tmp_path / "chars.vec", truncate=0, prune=-1)
    nlp.to_disk(tmp_path / "made")
    vectors = read_vectors(tmp_path / "made")
    assert dict(zip(vectors.strings, vectors.table.tolist(), strict=True)) == {
        name: np.asarray(values, dtype=np.float32).tolist() for name, values in ROWS.items()
    }


def test_pruned_vectors_give_each_string_its_shared_row(tmp_path: Path) -> None:
    vocab = Vocab(strings=["a", "b"])
    vocab.vectors = SpacyVectors(data=np.asarray([[1, 2]], dtype=np.float32), keys=["a"], strings=vocab.strings)
    vocab.vectors.add("b", row=0)
    vocab.to_disk(tmp_path)
    vectors = read_vectors(tmp_path)
    assert sorted(vectors.strings) == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [1, 2]]


def test_normalisation_and_choice_apply_to_directories(tmp_path: Path) -> None:
    make_pipeline().to_disk(tmp_path)
    vectors = read_vectors(tmp_path, normalise=Normaliser(), keep={"0"}.__contains__)
    assert vectors.strings == ["0"]
    assert vectors.table.tolist() == [[7, 8, 9]]
    assert vectors.report.left_out == 2


def test_key_without_a_string_is_left_out_with_a_warning(tmp_path: Path) -> None:
    nlp = make_pipeline()
    nlp.vocab.vectors.add(123456789, vector=np.ones(3, dtype=np.float32))
    nlp.to_disk(tmp_path)
    with pytest.warns(UserWarning, match="1 rows were left out"):
        vectors = read_vectors(tmp_path)
    assert set(vectors.strings) == set(ROWS)
    assert vectors.report.nameless == 1


def test_directory_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"without spaCy vectors.*spacy init vectors"):
        read_vectors(tmp_path)


def test_pipeline_with_an_empty_table_is_refused(tmp_path: Path) -> None:
    spacy.blank("zh").to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"vocab without vectors.*spacy init vectors"):
        read_vectors(tmp_path)


def test_floret_vectors_are_refused(tmp_path: Path) -> None:
    vocab = Vocab()
    data = np.ones((4, 3), dtype=np.float32)
    vocab.vectors = SpacyVectors(data=data, strings=vocab.strings, mode="floret", minn=1, maxn=2, hash_count=2)
    vocab.to_disk(tmp_path)
    with pytest.raises(ValueError, match="floret"):
        read_vectors(tmp_path)


def test_value_that_is_not_finite_names_the_string_of_a_directory(tmp_path: Path) -> None:
    make_pipeline({"好": [1, 2, 3], "坏": [1, float("nan"), 3]}).to_disk(tmp_path)
    with pytest.raises(ValueError, match="'坏' is not finite"):
        read_vectors(tmp_path)


# Refusals that all sources share


def test_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no vectors at .*nowhere\.vec"):
        read_vectors(tmp_path / "nowhere.vec")


@pytest.mark.parametrize("source", ["word2vec", "glove", "directory"])
def test_wrong_width_names_both_widths_and_the_remedy(tmp_path: Path, source: str) -> None:
    path = tmp_path / source
    if source == "directory":
        make_pipeline().to_disk(path)
    else:
        write_text(path)
    if source == "glove":
        path.write_text(path.read_text(encoding="utf8").partition("\n")[2], encoding="utf8")
    with pytest.raises(ValueError, match=r"width 3, but width 50 is wanted\. Set the width in the config to 3"):
        read_vectors(path, width=50)
