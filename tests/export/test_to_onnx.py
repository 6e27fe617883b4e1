"""Test the conversion of transformers in trained pipelines to ONNX: equal features and entities, and errors."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import spacy
import torch
from command_line import run_tener
from small_corpora import rule_pipeline
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs, trained
from tiny_transformer import save_tiny_transformer

from spacy_tener.errors import MissingPackageError, UserError
from spacy_tener.export import transformer_to_onnx_torch as to_onnx_module
from spacy_tener.export.transformer_to_onnx_torch import changed_entities, to_onnx

pytestmark = pytest.mark.integration

WORDS = ["Yorkers", " ", "joined", "acme,", "a.b.c.d", "吴重阳", "iphones"]
LONG = "今天天气很好。" * 60


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    return save_tiny_transformer(path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def transformer(name, **settings):
    return {"@architectures": "spacy_tener.TransformerEmbed.v1", "name": str(name), "dropout": 0.0, **settings}


def initialized(tok2vec, **settings):
    nlp = pipeline(tok2vec, **settings)
    examples = examples_of(nlp)
    nlp.initialize(lambda: examples)
    return nlp


def rows(nlp, docs):
    return np.concatenate(nlp.get_pipe("tener_ner").model.get_ref("tok2vec").predict(docs))


@pytest.mark.parametrize(
    "settings", [{}, {"pooling": "first", "layers": 2}, {"frozen": True, "window": 30, "overlap": 7}], ids=str
)
def test_converted_features_equal_torch(settings, tiny, tmp_path):
    nlp = initialized(transformer(tiny, **settings))
    docs = [
        spacy.tokens.Doc(nlp.vocab, words=WORDS),
        *map(nlp.make_doc, ["", "京", LONG, *(text for text, _ in TEXTS)]),
    ]
    expected = rows(nlp, docs)
    to_onnx(nlp, "float32")
    nlp.to_disk(tmp_path / "converted")
    for converted in (nlp, spacy.load(tmp_path / "converted")):
        np.testing.assert_allclose(rows(converted, docs), expected, atol=1e-4)
    assert not {"torch", "transformers"} & {requirement.split(">")[0] for requirement in converted.meta["requirements"]}
    assert {"onnxruntime>=1.19", "tokenizers>=0.19"} <= set(converted.meta["requirements"])
    config = converted.config["components"]["tener_ner"]["model"]["tok2vec"]
    assert config["@architectures"] == "spacy_tener.OnnxEmbed.v1"
    wanted = {"pooling": "mean", "window": 512, "overlap": 64, **settings}
    assert all(config["encoder"][name] == wanted[name] for name in ("pooling", "window", "overlap"))


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlanguage: zh\nlicense: apache-2.0\ntags:\n- bert\n---\n# BERT\nlicense: mit", "apache-2.0"),
        ("---\r\nlicense: 'cc-by-4.0'\r\n---\r\n", "cc-by-4.0"),
        ("---\nlanguage: zh\n---\nlicense: mit", "unknown"),
        ("license: mit", "unknown"),
        (None, "unknown"),
    ],
)
def test_meta_contains_licence_of_model_card(card, licence, tmp_path):
    path = save_tiny_transformer(tmp_path / "bert-tiny")
    if card is not None:
        (path / "README.md").write_text(card, encoding="utf8", newline="")
    nlp = initialized(transformer(path))
    nlp.to_disk(tmp_path / "trained")
    loaded = spacy.load(tmp_path / "trained")
    to_onnx(loaded, "float32")
    (encoder,) = loaded.meta["encoders"]
    assert (encoder["name"], encoder["origin"], encoder["licence"]) == ("bert, float32", "bert-tiny", licence)


def test_conversion_replaces_only_transformer(tiny, tmp_path):
    tok2vec = small_tok2vecs(tmp_path)["TENER"]
    joined = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": tok2vec["embed"], "second": transformer(tiny)}
    nlp = initialized({**tok2vec, "embed": joined})
    docs = [nlp.make_doc(text) for text, _ in TEXTS]
    expected = rows(nlp, docs)
    to_onnx(nlp, "float32")
    copy = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
    np.testing.assert_allclose(rows(copy, docs), expected, atol=1e-4)


def test_int8_predicts_equal_entities_in_any_batch():
    nlp = spacy.load(trained("converted"))
    docs = [nlp.make_doc(text) for text, _ in TEXTS]
    alone = np.concatenate([rows(nlp, [doc]) for doc in docs])
    np.testing.assert_allclose(rows(nlp, docs), alone, atol=1e-5)
    assert [
        [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in nlp.pipe(t for t, _ in TEXTS)
    ] == [entities for _, entities in TEXTS]
    [encoder] = nlp.meta["encoders"]
    assert (encoder["name"], len(encoder["digest"])) == ("bert, int8", 64)


def test_shared_tok2vec_is_converted_for_listeners(tiny):
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": transformer(tiny)})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
    nlp.add_pipe("tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": listener}})
    examples = examples_of(nlp)
    nlp.initialize(lambda: examples)
    before = [
        decoding.entropy
        for decoding in nlp.get_pipe("tener_ner").decode(nlp.pipe([TEXTS[0][0]], disable=["tener_ner"]))
    ]
    to_onnx(nlp, "float32")
    again = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
    for candidate in (nlp, again):
        after = [
            decoding.entropy
            for decoding in candidate.get_pipe("tener_ner").decode(candidate.pipe([TEXTS[0][0]], disable=["tener_ner"]))
        ]
        np.testing.assert_allclose(after, before, atol=1e-3)


def test_disabled_component_is_converted(tiny):
    nlp = initialized(transformer(tiny))
    nlp.disable_pipe("tener_ner")
    to_onnx(nlp, "float32")
    assert not [node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "transformer_embed"]
    assert "onnxruntime>=1.19" in nlp.meta["requirements"]


def test_changed_entities_are_reported():
    old, new = (rule_pipeline(PER="李华", ORG=organisation) for organisation in ("大学", "北京大学"))
    same, changed = changed_entities(old, new, ["李华在北京大学", "李华"])
    assert same == 2
    assert changed == [("new", "ORG", "北京大学"), ("old", "ORG", "大学")]


def test_spancat_entities_are_compared():
    sides = []
    for threshold in (0.0, 1.0):
        nlp = spacy.blank("zh")
        nlp.add_pipe("spancat", config={"threshold": threshold}).add_label("PER")
        nlp.initialize()
        sides.append(nlp)
    same, changed = changed_entities(*sides, ["李华"])
    assert (same, sorted(changed)) == (0, [("old", "PER", text) for text in ("华", "李", "李华")])


def test_trim_command_converts_and_compares(tiny, tmp_path):
    nlp = initialized(transformer(tiny))
    nlp.to_disk(tmp_path / "old")
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    (tmp_path / "raw.txt").write_text("\n".join(text for text, _ in TEXTS), encoding="utf8")
    arguments = (tmp_path / "old", tmp_path / "raw.txt", "--onnx", "int8")
    ran = run_tener("trim", *arguments, "-o", tmp_path / "new")
    assert ran.code == 0, ran.text
    assert "8 texts: " in ran.text
    assert {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()} == before
    invalid_arguments = [
        ("convert the transformer with --onnx", *arguments[:2], "-o", tmp_path / "newer"),
        ("exists already", *arguments, "-o", tmp_path / "new"),
        ("--half: has no effect with --onnx", *arguments, "-o", tmp_path / "newer", "--half"),
        ("The pipeline has no transformer", tmp_path / "new", *arguments[1:], "-o", tmp_path / "newer"),
    ]
    for message, *words in invalid_arguments:
        ran = run_tener("trim", *words)
        assert ran.code
        assert message in ran.text


def test_overwritten_pipeline_is_compared(tiny, tmp_path, monkeypatch):
    initialized(transformer(tiny)).to_disk(tmp_path / "model")
    (tmp_path / "raw.txt").write_text("李华", encoding="utf8")
    compared = []
    monkeypatch.setattr(
        to_onnx_module, "changed_entities", lambda old, new, texts: compared.extend([old, new]) or (0, [])
    )
    ran = run_tener("trim", tmp_path / "model", tmp_path / "raw.txt", "--onnx", "int8", "-o", tmp_path / "model", "-F")
    assert ran.code == 0, ran.text
    with_transformer = [
        any(node.name == "transformer_embed" for node in nlp.get_pipe("tener_ner").model.walk()) for nlp in compared
    ]
    assert with_transformer == [True, False]


def assert_conversion_fails(nlp, *parts, error=UserError):
    with pytest.raises(error) as caught:
        to_onnx(nlp, "int8")
    for part in parts:
        assert part in str(caught.value)


def test_shared_transformer_raises_error():
    nlp = spacy.blank("zh")
    nlp.add_pipe("transformer")
    assert_conversion_fails(nlp, "'transformer' is a shared transformer", "overlay transformer")


def test_missing_packages_raise_error(tiny, monkeypatch):
    nlp = initialized(transformer(tiny))
    for package in ("onnx", "onnxruntime"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, package, None)
            assert_conversion_fails(nlp, f"the package {package}, ", "pip install", error=MissingPackageError)


class LengthDependent(torch.nn.Module):
    """A layer that the exporter converts for a single length only."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + float(rows.shape[1])


class Unsupported(torch.nn.Module):
    """A layer without an ONNX operator."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(rows)[0] @ rows


@pytest.mark.parametrize(
    ("layer", "reason"), [(LengthDependent(), "from those of torch"), (Unsupported(), "linalg_svd")]
)
def test_unsupported_layer_raises_error(layer, reason, tiny):
    nlp = initialized(transformer(tiny))
    module = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").shims[0].module
    module.transformer.embeddings.LayerNorm = torch.nn.Sequential(module.transformer.embeddings.LayerNorm, layer)
    assert_conversion_fails(nlp, reason, "conversion was tested: torch 2.13", "with torch")
