"""Static vectors: words alone through an encoder, against its plain form, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_encoders
import torch
from spacy.tokens import Doc
from spacy.vocab import Vocab
from tiny_transformer import WIDTH, save_tiny_transformer

from spacy_tener.errors import RemedyError
from spacy_tener.features.vectors import Vectors, read_vectors
from spacy_tener.onnx.sources import onnx_encoder
from spacy_tener.workbench.static_vectors import WordEncoder, select_words, write_static_vectors

WORDS = ["工作", "中国", "银行", "上海", "john", "smiths", "2023", "iphone", "很好", "今天", "acme", "york"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_transformer(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(bert: Path) -> WordEncoder:
    return WordEncoder(str(bert), [0, 1])


def states_of(folder: Path, layers: Sequence[int]) -> Any:
    """The mean of each word's pieces and of some layers, one word at a time."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        read = [model(**tokenizer(word, return_tensors="pt"), output_hidden_states=True) for word in WORDS]
    return np.array([np.mean([each.hidden_states[i][0, 1:-1].mean(0).numpy() for i in layers], 0) for each in read])


def similarities(rows: Any) -> Any:
    centred = rows - rows.mean(axis=0)
    return centred @ centred.T


def written(path: Path, encoder: WordEncoder, width: int = 11) -> Vectors:
    write_static_vectors(encoder, WORDS, width, path)
    return read_vectors(path, width=width)


@pytest.mark.parametrize("layers", [[1], [0, 2], [1, 2]])
def test_words_alone_have_the_mean_of_their_pieces_in_the_layers(bert: Path, layers: list[int], tmp_path: Path) -> None:
    vectors = written(tmp_path / "static.vec", WordEncoder(str(bert), layers))
    assert vectors.strings == WORDS
    # Twelve points have eleven directions, so that nothing is lost but the rounding to 16 bits.
    np.testing.assert_allclose(similarities(vectors.table), similarities(states_of(bert, layers)), rtol=0.02, atol=0.02)


def test_the_components_are_those_of_most_variance(bert: Path, encoder: WordEncoder, tmp_path: Path) -> None:
    states = states_of(bert, [0, 1])
    variances = np.linalg.svd(states - states.mean(axis=0), compute_uv=False) ** 2
    count, share = write_static_vectors(encoder, WORDS, 3, tmp_path / "static.vec")
    assert (count, share) == (len(WORDS), pytest.approx(variances[:3].sum() / variances.sum(), abs=0.01))


def test_words_have_the_first_output_of_an_onnx_file(tmp_path: Path) -> None:
    path = small_encoders.save(tmp_path, small_encoders.mean_encoder())
    words = [*small_encoders.CHARACTERS[:20], "王小明"]
    encoder = onnx_encoder(path)()
    docs = [Doc(Vocab(), words=[word], spaces=[False]) for word in words]
    np.testing.assert_allclose(WordEncoder(str(path), [])(words), encoder(docs), atol=1e-6)


def test_a_word_that_the_encoder_cannot_read_is_left_out(encoder: WordEncoder, tmp_path: Path) -> None:
    count, _ = write_static_vectors(encoder, [*WORDS, "\u200b"], 4, tmp_path / "static.vec")
    assert count == len(WORDS)
    assert read_vectors(tmp_path / "static.vec").strings == WORDS


def test_words_are_distinct_and_without_white_space() -> None:
    assert select_words(["b", "a", "b", "", "c d", "\u3000", "\0", "e", "f"], 3) == ["b", "a", "e"]


@pytest.mark.parametrize(
    ("words", "width", "message"),
    [
        ([], 4, "There are no words"),
        (WORDS[:3], 4, "3 words with 16 features have no 4 principal components"),
        (WORDS, 17, f"12 words with {WIDTH} features have no 17"),
    ],
)
def test_what_has_no_components_is_refused(
    encoder: WordEncoder, tmp_path: Path, words: list[str], width: int, message: str
) -> None:
    with pytest.raises(RemedyError, match=message):
        write_static_vectors(encoder, words, width, tmp_path / "static.vec")
    assert not list(tmp_path.iterdir())


def test_layers_that_an_encoder_lacks_are_refused(bert: Path) -> None:
    with pytest.raises(RemedyError, match="layers must be at most 2"):
        WordEncoder(str(bert), [1, 3])
