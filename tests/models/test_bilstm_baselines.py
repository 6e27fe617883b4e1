"""The papers' baselines as configuration: spaCy's own encoders over our words with characters, under our CRF."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

WORDS = {
    "@architectures": "spacy_tener.WordCharEmbed.v1",
    "width": 12,
    "dropout": 0.0,
    "word_dropout": 0.0,
    "chars": {"@architectures": "spacy_tener.CharCNN.v1", "char_width": 8, "width": 8, "dropout": 0.0},
    "project_to": 16,
}
BILSTM = {"@architectures": "spacy.TorchBiLSTMEncoder.v1", "width": 16, "depth": 1, "dropout": 0.0}
ENCODERS = {
    "CNN-BiLSTM-CRF": BILSTM,
    "two layers of BiLSTM": {**BILSTM, "depth": 2},
    "spaCy's CNN": {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": 16,
        "window_size": 1,
        "maxout_pieces": 2,
        "depth": 2,
    },
    "spaCy's CNN with Mish": {
        "@architectures": "spacy.MishWindowEncoder.v2",
        "width": 16,
        "window_size": 1,
        "depth": 2,
    },
    "CNN-BiLSTM-Att-CRF": {
        "@layers": "chain.v1",
        "*": {
            "bilstm": BILSTM,
            "attention": {
                "@architectures": "spacy_tener.TransformerEncoder.v1",
                "width": 16,
                "heads": 2,
                "dropout": 0.0,
            },
        },
    },
}
every_encoder = pytest.mark.parametrize("name", ENCODERS)
SENTENCES = [
    (["Ada", "Lovelace", "lived", "in", "London"], [(0, 2, "PER"), (4, 5, "LOC")]),
    (["Nothing", "happened", "12", "times"], []),
    (["London"], [(0, 1, "LOC")]),
    (["the", "Royal", "Society", "met", "Ada"], [(1, 3, "ORG"), (4, 5, "PER")]),
]


def pipeline(name, lang="en", words=WORDS):
    nlp = spacy.blank(lang)
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": words, "encode": ENCODERS[name]}
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec, "dropout": 0.0}
    nlp.add_pipe("tener_ner", config={"model": model})
    return nlp


def examples_of(nlp, data=SENTENCES):
    made = []
    for words, entities in data:
        gold = Doc(nlp.vocab, words=words)
        gold.set_ents([spacy.tokens.Span(gold, *entity) for entity in entities])
        made.append(Example(Doc(nlp.vocab, words=words), gold))
    return made


def trained(nlp, examples, steps):
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    losses = []
    while len(losses) < steps and (not losses or losses[-1] > 0.02):
        losses.append(nlp.update(examples, sgd=optimizer)["tener_ner"])
    return losses


def entities(nlp, words):
    doc = nlp.get_pipe("tener_ner")(Doc(nlp.vocab, words=words))
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


@every_encoder
def test_a_baseline_learns_its_sentences_by_heart_and_is_saved(name, tmp_path):
    nlp = pipeline(name)
    losses = trained(nlp, examples_of(nlp), steps=60)
    assert losses[-1] < 0.1 * losses[0]
    for words, expected in SENTENCES:
        assert entities(nlp, words) == expected
    nlp.to_disk(tmp_path / "pipeline")
    loaded = spacy.load(tmp_path / "pipeline")
    for words, expected in SENTENCES:
        assert entities(loaded, words) == expected
    docs = [Doc(vocab, words=["Ada", "likes", "Turin", "31"]) for vocab in (nlp.vocab, loaded.vocab)]
    own, kept = (p.get_pipe("tener_ner").model.predict([doc])[0] for p, doc in zip((nlp, loaded), docs, strict=True))
    np.testing.assert_array_equal(own, kept)


@every_encoder
def test_a_step_teaches_words_characters_and_projection(name):
    nlp = pipeline(name)
    examples = examples_of(nlp)
    trained(nlp, examples, steps=0)
    model = nlp.get_pipe("tener_ner").model
    nodes = {node.name: node for node in model.walk() if node.name in ("char_embed", "char_encoder", "project")}
    before = {part: node.to_bytes() for part, node in nodes.items()}
    nlp.update(examples, sgd=nlp.resume_training())
    assert set(nodes) == {"char_embed", "char_encoder", "project"}
    assert [part for part, node in nodes.items() if node.to_bytes() == before[part]] == []


def test_a_baseline_learns_chinese_characters():
    nlp = pipeline("CNN-BiLSTM-Att-CRF", lang="zh")
    data = [(list("吴重阳在北京工作"), [(0, 3, "PER"), (4, 6, "LOC")]), (list("天气好"), [])]
    trained(nlp, examples_of(nlp, data), steps=60)
    for words, expected in data:
        assert entities(nlp, words) == expected


@pytest.mark.parametrize("component", ["ner", "tagger"])
def test_words_with_characters_serve_spacy_s_own_components(component):
    plain, nlp = spacy.blank("en"), spacy.blank("en")
    plain.add_pipe(component)
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": WORDS, "encode": BILSTM}
    nlp.add_pipe(component, config={"model": {**plain.get_pipe_config(component)["model"], "tok2vec": tok2vec}})
    examples = examples_of(nlp)
    for example in examples:
        for token in example.reference:
            token.tag_ = "NNP" if token.is_title else "NN"
    optimizer = nlp.initialize(lambda: examples)
    losses = [nlp.update(examples, sgd=optimizer)[component] for _ in range(20)]
    assert losses[-1] < losses[0]
