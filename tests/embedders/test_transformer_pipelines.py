"""Pipelines over a transformer: in every architecture's embedder, and alone; learned, saved, and run on any text."""

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

from spacy_tener.errors import RemedyError
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


def joined(name, **settings):
    first = {"@architectures": "spacy_tener.CharEmbed.v1", "dropout": 0.0}
    return {"@architectures": "spacy_tener.JoinEmbed.v1", "first": first, "second": transformer(name, **settings)}


def teach(nlp, examples, *, optimizer=None, steps=40):
    initial = learn(nlp, examples, steps=0)
    learn(nlp, examples, optimizer=optimizer or initial, steps=steps)


def parameters(nlp):
    """All torch parameters of the recogniser by name."""
    shims = [
        shim for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims if isinstance(shim, TorchShim)
    ]
    return {
        f"{i}.{name}": value.detach().clone()
        for i, shim in enumerate(shims)
        for name, value in shim.module.named_parameters()
    }


def moved(before, after):
    """The parameters that are not what they were: those of the transformer, and the others."""
    names = {name for name, value in after.items() if not torch.equal(value, before[name])}
    inside = {name for name in names if ".transformer." in name}
    return inside, names - inside


def emissions(nlp, texts):
    return nlp.get_pipe("tener_ner").model.predict([nlp.make_doc(text) for text in texts])


def known(entities_of, nlp, texts):
    return [entities_of(doc) for doc in nlp.pipe(texts)]


@pytest.mark.parametrize(
    ("architecture", "frozen"), [("TENER", True), *((architecture, False) for architecture in ARCHITECTURES)]
)
def test_every_architecture_learns_with_it_and_is_saved_without_its_directory(
    architecture, frozen, deterministic_transformer, tok2vecs, tmp_path, make_examples, sentences
):
    name = shutil.copytree(deterministic_transformer, tmp_path / "bert")
    # What training keeps of a frozen one differs in its last digits from what a loaded pipeline computes.
    nlp = pipeline({**tok2vecs[architecture], "embed": joined(name, frozen=frozen, cache=0)})
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


def test_alone_it_is_a_whole_tok2vec(deterministic_transformer, make_examples, sentences, entities_of):
    nlp = pipeline(transformer(deterministic_transformer))
    teach(nlp, make_examples(nlp), optimizer=Adam(0.02, use_averages=False, rates={"transformer.*": 0.5}))
    assert known(entities_of, nlp, [text for text, _ in sentences]) == [entities for _, entities in sentences]


@pytest.mark.parametrize("make", [Adam, SGD])
def test_its_rate_is_its_own(make, deterministic_transformer, tok2vecs, make_examples):
    steps = {}
    for factor in (0.0, 0.01, 1.0):
        spacy.util.fix_random_seed(0)
        nlp = pipeline({**tok2vecs["TENER"], "embed": joined(deterministic_transformer)})
        examples = make_examples(nlp)
        nlp.initialize(lambda examples=examples: examples)
        before = parameters(nlp)
        nlp.update(examples, sgd=make(0.001, rates={"transformer.*": factor}))
        after = parameters(nlp)
        steps[factor] = {name: (after[name] - before[name]) for name in after}
        inside, others = moved(before, after)
        assert bool(inside) == (factor > 0)
        assert others
    for name, step in steps[1.0].items():
        scale = 0.01 if ".transformer." in name else 1.0
        torch.testing.assert_close(steps[0.01][name], scale * step, rtol=0.1, atol=1e-6)


def test_characters_of_words_are_read_where_the_view_says_so(deterministic_transformer, entities_of):
    nlp = pipeline(transformer(deterministic_transformer), view="characters")
    words = Doc(nlp.vocab, words=["吴重阳", "在", "中国银行", "工作", "2023", "。"], spaces=[False] * 6)
    examples = [Example.from_dict(words.copy(), {"entities": [(0, 3, "PER"), (4, 8, "ORG")]})]
    teach(nlp, examples, optimizer=Adam(0.01, use_averages=False, rates={"transformer.*": 0.1}), steps=25)
    assert entities_of(nlp.get_pipe("tener_ner")(words.copy())) == [(0, 3, "PER"), (4, 8, "ORG")]
    component = nlp.get_pipe("tener_ner")
    assert component.predict([words]) == component.predict([nlp.make_doc(words.text)])


def test_long_documents_are_read_in_the_components_windows_and_each_window_once(deterministic_transformer, monkeypatch):
    nlp = pipeline(transformer(deterministic_transformer, overlap=4), window=44, overlap=10)
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 3, "PER")]})])
    module = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").shims[0].module
    read, units = [], []
    tokenizer = module.subword_tokenizer

    def watch(docs):
        pieces = tokenizer(docs)
        read.extend(pieces.lengths.tolist())
        units.extend(len(doc) for doc in docs)
        return pieces

    monkeypatch.setattr(module, "subword_tokenizer", watch)
    doc = nlp(LONG)
    assert doc.has_annotation("ENT_IOB")
    assert len(read) == len(units) > 10
    assert read == [unit + 2 for unit in units]


def test_spacys_own_components_sit_on_it(deterministic_transformer):
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
def test_it_learns_on_a_gpu_as_overlays_have_it(
    mixed_precision, deterministic_transformer, tok2vecs, make_examples, sentences, entities_of
):
    set_active_gpu(0)
    with use_ops("cupy"):
        nlp = pipeline(
            {**tok2vecs["TENER"], "embed": joined(deterministic_transformer, mixed_precision=mixed_precision)}
        )
        teach(nlp, make_examples(nlp), optimizer=Adam(0.01, use_averages=False, rates={"transformer.*": 0.1}))
        assert {value.device.type for value in parameters(nlp).values()} == {"cuda"}
        assert known(entities_of, nlp, [text for text, _ in sentences]) == [entities for _, entities in sentences]


def test_what_a_pipeline_was_trained_with_is_the_frozen_encoder_of_another_one(
    deterministic_transformer, tmp_path, make_examples
):
    nlp = pipeline(transformer(deterministic_transformer))
    teach(nlp, make_examples(nlp), optimizer=Adam(0.01, use_averages=False), steps=3)
    nlp.meta.update(name="names", license="CC BY-SA 4.0")
    nlp.to_disk(tmp_path / "names")
    docs = [nlp.make_doc(text) for text in (TEXT, LONG)]  # One has more pieces than are read at once.
    trained = np.concatenate(nlp.get_pipe("tener_ner").model.get_ref("tok2vec").predict(docs))
    encoder = e5(tmp_path / "names", layers=[2], precision="float32")()
    np.testing.assert_allclose(encoder(docs), trained, atol=1e-4)
    assert np.abs(e5(deterministic_transformer, layers=[2], precision="float32")()(docs) - trained).max() > 0.1
    about = encoder.description
    assert (about["name"], about["licence"]) == ("zh_names", "CC BY-SA 4.0")
    assert about["origin"].endswith("trained further in the pipeline zh_names")


def test_a_pipeline_without_one_encoder_of_its_own_is_refused(deterministic_transformer, tmp_path, make_examples):
    first = {"@architectures": "spacy_tener.CharEmbed.v1"}
    for embed, reason in (
        (first, "it has 0 embedders"),
        (joined(deterministic_transformer) | {"first": transformer(deterministic_transformer)}, "it has 2"),
    ):
        nlp = pipeline(embed)
        nlp.initialize(lambda nlp=nlp: make_examples(nlp))
        nlp.to_disk(tmp_path / "pipeline")
        with pytest.raises(RemedyError, match=f"{reason}.* Name one that was trained with"):
            e5(tmp_path / "pipeline")()
