"""Test pipelines with a transformer, alone or in the embedder of all architectures: training and serialization."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import spacy
import torch
from small_systems import learn, pipeline
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import set_active_gpu, use_ops

from spacy_tener.errors import UserError
from spacy_tener.nn.shim import TorchShim
from spacy_tener.onnx.e5 import e5
from spacy_tener.optim.optimizers import SGD, Adam
from spacy_tener.requirements import TRANSFORMER

pytestmark = pytest.mark.integration

ARCHITECTURES = ["TENER", "FLAT", "FLAT_ATSSA", "MECT", "GRN"]
TEXT = "吴重阳在中国银行工作。"
LONG = "今天天气很好。" * 60 + TEXT


def transformer(name, **settings):
    return {"@architectures": "spacy_tener.TransformerEmbed.v1", "name": str(name), "dropout": 0.0, **settings}


def join_embedders(name, **settings):
    first = {"@architectures": "spacy_tener.CharEmbed.v1", "dropout": 0.0}
    return {"@architectures": "spacy_tener.JoinEmbed.v1", "first": first, "second": transformer(name, **settings)}


def train(nlp, examples, *, optimizer=None, steps=40):
    initial = learn(nlp, examples, steps=0)
    learn(nlp, examples, optimizer=optimizer or initial, steps=steps)


def parameters(nlp):
    """Return all torch parameters of tener_ner by name."""
    shims = [
        shim for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims if isinstance(shim, TorchShim)
    ]
    return {
        f"{i}.{name}": value.detach().clone()
        for i, shim in enumerate(shims)
        for name, value in shim.module.named_parameters()
    }


def changed_parameters(before, after):
    """Return the names of changed parameters: of the transformer, and of other layers."""
    names = {name for name, value in after.items() if not torch.equal(value, before[name])}
    inside = {name for name in names if ".transformer." in name}
    return inside, names - inside


def emissions(nlp, texts):
    return nlp.get_pipe("tener_ner").model.predict([nlp.make_doc(text) for text in texts])


def predict_entities(entities_of, nlp, texts):
    return [entities_of(doc) for doc in nlp.pipe(texts)]


@pytest.mark.parametrize(
    ("architecture", "frozen"), [("TENER", True), *((architecture, False) for architecture in ARCHITECTURES)]
)
def test_architectures_are_trained_and_saved_with_transformer(
    architecture, frozen, deterministic_transformer, tok2vecs, tmp_path, make_examples, sentences
):
    name = shutil.copytree(deterministic_transformer, tmp_path / "bert")
    # Without cache, because cached features differ in the last digits from those that a loaded pipeline computes.
    nlp = pipeline({**tok2vecs[architecture], "embed": join_embedders(name, frozen=frozen, cache=0)})
    examples, optimizer = make_examples(nlp), Adam(0.01, use_averages=False, rates={"transformer.*": 0.1})
    nlp.initialize(lambda: examples)
    losses = [nlp.update(examples, sgd=optimizer)["tener_ner"] for _ in range(5)]
    assert losses[-1] < 0.9 * losses[0]
    nlp.to_disk(tmp_path / "pipeline")
    assert set(TRANSFORMER) <= set(nlp.meta["requirements"])
    shutil.rmtree(name)
    texts = [text for text, _ in sentences]
    loaded = spacy.load(tmp_path / "pipeline")
    for rows, expected in zip(emissions(nlp, texts), emissions(loaded, texts), strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_transformer_alone_serves_as_tok2vec(deterministic_transformer, make_examples, sentences, entities_of):
    nlp = pipeline(transformer(deterministic_transformer))
    train(nlp, make_examples(nlp), optimizer=Adam(0.02, use_averages=False, rates={"transformer.*": 0.5}))
    assert predict_entities(entities_of, nlp, [text for text, _ in sentences]) == [
        entities for _, entities in sentences
    ]


@pytest.mark.parametrize("make", [Adam, SGD])
def test_transformer_has_separate_learning_rate(make, deterministic_transformer, tok2vecs, make_examples):
    steps = {}
    for factor in (0.0, 0.01, 1.0):
        spacy.util.fix_random_seed(0)
        nlp = pipeline({**tok2vecs["TENER"], "embed": join_embedders(deterministic_transformer)})
        examples = make_examples(nlp)
        nlp.initialize(lambda examples=examples: examples)
        before = parameters(nlp)
        nlp.update(examples, sgd=make(0.001, rates={"transformer.*": factor}))
        after = parameters(nlp)
        steps[factor] = {name: (after[name] - before[name]) for name in after}
        inside, others = changed_parameters(before, after)
        assert bool(inside) == (factor > 0)
        assert others
    for name, step in steps[1.0].items():
        scale = 0.01 if ".transformer." in name else 1.0
        torch.testing.assert_close(steps[0.01][name], scale * step, rtol=0.1, atol=1e-6)


def test_character_view_encodes_characters_of_words(deterministic_transformer, entities_of):
    nlp = pipeline(transformer(deterministic_transformer), view="characters")
    words = Doc(nlp.vocab, words=["吴重阳", "在", "中国银行", "工作", "2023", "。"], spaces=[False] * 6)
    examples = [Example.from_dict(words.copy(), {"entities": [(0, 3, "PER"), (4, 8, "ORG")]})]
    train(nlp, examples, optimizer=Adam(0.01, use_averages=False, rates={"transformer.*": 0.1}), steps=25)
    assert entities_of(nlp.get_pipe("tener_ner")(words.copy())) == [(0, 3, "PER"), (4, 8, "ORG")]
    component = nlp.get_pipe("tener_ner")
    assert component.predict([words]) == component.predict([nlp.make_doc(words.text)])


def test_long_document_is_encoded_in_component_windows(deterministic_transformer, monkeypatch):
    nlp = pipeline(transformer(deterministic_transformer, overlap=4), window=44, overlap=10)
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 3, "PER")]})])
    module = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").shims[0].module
    subword_counts, unit_counts = [], []
    tokenizer = module.subword_tokenizer

    def record(docs):
        subwords = tokenizer(docs)
        subword_counts.extend(subwords.lengths.tolist())
        unit_counts.extend(len(doc) for doc in docs)
        return subwords

    monkeypatch.setattr(module, "subword_tokenizer", record)
    doc = nlp(LONG)
    assert doc.has_annotation("ENT_IOB")
    assert len(subword_counts) == len(unit_counts) > 10
    assert subword_counts == [count + 2 for count in unit_counts]


def test_spacy_tagger_is_trained_with_transformer(deterministic_transformer):
    nlp = spacy.blank("zh")
    nlp.add_pipe(
        "tagger",
        config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": transformer(deterministic_transformer)}},
    )
    examples = [Example.from_dict(nlp.make_doc("去上海"), {"tags": ["V", "N", "N"]})]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    losses = [nlp.update(examples, sgd=optimizer)["tagger"] for _ in range(8)]
    assert losses[-1] < 0.5 * losses[0]
    assert nlp(LONG).has_annotation("TAG")


@pytest.mark.gpu
@pytest.mark.parametrize("mixed_precision", [False, True])
def test_transformer_is_fine_tuned_on_gpu(
    mixed_precision, deterministic_transformer, tok2vecs, make_examples, sentences, entities_of
):
    set_active_gpu(0)
    with use_ops("cupy"):
        nlp = pipeline(
            {**tok2vecs["TENER"], "embed": join_embedders(deterministic_transformer, mixed_precision=mixed_precision)}
        )
        train(nlp, make_examples(nlp), optimizer=Adam(0.01, use_averages=False, rates={"transformer.*": 0.1}))
        assert {value.device.type for value in parameters(nlp).values()} == {"cuda"}
        assert predict_entities(entities_of, nlp, [text for text, _ in sentences]) == [
            entities for _, entities in sentences
        ]


def test_fine_tuned_encoder_is_reused_by_another_pipeline(deterministic_transformer, tmp_path, make_examples):
    nlp = pipeline(transformer(deterministic_transformer))
    train(nlp, make_examples(nlp), optimizer=Adam(0.01, use_averages=False), steps=3)
    nlp.meta.update(name="names", license="CC BY-SA 4.0")
    nlp.to_disk(tmp_path / "names")
    docs = [nlp.make_doc(text) for text in (TEXT, LONG)]  # The second one exceeds the maximum length of the encoder.
    trained = np.concatenate(nlp.get_pipe("tener_ner").model.get_ref("tok2vec").predict(docs))
    encoder = e5(tmp_path / "names", layers=[2], precision="float32")()
    np.testing.assert_allclose(encoder(docs), trained, atol=1e-4)
    assert np.abs(e5(deterministic_transformer, layers=[2], precision="float32")()(docs) - trained).max() > 0.1
    about = encoder.description
    assert (about["name"], about["licence"]) == ("zh_names", "CC BY-SA 4.0")
    assert about["origin"].endswith("trained further in the pipeline zh_names")


def test_pipeline_without_single_encoder_raises_error(deterministic_transformer, tmp_path, make_examples):
    first = {"@architectures": "spacy_tener.CharEmbed.v1"}
    both = join_embedders(deterministic_transformer) | {"first": transformer(deterministic_transformer)}
    for embed, reason in (
        (first, "exactly one embedder with a transformer, but contains 0"),
        (both, "but contains 2"),
    ):
        nlp = pipeline(embed)
        nlp.initialize(lambda nlp=nlp: make_examples(nlp))
        nlp.to_disk(tmp_path / "pipeline")
        with pytest.raises(UserError, match=f"{reason}.* Use a pipeline that was trained with"):
            e5(tmp_path / "pipeline")()
