"""Pipelines on a GPU: training, new labels, rehearsal and probabilities. Saved pipelines predict the same on a CPU."""

from __future__ import annotations

import pytest
import spacy
from small_systems import TEXTS, examples_of, pipeline
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import use_ops
from tiny_transformer import save_tiny_transformer

from spacy_tener.nn.shim import TorchShim
from spacy_tener.optim.optimizers import Adam

pytestmark = pytest.mark.integration

SYSTEMS = ["TENER", "FLAT", "FLAT_ATSSA", "MECT", "GRN"]
LONG = "张三 在北京工作 李四" * 5


def devices(nlp):
    shims = [shim for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims]
    return {shim.device for shim in shims if isinstance(shim, TorchShim)}


def train(nlp, examples, steps=3):
    """Return the losses of training steps, and the optimizer."""
    optimizer = Adam(0.01)
    nlp.initialize(lambda: examples)
    return [nlp.update(examples, sgd=optimizer)["tener_ner"] for _ in range(steps)], optimizer


@pytest.mark.parametrize("name", SYSTEMS)
def test_pipeline_trained_on_gpu_predicts_same_on_cpu(name, tok2vecs, device):
    nlp = pipeline(tok2vecs[name])
    losses, optimizer = train(nlp, examples_of(nlp), steps=4)
    assert losses[-1] < losses[0]
    assert devices(nlp) == {device}
    texts = [text for text, _ in TEXTS] + [LONG, ""]
    with nlp.use_params(optimizer.averages):
        found = [doc.to_json()["ents"] for doc in nlp.pipe(texts)]
        data = nlp.to_bytes()
    with use_ops("numpy"):
        loaded = pipeline(tok2vecs[name]).from_bytes(data)
        assert {device.type for device in devices(loaded)} == {"cpu"}
        assert [doc.to_json()["ents"] for doc in loaded.pipe(texts)] == found


def test_model_stays_on_device_in_thread_with_numpy_ops(tok2vecs, device):
    nlp = pipeline(tok2vecs["TENER"])
    examples = examples_of(nlp)
    _, optimizer = train(nlp, examples)
    # Thinc's ops are stored in a context variable. In a new thread they are NumPy's.
    with use_ops("numpy"):
        examples += examples_of(nlp, [("许多新字在这篇文章里", [])])
        nlp.get_pipe("tener_ner").add_label("LOC")
        nlp.update(examples, sgd=optimizer)
        assert len(nlp(TEXTS[0][0]))
    assert devices(nlp) == {device}


@pytest.mark.parametrize("frozen", [False, True])
def test_joined_transformer_and_embedder_are_trained(frozen, tok2vecs, tmp_path, device):
    settings = {"name": str(save_tiny_transformer(tmp_path)), "frozen": frozen, "mixed_precision": "gpu"}
    transformer = {"@architectures": "spacy_tener.TransformerEmbed.v1", **settings}
    embed = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": tok2vecs["TENER"]["embed"], "second": transformer}
    nlp = pipeline({**tok2vecs["TENER"], "embed": embed})
    losses, _ = train(nlp, examples_of(nlp))
    assert losses[-1] < losses[0]
    assert [len(doc) for doc in nlp.pipe([text for text, _ in TEXTS])] == [len(text) for text, _ in TEXTS]
    assert devices(nlp) == {device}


def test_adding_label_and_rehearsal_stay_on_device(tok2vecs, device):
    nlp = pipeline(tok2vecs["TENER"], window=20, overlap=4, incorrect_spans_key="incorrect")
    examples = examples_of(nlp, [*TEXTS, (LONG, [(0, 2, "PER")])])
    reference = nlp.make_doc("李四在北京")
    reference.set_ents([Span(reference, 0, 2, "PER")], default="missing")
    reference.spans["incorrect"] = [Span(reference, 3, 5, "PER")]
    examples.append(Example(nlp.make_doc(reference.text), reference))
    _, optimizer = train(nlp, examples)
    nlp.get_pipe("tener_ner").add_label("LOC")
    examples += examples_of(nlp, [("新词都在这里", [(0, 1, "LOC")])])
    losses = [nlp.update(examples, sgd=optimizer)["tener_ner"] for _ in range(3)]
    assert losses[-1] < losses[0]
    assert nlp.rehearse(examples, sgd=nlp.resume_training())["tener_ner"] >= 0.0
    assert devices(nlp) == {device}


def test_probabilities_equal_cpu(tok2vecs, device):
    nlp = pipeline(tok2vecs["TENER"])
    train(nlp, examples_of(nlp), steps=6)
    texts = [text for text, _ in TEXTS] + [LONG, ""]

    def predictions(nlp):
        ner, docs = nlp.get_pipe("tener_ner"), [nlp.make_doc(text) for text in texts]
        decodings = list(ner.decode(docs))
        best = [sequence for decoding in decodings for sequence in decoding.k_best(3)]
        entities = [entity for decoding in decodings for entity in decoding.entities]
        values = [found.probability for found in (*best, *entities)] + [decoding.entropy for decoding in decodings]
        return values, [(entity.start, entity.end, entity.label) for entity in entities]

    values, entities = predictions(nlp)
    data = nlp.to_bytes()
    with use_ops("numpy"):
        expected_values, expected_entities = predictions(pipeline(tok2vecs["TENER"]).from_bytes(data))
    assert values == pytest.approx(expected_values, abs=1e-3)
    assert entities == expected_entities


# The emulated device does not support all CuPy functions that spacy-transformers calls.
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_joined_transformer_listener_and_embedder_are_trained(tok2vecs, tmp_path, device):
    nlp = spacy.blank("zh")
    model = {
        "@architectures": "spacy-transformers.TransformerModel.v3",
        "name": str(save_tiny_transformer(tmp_path)),
        "get_spans": {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 20, "stride": 15},
        "tokenizer_config": {"use_fast": True},
    }
    nlp.add_pipe("transformer", config={"model": model})
    pooling = {"@layers": "reduce_mean.v1"}
    second = {"@architectures": "spacy-transformers.TransformerListener.v1", "pooling": pooling}
    embed = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": tok2vecs["TENER"]["embed"], "second": second}
    tok2vec = {**tok2vecs["TENER"], "embed": embed}
    tagger = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": tok2vec}
    nlp.add_pipe("tener_ner", config={"model": tagger})
    losses, _ = train(nlp, examples_of(nlp), steps=6)
    assert losses[-1] < losses[0]
    assert devices(nlp) == {device}
    assert next(nlp.get_pipe("transformer").model.transformer.parameters()).device == device
    assert [len(doc) for doc in nlp.pipe([text for text, _ in TEXTS])] == [len(text) for text, _ in TEXTS]
