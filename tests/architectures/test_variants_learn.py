"""Test that all architectures, and the baselines of the papers, memorize eight texts with a CRF tagger.

The predictions are the same after saving and loading. To test another architecture, add it to `VARIANTS`.
"""

from __future__ import annotations

import pytest
import spacy
from small_systems import TEXTS, examples_of, pipeline

WIDTH = 24
EXPECTED = [entities for _, entities in TEXTS]
# The encoders of spaCy require inputs of their own width.
CHARACTERS = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 16, "bigram_width": 8, "dropout": 0.0}
WORDS = {"@architectures": "spacy_tener.WordCharEmbed.v1", "width": 16, "dropout": 0.0, "project_to": WIDTH}
HASHED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": WIDTH,
    "attrs": ["ORTH", "PREFIX"],
    "rows": [200, 200],
    "include_static_vectors": False,
}


def complete_model(name, **settings):
    """Return the config of an architecture that has an argument for its embedder."""
    return {"@architectures": name, "embed": CHARACTERS, "dropout": 0.0, **settings}


def grn(**settings):
    return complete_model("spacy_tener.GRN.v1", **{"width": WIDTH, **settings})


def encoder(name, embed=CHARACTERS, **settings):
    """Return the config of a spaCy Tok2Vec that combines an embedder and an encoder."""
    encode = {"@architectures": name, "width": WIDTH, **settings}
    return {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}


BILSTM = {"depth": 1, "dropout": 0.0}
MAXOUT = {"window_size": 1, "maxout_pieces": 2, "depth": 2}
ATTENTION = {
    "@architectures": "spacy_tener.TransformerEncoder.v1",
    "adapted": False,
    "width": WIDTH,
    "heads": 2,
    "dropout": 0.0,
}
BILSTM_ENCODER = {"@architectures": "spacy.TorchBiLSTMEncoder.v1", "width": WIDTH, **BILSTM}
BASELINES = {
    "CNN-BiLSTM-CRF": BILSTM_ENCODER,
    "spaCy's CNN": {"@architectures": "spacy.MaxoutWindowEncoder.v2", "width": WIDTH, **MAXOUT},
    "CNN-BiLSTM-Att-CRF": {"@layers": "chain.v1", "*": {"bilstm": BILSTM_ENCODER, "attention": ATTENTION}},
}


def baseline(name):
    return {"@architectures": "spacy.Tok2Vec.v2", "embed": WORDS, "encode": BASELINES[name]}


VARIANTS = [
    ("TENER", complete_model("spacy_tener.TENER.v1", width=WIDTH, heads=2)),
    ("transformer", complete_model("spacy_tener.TENER.v1", width=WIDTH, heads=2, adapted=False)),
    ("GRN", grn()),
    ("BiLSTM", encoder("spacy.TorchBiLSTMEncoder.v1", **BILSTM)),
    *((name, baseline(name)) for name in BASELINES),
    ("GRN over words and their characters", grn(embed=WORDS)),
    ("GRN over hashed strings", encoder("spacy_tener.GatedRelationEncoder.v1", HASHED, dropout=0.0)),
]


def memorize(nlp):
    """Train until the entities of all texts are predicted, for at most 200 steps. Most architectures need 15 steps."""
    examples = examples_of(nlp)
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.03
    for _ in range(200):
        if nlp.update(examples, sgd=optimizer)["tener_ner"] < 0.2 and predict_entities(nlp) == EXPECTED:
            return


def predict_entities(nlp):
    docs = nlp.pipe([text for text, _ in TEXTS])
    return [[(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in docs]


@pytest.mark.parametrize(("name", "tok2vec"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_variants_memorize_training_texts(name, tok2vec, tmp_path):
    nlp = pipeline(tok2vec)
    memorize(nlp)
    assert predict_entities(nlp) == EXPECTED
    nlp.to_disk(tmp_path)
    assert predict_entities(spacy.load(tmp_path)) == EXPECTED
