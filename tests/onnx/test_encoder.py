"""ONNX encoders: features of single texts, batches and windows, and errors of files, inputs and vocabularies."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import spacy
from onnxruntime.quantization import QuantType, quantize_dynamic
from small_encoders import CHARACTERS, VOCABULARY, WIDTH, mean_encoder, recurrent_encoder, save, save_tokenizer
from spacy.tokens import Doc

from spacy_tener.errors import MissingPackageError, UserError
from spacy_tener.onnx import encoder as module
from spacy_tener.onnx.encoder import Encoder
from spacy_tener.onnx.sources import onnx_encoder
from spacy_tener.pipeline.tokenizer import doc_of_characters

VOCAB = spacy.blank("zh").vocab
RNG = np.random.default_rng(0)
TEXTS = [
    "吴重阳在中国银行工作。",
    "京",
    "今天天气很好，北京也很好" * 7,
    "王小明去了上海",
    "南京大学" * 20,
    "㐀㐀",
    "李华",
]


def characters(text: str) -> Doc:
    return doc_of_characters(VOCAB, list(text), [False] * len(text))


def table_of(model: onnx.ModelProto) -> np.ndarray:
    return onnx.numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "table"))


@pytest.fixture
def encoders(tmp_path):
    """An encoder with masks, another with lengths, and the first in int8 with dynamic quantization per batch."""
    paths = {
        "mean": save(tmp_path / "mean", mean_encoder()),
        "recurrent": save(tmp_path / "recurrent", recurrent_encoder()),
    }
    paths["int8"] = tmp_path / "mean" / "int8.onnx"
    quantize_dynamic(paths["mean"], paths["int8"], weight_type=QuantType.QInt8)
    return {name: onnx_encoder(path)() for name, path in paths.items()}


@pytest.mark.parametrize("name", ["mean", "recurrent", "int8"])
def test_features_do_not_depend_on_batch(encoders, name):
    encoder, docs = encoders[name], [characters(text) for text in TEXTS]
    alone = [encoder([doc]) for doc in docs]
    for _ in range(5):
        order = RNG.permutation(len(docs))
        together = np.split(encoder([docs[i] for i in order]), np.cumsum([len(docs[i]) for i in order])[:-1])
        for i, rows in zip(order, together, strict=True):
            np.testing.assert_allclose(rows, alone[i], atol=1e-5)
    assert np.abs(alone[0]).sum() > 0.1


def test_features_equal_numpy_computation(encoders):
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in mean_encoder().graph.initializer}
    rows = tensors["table"][[VOCABULARY.index(character) for character in TEXTS[0]]]
    expected = (rows + rows.mean(axis=0) + tensors["kinds"][0]) @ tensors["matrix"]
    np.testing.assert_allclose(encoders["mean"]([characters(TEXTS[0])]), expected, atol=1e-5)


def test_token_features_are_mean_over_characters(encoders):
    words = Doc(VOCAB, words=["吴重阳", "在", "中国"], spaces=[False, True, False])
    rows = encoders["recurrent"]([characters("吴重阳在 中国")])
    expected = [rows[:3].mean(axis=0), rows[3], rows[5:].mean(axis=0)]
    np.testing.assert_allclose(encoders["recurrent"]([words]), expected, atol=1e-6)


def test_subword_input_has_special_tokens(tmp_path):
    path = save(tmp_path, mean_encoder(9))
    save_tokenizer(tmp_path)
    encoder = onnx_encoder(path, outputs=["rows"])()
    table = table_of(mean_encoder(9))
    doc = Doc(VOCAB, words=["New", " ", "Yorkers", "IN", "é"], spaces=[True, False, True, True, False])
    expected = [table[4], np.zeros(WIDTH), table[[5, 6, 7]].mean(axis=0), table[8], table[1]]
    np.testing.assert_allclose(encoder([doc]), expected, atol=1e-6)
    assert encoder.subword_tokenizer([doc]).ids.tolist() == [2, 4, 5, 6, 7, 8, 1, 3]
    assert encoder.requirements == ["onnxruntime>=1.19", "tokenizers>=0.19"]


def test_multiple_graph_outputs_are_concatenated(encoders, tmp_path):
    encoder = onnx_encoder(save(tmp_path / "two", mean_encoder()), outputs=["rows", "states"])()
    doc = characters(TEXTS[0])
    rows = table_of(mean_encoder())[[VOCABULARY.index(character) for character in TEXTS[0]]]
    np.testing.assert_allclose(encoder([doc]), np.hstack([rows, encoders["mean"]([doc])]), atol=1e-6)
    assert encoder.width == 2 * WIDTH


def test_long_text_is_split_into_windows(tmp_path):
    encoder = onnx_encoder(save(tmp_path, mean_encoder()), outputs=["rows"], window=100, overlap=20)()
    text = "".join(RNG.choice(list(CHARACTERS), 100_000))
    expected = table_of(mean_encoder())[[VOCABULARY.index(character) for character in text]]
    np.testing.assert_array_equal(encoder([characters(text)]), expected)
    assert encoder.subword_tokenizer([characters(text)]).lengths.max() == 100


def test_unknown_characters_spaces_and_empty_text_are_encoded(encoders):
    encoder = encoders["recurrent"]
    texts = ["㐀𠀀é", " ", "\n\n", ""]
    assert encoder([characters(text) for text in texts]).shape == (6, WIDTH)
    assert encoder([characters("")]).shape == (0, WIDTH)
    np.testing.assert_array_equal(encoder([characters("㐀")]), encoder([characters("𠀀")]))


def test_copies_and_pickles_give_same_features(encoders):
    for encoder in encoders.values():
        expected = encoder([characters(TEXTS[0])])
        saved = Encoder.from_parts(encoder.to_parts())
        for copied in (saved, pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
            np.testing.assert_array_equal(copied([characters(TEXTS[0])]), expected)
            assert copied.description == encoder.description
    assert set(encoders["mean"].description) == {"name", "origin", "licence", "digest"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_encoder_works_in_threads_and_forked_processes(encoders, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    encoder = pickle.loads(pickle.dumps(encoders["mean"]))  # has no session yet
    docs = [characters(text) for text in TEXTS]
    expected = [encoders["mean"]([doc]) for doc in docs]

    def is_right(seed):
        order = np.random.default_rng(seed).permutation(len(docs))
        return all(np.array_equal(encoder([docs[index]]), expected[index]) for index in order)

    with ThreadPoolExecutor(4) as pool:
        results = pool.map(is_right, range(40))
        process = os.fork()
        if not process:
            signal.alarm(60)  # ends the process if it is blocked by a lock of a thread
            os._exit(0 if is_right(0) and module.count_threads() == 1 else 1)
        assert all(results)
    assert os.waitpid(process, 0)[1] == 0
    assert module.count_threads() == 2


def test_encoder_works_after_error(encoders):
    encoder, doc = encoders["recurrent"], characters(TEXTS[0])
    expected = encoder([doc])
    assert_raises(lambda: encoder.rows(np.array([999]), np.array([1])), "cannot encode a text")
    np.testing.assert_array_equal(encoder([doc]), expected)


def assert_raises(make, *parts: str) -> None:
    with pytest.raises((UserError, MissingPackageError)) as caught:
        make()
    for part in parts:
        assert part in str(caught.value)


def test_invalid_settings_raise_error(tmp_path):
    path = save(tmp_path / "mean", mean_encoder())
    assert_raises(lambda: onnx_encoder()(), "path is not set")
    assert_raises(lambda: onnx_encoder(tmp_path / "none.onnx")(), "none.onnx", "No such file")
    assert_raises(
        lambda: onnx_encoder(path, window=20, overlap=10),
        "window must be at least 36 (twice the overlap plus 16 subword tokens); got 20",
    )
    assert_raises(lambda: onnx_encoder(path, outputs=["other"])(), "no output 'other'", "states", "rows")
    assert_raises(
        lambda: onnx_encoder(path, inputs={"ids": "other"})(), "no input 'other'", "input_ids, attention_mask"
    )
    assert_raises(lambda: onnx_encoder(path, inputs={"idx": "input_ids"})(), "'idx'", "ids, mask, types, lengths")
    assert_raises(lambda: onnx_encoder(path, inputs={"ids": "input_ids"})(), "unknown", "attention_mask")
    assert_raises(
        lambda: onnx_encoder(path, outputs=["count"])().width, "'count' has the shape (1, 1, 1) for an input of (1, 2)"
    )
    bare = tmp_path / "bare" / "encoder.onnx"
    bare.parent.mkdir()
    bare.write_bytes(path.read_bytes())
    assert_raises(lambda: onnx_encoder(bare)(), "no tokenizer.json or vocab.txt in its directory")
    (bare.parent / "vocab.txt").write_text("一\n二\n", encoding="utf8")
    assert_raises(lambda: onnx_encoder(bare)(), "vocab.txt", "[UNK]")
    (bare.parent / "vocab.txt").write_text("[UNK]\n#\n##\n一\n##ing\n", encoding="utf8")
    assert_raises(lambda: onnx_encoder(bare)(), "vocab.txt", "contains subword tokens, such as ##ing", "tokenizer.json")
    (bare.parent / "tokenizer.json").write_text("{}", encoding="utf8")
    assert_raises(lambda: onnx_encoder(bare)().width, "The tokenizer's file cannot be read")


def test_graph_input_is_found_by_shape_or_name(tmp_path):
    model = recurrent_encoder()
    model.graph.input[1].name = "n"
    encoder = onnx_encoder(save(tmp_path, model))()
    np.testing.assert_allclose(
        encoder([characters("京")]), encoder([characters("京"), characters("中国")])[:1], atol=1e-6
    )
    named = onnx_encoder(tmp_path / "encoder.onnx", inputs={"ids": "ids", "lengths": "n"})()
    np.testing.assert_array_equal(named([characters("中国")]), encoder([characters("中国")]))


def test_vocabulary_size_mismatch_raises_error(tmp_path):
    path = save(tmp_path, mean_encoder(rows=len(VOCABULARY) - 1))
    assert_raises(onnx_encoder(path), "cannot encode a text", f"ID of the vocabulary, {len(VOCABULARY) - 1}")


def test_unsupported_opset_or_operator_raises_error(tmp_path):
    model = mean_encoder()
    model.opset_import[0].version = 99
    assert_raises(onnx_encoder(save(tmp_path, model)), "Opset 99 is under development", "update onnxruntime")
    model = mean_encoder()
    model.graph.node[-1].op_type = "NoSuchOperator"
    assert_raises(onnx_encoder(save(tmp_path, model)), "cannot be loaded by onnxruntime", "NoSuchOperator")


def test_missing_or_old_onnxruntime_raises_error(tmp_path, monkeypatch):
    path = save(tmp_path, mean_encoder())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert_raises(onnx_encoder(path), "onnxruntime, which is not installed", "pip install")
    monkeypatch.undo()
    monkeypatch.setattr("onnxruntime.__version__", "1.9.0")
    assert_raises(onnx_encoder(path), "needs onnxruntime>=1.19, but 1.9.0 is installed")


def test_missing_tokenizers_package_raises_error(tmp_path, monkeypatch):
    path = save(tmp_path, mean_encoder(9))
    save_tokenizer(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert_raises(onnx_encoder(path), "tokenizers, which is not installed")
