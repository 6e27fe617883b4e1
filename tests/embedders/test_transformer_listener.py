"""Test tener_ner with a listener of the shared component `transformer` of spacy-transformers in its embedder."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from tiny_transformer import WIDTH

from spacy_tener.optim.optimizers import Adam

ARCHITECTURES = ["TENER", "FLAT", "FLAT_ATSSA", "MECT", "GRN"]
TEXT = "吴重阳在中国银行工作。"
LISTENER = {
    "@architectures": "spacy-transformers.TransformerListener.v1",
    "pooling": {"@layers": "reduce_mean.v1"},
}
SLOW_TRANSFORMER = {"embeddings.*": 0.05, "encoder.layer.*": 0.05, "pooler.*": 0.05}


def pipeline(name, tok2vec, **settings):
    nlp = spacy.blank("zh")
    spans = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 20, "stride": 15}
    model = {
        "@architectures": "spacy-transformers.TransformerModel.v3",
        "name": str(name),
        "get_spans": spans,
        "tokenizer_config": {"use_fast": True},
    }
    nlp.add_pipe("transformer", config={"model": model})
    tagger = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": tok2vec}
    nlp.add_pipe("tener_ner", config={"model": tagger, **settings})
    return nlp


def with_listener(tok2vec):
    """Return an architecture whose embedder is concatenated with the listener."""
    joined = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": tok2vec["embed"], "second": LISTENER}
    return {**tok2vec, "embed": joined}


def weights(nlp):
    module = nlp.get_pipe("transformer").model.transformer
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def changed(before, after):
    return {name for name, value in after.items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures_are_trained_and_saved_with_listener(
    architecture, tiny, tok2vecs, tmp_path, make_examples, entities_of
):
    nlp = pipeline(tiny, with_listener(tok2vecs[architecture]))
    examples = make_examples(nlp)
    optimizer = Adam(0.01, use_averages=False, rates=SLOW_TRANSFORMER)
    nlp.initialize(lambda: examples)
    before = weights(nlp)
    losses = [nlp.update(examples, sgd=optimizer)["tener_ner"] for _ in range(5)]
    assert losses[-1] < 0.9 * losses[0]
    assert any(name.startswith("encoder.layer.0.") for name in changed(before, weights(nlp)))
    nlp.to_disk(tmp_path / "pipeline")
    loaded = spacy.load(tmp_path / "pipeline")
    texts = [TEXT, "王小明去了上海2023", TEXT * 10]
    assert [entities_of(doc) for doc in loaded.pipe(texts)] == [entities_of(doc) for doc in nlp.pipe(texts)]


def test_tokens_of_a_subword_share_features(tiny, tok2vecs):
    nlp = pipeline(tiny, with_listener(tok2vecs["TENER"]))
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 3, "PER")]})])
    doc = nlp("2023 去")
    embed = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").layers[0]
    rows = embed.predict([doc])[0][:, -WIDTH:]
    subwords = doc._.trf_data.model_output.last_hidden_state[0]
    assert [token.text for token in doc] == [*"2023", "去"]
    np.testing.assert_allclose(rows, subwords[[1, 1, 1, 1, 2]], atol=1e-6)


def test_transformer_rates_do_not_apply_to_tener_ner(tiny, tok2vecs):
    for architecture in ARCHITECTURES:
        nlp = pipeline(tiny, with_listener(tok2vecs[architecture]))
        nlp.initialize(lambda nlp=nlp: [Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 3, "PER")]})])
        optimizer = Adam(1.0, rates=SLOW_TRANSFORMER)
        shims = [shim for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims]
        names = [name for shim in shims for name, _ in shim.module.named_parameters()]
        assert {optimizer.rate_of(name) for name in names} == {1.0}
        assert {optimizer.rate_of(name) for name in weights(nlp)} == {0.05}


def test_character_view_with_listener_raises_error(tiny, tok2vecs):
    nlp = pipeline(tiny, with_listener(tok2vecs["TENER"]), view="characters")
    words = spacy.tokens.Doc(nlp.vocab, words=["吴重阳", "在", "上海"], spaces=[False] * 3)
    example = Example.from_dict(words, {"entities": [(0, 3, "PER")]})
    with pytest.raises(ValueError, match=r"embeds the pipeline's tokens.*Use view = 'tokens', or give"):
        nlp.initialize(lambda: [example])


@pytest.mark.parametrize("tok2vec", ["joined", "alone"])
def test_empty_texts_are_supported(tok2vec, tiny, tok2vecs, make_examples):
    nlp = pipeline(tiny, LISTENER if tok2vec == "alone" else with_listener(tok2vecs["TENER"]))
    empty = Example.from_dict(nlp.make_doc(""), {})
    examples = [empty, *make_examples(nlp), empty]
    optimizer = nlp.initialize(lambda: examples)
    nlp.update(examples, sgd=optimizer)
    assert [len(doc) for doc in nlp.pipe(["", TEXT, "", "京"])] == [0, len(TEXT), 0, 1]
