"""Every architecture, and the baselines of the papers with encoders of spaCy, memorizes eight texts under the
CRF tagger, and says the same once saved and loaded.

To cover another one, add its name and config to `VARIANTS`. What it is made of is looked up in the registry.
"""

from __future__ import annotations

import pytest
import spacy
from small_systems import TEXTS, examples_of, pipeline

WIDTH = 24
EXPECTED = [entities for _, entities in TEXTS]
# As wide as spaCy's own encoders want their input to be.
CHARACTERS = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 16, "bigram_width": 8, "dropout": 0.0}
WORDS = {"@architectures": "spacy_tener.WordCharEmbed.v1", "width": 16, "dropout": 0.0, "project_to": WIDTH}
HASHED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": WIDTH,
    "attrs": ["ORTH", "PREFIX"],
    "rows": [200, 200],
    "include_static_vectors": False,
}


def whole(name, **settings):
    """An architecture that takes its embedder itself."""
    return {"@architectures": name, "embed": CHARACTERS, "dropout": 0.0, **settings}


def grn(**settings):
    return whole("spacy_tener.GRN.v1", **{"width": WIDTH, **settings})


def encoder(name, embed=CHARACTERS, **settings):
    """An encoder over an embedder, put together by spaCy."""
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
    ("TENER", whole("spacy_tener.TENER.v1", width=WIDTH, heads=2)),
    ("transformer", whole("spacy_tener.TENER.v1", width=WIDTH, heads=2, adapted=False)),
    ("GRN", grn()),
    ("BiLSTM", encoder("spacy.TorchBiLSTMEncoder.v1", **BILSTM)),
    *((name, baseline(name)) for name in BASELINES),
    ("GRN over words and their characters", grn(embed=WORDS)),
    ("GRN over hashed strings", encoder("spacy_tener.GatedRelationEncoder.v1", HASHED, dropout=0.0)),
]


def learn_by_heart(nlp):
    """Train until every text is recognised, which most do in 15 steps; or for 200."""
    examples = examples_of(nlp)
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.03
    for _ in range(200):
        if nlp.update(examples, sgd=optimizer)["tener_ner"] < 0.2 and recognised(nlp) == EXPECTED:
            return


def recognised(nlp):
    docs = nlp.pipe([text for text, _ in TEXTS])
    return [[(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in docs]


@pytest.mark.parametrize(("name", "tok2vec"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_variants_memorize_training_texts(name, tok2vec, tmp_path):
    nlp = pipeline(tok2vec)
    learn_by_heart(nlp)
    assert recognised(nlp) == EXPECTED
    nlp.to_disk(tmp_path)
    assert recognised(spacy.load(tmp_path)) == EXPECTED
