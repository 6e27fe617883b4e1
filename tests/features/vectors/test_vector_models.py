"""Reading vectors that are computed from the pieces of a string: floret's and fastText's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import FastText
from gensim.models.fasttext import save_facebook_model
from spacy.vectors import Vectors as SpacyVectors
from spacy.vocab import Vocab

from spacy_tener.features.normalise import Normaliser
from spacy_tener.features.vectors.vectors import read_vectors

SENTENCES = [["北京", "大学", "在", "北京"], ["上海", "大学", "在", "上海"]] * 5


@pytest.fixture(autouse=True)
def _no_warning_goes_unseen() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


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
    assert vectors.report.rows_read == 3


def test_floret_strings_are_normalised_and_chosen_like_any_others(floret: tuple[Path, Vocab]) -> None:
    path, vocab = floret
    vectors = read_vectors(path, strings=["T1", "T2", "x", ""], normalise=Normaliser(lower=True), keep="t0".__eq__)
    assert vectors.strings == ["t0"]
    assert (vectors.report.merged, vectors.report.left_out) == (1, 1)
    # The row of the string as it was asked for, as a file's row is that of the string as it is written there.
    np.testing.assert_allclose(vectors.table, [vocab.get_vector("T1")], rtol=1e-6)


def test_floret_rows_for_no_string_are_an_empty_table_of_the_right_width(floret: tuple[Path, Vocab]) -> None:
    vectors = read_vectors(floret[0], strings=[])
    assert vectors.strings == []
    assert vectors.table.shape == (0, 3)


def test_floret_vectors_without_strings_to_compute_are_refused_with_the_remedy(floret: tuple[Path, Vocab]) -> None:
    with pytest.raises(ValueError, match=r"no list of them.*words of a lexicon.*default mode"):
        read_vectors(floret[0])


def test_width_of_floret_vectors_is_checked(floret: tuple[Path, Vocab]) -> None:
    with pytest.raises(ValueError, match="width 3, but width 50 is wanted"):
        read_vectors(floret[0], strings=["北京"], width=50)


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
    assert vectors.report.left_out == len(set(fasttext[1].index_to_key) - {"上海"})


def test_width_of_a_fasttext_model_is_checked(fasttext: tuple[Path, Any]) -> None:
    with pytest.raises(ValueError, match="width 4, but width 50 is wanted"):
        read_vectors(fasttext[0], width=50)


def test_value_that_is_not_finite_names_the_string_of_a_fasttext_model(tmp_path: Path) -> None:
    model = FastText(SENTENCES, vector_size=4, min_count=1, min_n=1, max_n=1, bucket=50, epochs=1, workers=1)
    model.wv.vectors_vocab[model.wv.key_to_index["大学"]] = np.inf
    save_facebook_model(model, str(tmp_path / "model.bin"))
    with pytest.raises(ValueError, match="'大学' is not finite"):
        read_vectors(tmp_path / "model.bin")


def test_damaged_fasttext_model_is_refused_with_the_remedy(fasttext: tuple[Path, Any], tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(fasttext[0].read_bytes()[:100])
    with pytest.raises(ValueError, match=r"cut\.bin is a fastText model that cannot be read.*\.vec file"):
        read_vectors(path)


def test_fasttext_model_without_gensim_is_refused_with_both_remedies(
    fasttext: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models.fasttext", None)
    with pytest.raises(ValueError, match=r"spacy_tener\[vectors\].*\.vec file"):
        read_vectors(fasttext[0])
