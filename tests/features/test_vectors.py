"""Reading pretrained vectors: what `read_vectors` gives, reports and refuses, whatever the source."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import spacy
from gensim.models import FastText
from gensim.models.fasttext import save_facebook_model
from spacy.language import Language
from spacy.training.initialize import convert_vectors
from spacy.vectors import Vectors as SpacyVectors  # type: ignore[import-not-found,unused-ignore]
from spacy.vocab import Vocab
from thinc.types import Floats1d

from spacy_tener.features.keys import Normaliser
from spacy_tener.features.vectors import prepared, read_vectors, whitened

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
    vectors = read_vectors(str(write_text(tmp_path / "chars.vec")), width=3)
    assert vectors.strings == list(ROWS)
    assert vectors.table.dtype == np.float32
    np.testing.assert_array_equal(vectors.table, np.asarray(list(ROWS.values()), dtype=np.float32))
    assert vectors.table.shape == (3, 3)


# Duplicates, normalisation, choice


def test_first_of_several_rows_for_a_string_wins_and_the_warning_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("a 1 2\nb 3 4\na 5 6\nb 7 8\na 9 9\n", encoding="utf8")
    with pytest.warns(UserWarning, match=r"chars\.vec: 3 rows repeat .* 'a' in line 3\.") as caught:
        vectors = read_vectors(path)
    assert vectors.strings == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [3, 4]]
    assert caught[0].filename == __file__


def test_strings_that_become_equal_by_normalisation_are_merged_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "chars.vec"
    path.write_text("3 1 2\n7 3 4\nA 5 6\na 7 8\n", encoding="utf8")
    vectors = read_vectors(path, normalise=Normaliser(digits=True, lower=True))
    assert vectors.strings == ["0", "a"]
    assert vectors.table.tolist() == [[1, 2], [5, 6]]


def test_keep_sees_normalised_strings(tmp_path: Path) -> None:
    vectors = read_vectors(write_text(tmp_path / "v"), normalise=Normaliser(), keep={"0", "国"}.__contains__)
    assert vectors.strings == ["国", "0"]
    assert vectors.table.tolist() == [[1.0, 0.0, -0.5], [7.0, 8.0, 9.0]]


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


def test_key_without_a_string_is_left_out_with_a_warning(tmp_path: Path) -> None:
    nlp = make_pipeline()
    nlp.vocab.vectors.add(123456789, vector=np.ones(3, dtype=np.float32))
    nlp.to_disk(tmp_path)
    with pytest.warns(UserWarning, match="1 rows were left out"):
        vectors = read_vectors(tmp_path)
    assert set(vectors.strings) == set(ROWS)


def test_directory_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"without spaCy vectors.*spacy init vectors"):
        read_vectors(tmp_path)


def test_pipeline_with_an_empty_table_is_refused(tmp_path: Path) -> None:
    spacy.blank("zh").to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"vocab without vectors.*spacy init vectors"):
        read_vectors(tmp_path)


def test_value_that_is_not_finite_names_the_string_of_a_directory(tmp_path: Path) -> None:
    make_pipeline({"好": [1, 2, 3], "坏": [1, float("nan"), 3]}).to_disk(tmp_path)
    with pytest.raises(ValueError, match="'坏' is not finite"):
        read_vectors(tmp_path)


# Refusals that all sources share


def test_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.vec: there are no vectors: No such file"):
        read_vectors(tmp_path / "nowhere.vec")


# Models that compute vectors

SENTENCES = [["北京", "大学", "在", "北京"], ["上海", "大学", "在", "上海"]] * 5


@pytest.fixture
def floret(tmp_path: Path) -> tuple[Path, Vocab]:
    vocab = Vocab()
    data = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    vocab.vectors = SpacyVectors(data=data, strings=vocab.strings, mode="floret", minn=1, maxn=2, hash_count=2)
    vocab.to_disk(tmp_path / "floret")
    return tmp_path / "floret", vocab


@pytest.fixture(scope="module")
def fasttext(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    model = FastText(SENTENCES, vector_size=4, min_count=1, min_n=1, max_n=2, bucket=50, epochs=1, workers=1, seed=1)
    path = tmp_path_factory.mktemp("fasttext") / "model.bin"
    save_facebook_model(model, str(path))
    return path, model.wv


# floret


def test_floret_rows_are_computed_for_the_strings_asked_for(floret: tuple[Path, Vocab]) -> None:
    path, vocab = floret
    vectors = read_vectors(path, strings=["北京", "京", "北京", "no such word"], width=3)
    assert vectors.strings == ["北京", "京", "no such word"]
    assert vectors.table.dtype == np.float32
    for string, row in zip(vectors.strings, vectors.table, strict=True):
        np.testing.assert_allclose(row, vocab.get_vector(string), rtol=1e-6)


def test_floret_strings_are_normalised_and_chosen_like_any_others(floret: tuple[Path, Vocab]) -> None:
    path, vocab = floret
    vectors = read_vectors(path, strings=["T1", "T2", "x", ""], normalise=Normaliser(lower=True), keep="t0".__eq__)
    assert vectors.strings == ["t0"]
    # The row of the string as it was asked for, as a file's row is that of the string as it is written there.
    np.testing.assert_allclose(vectors.table, [vocab.get_vector("T1")], rtol=1e-6)


def test_floret_rows_for_no_string_are_an_empty_table_of_the_right_width(floret: tuple[Path, Vocab]) -> None:
    vectors = read_vectors(floret[0], strings=[])
    assert vectors.strings == []
    assert vectors.table.shape == (0, 3)


def test_floret_vectors_without_strings_to_compute_are_refused_with_the_remedy(floret: tuple[Path, Vocab]) -> None:
    with pytest.raises(ValueError, match=r"no vocabulary.*default mode.*words of a lexicon"):
        read_vectors(floret[0])


def test_table_of_floret_is_refused_with_the_command_that_makes_a_directory_of_it(tmp_path: Path) -> None:
    path = tmp_path / "zh.floret"
    path.write_text("2 3 1 2 2 2166136261 < >\n0 1 2 3\n1 4 5 6\n")
    with pytest.raises(ValueError, match=r"init vectors LANG zh\.floret DIRECTORY --mode floret"):
        read_vectors(path, strings=["北京"])


# fastText


def test_strings_of_a_fasttext_model_have_the_rows_that_it_gives_them(fasttext: tuple[Path, Any]) -> None:
    path, known = fasttext
    vectors = read_vectors(path, width=4)
    assert vectors.strings == known.index_to_key
    np.testing.assert_allclose(vectors.table, [known[string] for string in vectors.strings], rtol=1e-5)


def test_fasttext_computes_rows_for_other_strings_that_are_asked_for(fasttext: tuple[Path, Any]) -> None:
    path, known = fasttext
    vectors = read_vectors(path, strings=["北京", "北大", ""])
    assert vectors.strings == [*known.index_to_key, "北大"]
    np.testing.assert_allclose(vectors.table[-1], known["北大"], rtol=1e-5)


def test_only_wanted_rows_of_a_fasttext_model_are_computed(fasttext: tuple[Path, Any]) -> None:
    vectors = read_vectors(fasttext[0], strings=["北大"], keep={"上海", "北大"}.__contains__)
    assert vectors.strings == ["上海", "北大"]


def test_value_that_is_not_finite_names_the_string_of_a_fasttext_model(tmp_path: Path) -> None:
    model = FastText(SENTENCES, vector_size=4, min_count=1, min_n=1, max_n=1, bucket=50, epochs=1, workers=1)
    model.wv.vectors_vocab[model.wv.key_to_index["大学"]] = np.inf
    save_facebook_model(model, str(tmp_path / "model.bin"))
    with pytest.raises(ValueError, match="'大学' is not finite"):
        read_vectors(tmp_path / "model.bin")


def test_damaged_fasttext_model_is_refused_with_the_remedy(fasttext: tuple[Path, Any], tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(fasttext[0].read_bytes()[:100])
    with pytest.raises(ValueError, match=r"cut\.bin: the fastText model cannot be read.*\.vec file"):
        read_vectors(path)


def test_fasttext_model_without_gensim_is_refused_with_both_remedies(
    fasttext: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models.fasttext", None)
    with pytest.raises(ValueError, match=r"pip install .gensim.*\.vec file"):
        read_vectors(fasttext[0])


# Widths


@pytest.mark.parametrize("source", ["word2vec", "glove", "directory", "floret", "fasttext"])
def test_wrong_width_names_both_widths_and_the_remedy(
    tmp_path: Path, source: str, floret: tuple[Path, Vocab], fasttext: tuple[Path, Any]
) -> None:
    path = {"floret": floret[0], "fasttext": fasttext[0]}.get(source, tmp_path / source)
    if source == "directory":
        make_pipeline().to_disk(path)
    elif source in ("word2vec", "glove"):
        write_text(path)
    if source == "glove":
        path.write_text(path.read_text(encoding="utf8").partition("\n")[2], encoding="utf8")
    own = 4 if source == "fasttext" else 3
    with pytest.raises(
        ValueError, match=rf"width {own}, but width 50 is wanted\. Set the width in the config to {own}"
    ):
        read_vectors(path, width=50, strings=["北京"])


# Forms


def correlated(n: int, width: int) -> np.ndarray:
    """Rows with a large mean, in which one direction has a hundred times the deviation of the others."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(n, width)) + rng.normal(size=(n, 1)) * 100 * rng.normal(size=width)
    return (table + 30 * rng.normal(size=width)).astype("float32")


def test_whitened_rows_have_no_mean_and_vary_equally_and_independently() -> None:
    table = whitened(correlated(4000, 12))
    assert table.dtype == np.float32
    np.testing.assert_allclose(table.mean(0), np.zeros(12), atol=1e-3)
    np.testing.assert_allclose(np.cov(table.T, bias=True), np.eye(12), atol=1e-2)


def test_of_all_whitenings_it_is_the_one_that_turns_nothing() -> None:
    """Where columns are independent, each is only scaled."""
    rng = np.random.default_rng(1)
    columns, _ = np.linalg.qr(rng.normal(size=(500, 8)))
    columns, _ = np.linalg.qr(columns - columns.mean(0))
    scales = np.array([3.0, 1.0, 0.5, 2.0, 9.0, 0.1, 1.0, 1.0])
    centred = columns - columns.mean(0)
    np.testing.assert_allclose(whitened(columns * scales + 5.0), centred / centred.std(0), atol=0.05)


def test_unrelated_rows_that_shared_a_direction_are_unrelated_after_it() -> None:
    raw = prepared(correlated(2000, 12), whiten=False, unit_length=True)
    white = prepared(correlated(2000, 12), whiten=True, unit_length=True)
    assert np.abs(raw[:1000] @ raw[1000:].T).mean() > 0.6
    assert np.abs(white[:1000] @ white[1000:].T).mean() < 0.3


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("whiten", [False, True])
def test_few_rows_stay_finite(n: int, whiten: bool) -> None:
    table = prepared(correlated(n, 6), whiten=whiten, unit_length=True)
    assert table.shape == (n, 6)
    assert np.isfinite(table).all()
    # In the directions in which few rows do not vary there is nothing.
    assert np.linalg.matrix_rank(whitened(correlated(n, 6)), tol=1e-2) == max(n - 1, 0)


def test_rows_are_scaled_to_unit_length_only_where_that_is_asked_for() -> None:
    table = correlated(50, 6)
    np.testing.assert_array_equal(prepared(table, whiten=False, unit_length=False), table)
    for whiten in (False, True):
        lengths = np.linalg.norm(prepared(table, whiten=whiten, unit_length=True), axis=1)
        np.testing.assert_allclose(lengths, np.ones(50), rtol=1e-5)
    white = np.linalg.norm(prepared(table, whiten=True, unit_length=False), axis=1)
    assert white.std() > 0.1


def test_a_row_of_zeros_is_not_divided_by_its_length() -> None:
    np.testing.assert_array_equal(
        prepared(np.zeros((2, 3), "float32"), whiten=False, unit_length=True), np.zeros((2, 3))
    )
